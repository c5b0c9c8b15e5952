"""`Board`: the newest result of each camera, encoded by a separate thread while a page is open."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from connectors.view.picture import jpeg_of
from connectors.view.result import Shown

_log = logging.getLogger(__name__)

MOST_CAMERAS: Final = 256
"""The most cameras that are shown; further ones replace those that were silent for longest."""
TELL_EVERY: Final = 60.0
"""Seconds between two lines in the log about pictures that cannot be encoded."""


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A result, encoded for browsers."""

    camera: str
    number: int
    """The number of the result on this board."""
    jpeg: bytes
    """The picture without boxes, or with them where they were asked for."""
    facts: bytes
    """A JSON object: camera, number, timestamp, width and height of the picture, boxes and values."""


@dataclass(eq=False)
class Watcher:
    """A browser that watches one camera, or all (`camera` is `None`). Used only in the event loop that made it."""

    camera: str | None
    boxes: bool
    loop: asyncio.AbstractEventLoop
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    seen: dict[str, int] = field(default_factory=dict)

    def wants(self, camera: str) -> bool:
        """Whether it watches this camera."""
        return self.camera is None or self.camera == camera

    def tell(self) -> None:
        """Wake the browser's stream, as a new picture or result is there. From any thread."""
        try:
            self.loop.call_soon_threadsafe(self.changed.set)
        except RuntimeError:
            # The loop is closed: no page is open any more.
            return


class Board:
    """Keeps the newest result of each camera, and encodes its picture only while a page is open.

    `show` is called by the run thread and returns at once. A picture that is replaced before it was encoded is skipped,
    so a slow browser or encoder does not delay the service.
    """

    def __init__(self, width: int, quality: int, fps: float) -> None:
        """Pictures are `width` pixels across at most; of each camera `fps` a second are encoded at most."""
        self.shown = 0
        """Results that were shown."""
        self.encoded = 0
        """Pictures that were encoded."""
        self.failed = 0
        """Pictures that could not be encoded."""
        self._width = width
        self._quality = quality
        self._every = 1.0 / fps
        self._changed = threading.Condition()
        self._newest: dict[str, tuple[int, Shown]] = {}
        self._encoded: dict[tuple[str, bool], EncodedResult] = {}
        self._due: dict[tuple[str, bool], float] = {}
        self._watchers: set[Watcher] = set()
        self._stop = False
        self._tell_at = 0.0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to encode the cameras that are watched."""
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="view encoder", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop encoding. Idempotent."""
        with self._changed:
            self._stop = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(5.0)

    @property
    def watchers(self) -> int:
        """The number of browsers that watch at present."""
        return len(self._watchers)

    def show(self, shown: Shown) -> None:
        """Show this result as the newest of its camera."""
        with self._changed:
            self.shown += 1
            # The newest is last, so that the first camera has been without a result for longest.
            self._newest.pop(shown.camera, None)
            self._newest[shown.camera] = self.shown, shown
            if len(self._newest) > MOST_CAMERAS:
                self._forget(next(iter(self._newest)))
            if self._watchers:
                self._changed.notify_all()

    def cameras(self) -> list[str]:
        """The names of cameras with a result, sorted."""
        with self._changed:
            return sorted(self._newest)

    @contextmanager
    def watched(self, camera: str | None, *, boxes: bool) -> Iterator[Watcher]:
        """A browser watches, in this thread's event loop, until the block is left."""
        watcher = Watcher(camera, boxes, asyncio.get_running_loop())
        with self._changed:
            self._watchers.add(watcher)
            self._changed.notify_all()
        try:
            yield watcher
        finally:
            with self._changed:
                self._watchers.discard(watcher)
                if not self._watchers:
                    # A picture that is old by now is not shown.
                    self._encoded.clear()

    async def news(self, watcher: Watcher, patience: float) -> list[EncodedResult]:
        """The newest results that this watcher has not seen yet, one of each camera; none if none came in `patience`
        seconds."""
        frames = self._unseen(watcher)
        if not frames:
            try:
                async with asyncio.timeout(patience):
                    await watcher.changed.wait()
            except TimeoutError:
                return []
            frames = self._unseen(watcher)
        return frames

    def _unseen(self, watcher: Watcher) -> list[EncodedResult]:
        watcher.changed.clear()
        with self._changed:
            frames = [
                frame
                for (camera, boxes), frame in self._encoded.items()
                if boxes == watcher.boxes and watcher.wants(camera) and frame.number > watcher.seen.get(camera, 0)
            ]
        watcher.seen.update((frame.camera, frame.number) for frame in frames)
        return frames

    def _run(self) -> None:
        while True:
            with self._changed:
                work = self._next()
                while work is None and not self._stop:
                    self._changed.wait(self._time_left())
                    work = self._next()
                if self._stop or work is None:
                    return
            self._encode(*work)
            # The variable would keep a frame in memory while the thread waits.
            del work

    def _encode(self, number: int, shown: Shown, boxes: bool) -> None:
        key = shown.camera, boxes
        try:
            jpeg = jpeg_of(shown, self._width, self._quality, boxes=boxes)
            encoded = EncodedResult(shown.camera, number, jpeg, _facts(number, shown))
        except Exception as error:  # noqa: BLE001 - any error concerns this picture only
            self.failed += 1
            if time.monotonic() >= self._tell_at:
                self._tell_at = time.monotonic() + TELL_EVERY
                _log.warning("a picture of %s cannot be shown: %s", shown.camera, error)
            encoded = None
        with self._changed:
            self._due[key] = time.monotonic() + self._every
            if encoded is None:
                # A picture that cannot be encoded is not tried again.
                if self._newest.get(shown.camera, (0,))[0] == number:
                    del self._newest[shown.camera]
                return
            self.encoded += 1
            self._encoded[key] = encoded
            watchers = [watcher for watcher in self._watchers if watcher.boxes == boxes and watcher.wants(shown.camera)]
        for watcher in watchers:
            watcher.tell()

    def _next(self) -> tuple[int, Shown, bool] | None:
        """The next picture to encode: the one that has waited longest."""
        now = time.monotonic()
        ready = [(self._due.get(key, 0.0), key) for key in self._waiting()]
        due = min((entry for entry in ready if entry[0] <= now), default=None)
        if due is None:
            return None
        camera, boxes = due[1]
        number, shown = self._newest[camera]
        return number, shown, boxes

    def _time_left(self) -> float | None:
        """Seconds until the next picture may be encoded; `None` if no picture waits."""
        due = min((self._due.get(key, 0.0) for key in self._waiting()), default=None)
        return None if due is None else max(due - time.monotonic(), 0.001)

    def _waiting(self) -> set[tuple[str, bool]]:
        """The watched cameras with a picture that is not encoded yet, with boxes or without."""
        return {
            (camera, watcher.boxes)
            for watcher in self._watchers
            for camera, (number, _) in self._newest.items()
            if watcher.wants(camera) and self._number_of(camera, watcher.boxes) < number
        }

    def _number_of(self, camera: str, boxes: bool) -> int:
        encoded = self._encoded.get((camera, boxes))
        return 0 if encoded is None else encoded.number

    def _forget(self, camera: str) -> None:
        del self._newest[camera]
        for boxes in (False, True):
            self._encoded.pop((camera, boxes), None)
            self._due.pop((camera, boxes), None)


def _facts(number: int, shown: Shown) -> bytes:
    facts = {
        "camera": shown.camera,
        "number": number,
        "timestamp": shown.timestamp,
        "width": shown.image.width,
        "height": shown.image.height,
        "boxes": [
            {
                "box": [round(edge, 5) for edge in (box.left, box.top, box.width, box.height)],
                "text": box.text,
                "label": box.label,
                "id": box.number or None,
            }
            for box in shown.boxes
        ],
        "values": dict(shown.values),
    }
    return json.dumps(facts, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
