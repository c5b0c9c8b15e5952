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

from connectors.view.eventlog import EventLog
from connectors.view.picture import jpeg_of
from connectors.view.result import Shown

_log = logging.getLogger(__name__)

MOST_CAMERAS: Final = 256
"""The most cameras that are shown; further ones replace those that were silent for longest."""
WIDTHS: Final = (320, 480, 640, 960, 1280, 1920, 2560)
"""The widths in which pictures are encoded: a browser gets the next one to what it asks for, so that many share one."""
EVENT_WIDTH: Final = 640
"""The width of pictures of events."""
EVENT_QUALITY: Final = 70
"""Quality of the JPEG files of events."""
TELL_EVERY: Final = 60.0
"""Seconds between two lines in the log about pictures that cannot be encoded."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a picture is encoded."""

    boxes: bool
    """Whether boxes are drawn into it."""
    width: int
    """The largest width, in pixels."""


@dataclass(frozen=True, slots=True)
class EncodedResult:
    """A result, encoded for browsers."""

    camera: str
    number: int
    """The number of the result on this board."""
    jpeg: bytes
    """The picture without boxes, or with them where they were asked for."""
    facts: bytes
    """A JSON object: camera, number, timestamp, width and height of the picture, boxes, counts and values."""


@dataclass(eq=False)
class Watcher:
    """A browser that watches one camera, or all (`camera` is `None`). Used only in the event loop that made it."""

    camera: str | None
    form: Form
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
    """Keeps the newest result of each camera, and encodes its picture only while a page is open; pictures of events are
    encoded always.

    `show` is called by the run thread and returns at once. A picture that is replaced before it was encoded is skipped,
    so a slow browser or encoder does not delay the service.
    """

    def __init__(self, width: int, quality: int, fps: float, events: EventLog) -> None:
        """Pictures are `width` pixels across at most; of each camera `fps` a second are encoded at most. What happened
        is added to `events`."""
        self.shown = 0
        """Results that were shown."""
        self.encoded = 0
        """Pictures that were encoded."""
        self.failed = 0
        """Pictures that could not be encoded."""
        self.events = events
        self._width = width
        self._quality = quality
        self._every = 1.0 / fps
        self._changed = threading.Condition()
        self._newest: dict[str, tuple[int, Shown]] = {}
        self._encoded: dict[tuple[str, Form], EncodedResult] = {}
        self._due: dict[tuple[str, Form], float] = {}
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
        has_picture = self.events.add(shown)
        with self._changed:
            self.shown += 1
            # The newest is last, so that the first camera has been without a result for longest.
            self._newest.pop(shown.camera, None)
            self._newest[shown.camera] = self.shown, shown
            if len(self._newest) > MOST_CAMERAS:
                self._forget(next(iter(self._newest)))
            if self._watchers or has_picture:
                self._changed.notify_all()

    def form(self, *, boxes: bool, width: int | None = None) -> Form:
        """The form of pictures for a browser that shows them this wide; `None`: as wide as there are."""
        wide = self._width if width is None else next((size for size in WIDTHS if size >= width), self._width)
        return Form(boxes, min(wide, self._width))

    def cameras(self) -> list[str]:
        """The names of cameras with a result, sorted."""
        with self._changed:
            return sorted(self._newest)

    @contextmanager
    def watched(self, camera: str | None, form: Form) -> Iterator[Watcher]:
        """A browser watches, in this thread's event loop, until the block is left."""
        watcher = Watcher(camera, form, asyncio.get_running_loop())
        with self._changed:
            self._watchers.add(watcher)
            self._changed.notify_all()
        try:
            yield watcher
        finally:
            with self._changed:
                self._watchers.discard(watcher)
                forms = {watcher.form for watcher in self._watchers}
                # A picture that is old by now is not shown.
                for table in (self._encoded, self._due):
                    for key in [key for key in table if key[1] not in forms]:
                        del table[key]

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
                for (camera, form), frame in self._encoded.items()
                if form == watcher.form and watcher.wants(camera) and frame.number > watcher.seen.get(camera, 0)
            ]
        watcher.seen.update((frame.camera, frame.number) for frame in frames)
        return frames

    def _run(self) -> None:
        while True:
            with self._changed:
                event = self.events.next_picture()
                work = self._next()
                while event is None and work is None and not self._stop:
                    self._changed.wait(self._time_left())
                    event = self.events.next_picture()
                    work = self._next()
                if self._stop:
                    return
            if event is not None:
                self._encode_event(*event)
            if work is not None:
                self._encode(*work)
            # The variables would keep frames in memory while the thread waits.
            del work, event

    def _encode_event(self, number: int, shown: Shown) -> None:
        jpeg = self._jpeg(shown, Form(True, min(EVENT_WIDTH, self._width)), EVENT_QUALITY)
        if jpeg is not None:
            self.events.put_picture(number, jpeg)

    def _encode(self, number: int, shown: Shown, form: Form) -> None:
        key = shown.camera, form
        jpeg = self._jpeg(shown, form, self._quality)
        with self._changed:
            self._due[key] = time.monotonic() + self._every
            if jpeg is None:
                # A picture that cannot be encoded is not tried again.
                if self._newest.get(shown.camera, (0,))[0] == number:
                    del self._newest[shown.camera]
                return
            self._encoded[key] = EncodedResult(shown.camera, number, jpeg, _facts(number, shown))
            watchers = [watcher for watcher in self._watchers if watcher.form == form and watcher.wants(shown.camera)]
        for watcher in watchers:
            watcher.tell()

    def _jpeg(self, shown: Shown, form: Form, quality: int) -> bytes | None:
        """The picture as a JPEG file; `None` if it cannot be encoded."""
        try:
            jpeg = jpeg_of(shown, form.width, quality, boxes=form.boxes)
        except Exception as error:  # noqa: BLE001 - any error concerns this picture only
            self.failed += 1
            if time.monotonic() >= self._tell_at:
                self._tell_at = time.monotonic() + TELL_EVERY
                _log.warning("a picture of %s cannot be shown: %s", shown.camera, error)
            return None
        self.encoded += 1
        return jpeg

    def _next(self) -> tuple[int, Shown, Form] | None:
        """The next picture to encode: the one that has waited longest."""
        now = time.monotonic()
        ready = [(self._due.get(key, 0.0), key) for key in self._waiting()]
        due = min((entry for entry in ready if entry[0] <= now), default=None, key=lambda entry: entry[0])
        if due is None:
            return None
        camera, form = due[1]
        number, shown = self._newest[camera]
        return number, shown, form

    def _time_left(self) -> float | None:
        """Seconds until the next picture may be encoded; `None` if no picture waits."""
        due = min((self._due.get(key, 0.0) for key in self._waiting()), default=None)
        return None if due is None else max(due - time.monotonic(), 0.001)

    def _waiting(self) -> set[tuple[str, Form]]:
        """The watched cameras with a picture that is not encoded yet, in the forms that browsers want."""
        return {
            (camera, watcher.form)
            for watcher in self._watchers
            for camera, (number, _) in self._newest.items()
            if watcher.wants(camera) and self._number_of(camera, watcher.form) < number
        }

    def _number_of(self, camera: str, form: Form) -> int:
        encoded = self._encoded.get((camera, form))
        return 0 if encoded is None else encoded.number

    def _forget(self, camera: str) -> None:
        del self._newest[camera]
        for table in (self._encoded, self._due):
            for key in [key for key in table if key[0] == camera]:
                del table[key]


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
        "counts": {place: dict(numbers) for place, numbers in shown.counts.items()},
        "values": dict(shown.values),
    }
    return json.dumps(facts, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
