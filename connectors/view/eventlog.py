"""`EventLog`: the last events of all cameras, each with a small picture or a clip, in bounded memory."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from connectors.view.madeclip import MadeClip
from connectors.view.result import Shown

MOST_BYTES: Final = 16 * 2**20
"""The most bytes of all pictures of events; beyond that the oldest events are forgotten."""
MOST_WAITING: Final = 4
"""The most frames that wait to become pictures of events. An event beyond that has no picture."""
NEXT_PICTURE: Final = 1000
"""Milliseconds in which all events of a camera share a picture."""


@dataclass(eq=False, slots=True)
class _Picture:
    """A picture of one or several events."""

    number: int
    time: int
    jpeg: bytes | None = None
    """The JPEG file; `None` until it is encoded."""
    events: int = 0
    """How many of the events that are kept show it."""


@dataclass(eq=False, slots=True)
class _Event:
    """An event as it is kept."""

    number: int
    camera: str
    time: int
    text: str
    revision: int
    picture: _Picture | None = None
    clip: int | None = None
    """The number of its clip."""


@dataclass(eq=False)
class EventLog:
    """Keeps the last `most` events, the oldest first. Thread-safe; no call waits for a picture.

    Whenever an event is added, or gets its picture or clip, it gets the next revision: a page asks for events with
    revisions that it has not seen.
    """

    most: int
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    """Tells this log from that of another process, whose numbers mean other events."""
    total: int = 0
    """Events so far."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _events: deque[_Event] = field(default_factory=deque)
    _pictures: dict[int, _Picture] = field(default_factory=dict)
    _latest: dict[str, _Picture] = field(default_factory=dict)
    """The newest picture of each camera that has one in this log."""
    _waiting: deque[tuple[_Picture, Shown]] = field(default_factory=deque)
    _clips: dict[int, Path] = field(default_factory=dict)
    _clips_made: int = 0
    _bytes: int = 0
    _revision: int = 0

    def add(self, shown: Shown) -> bool:
        """Keep the events of this result. Returns whether a picture is to be encoded: see `next_picture`."""
        if not shown.events or not self.most:
            return False
        with self._lock:
            picture, is_new = self._picture_of(shown)
            for event in shown.events[-self.most :]:
                self._append(shown.camera, event.time or _time_of(shown), event.text, picture)
            if picture is not None and is_new and picture.number in self._pictures:
                self._waiting.append((picture, shown))
                return True
            return False

    def next_picture(self) -> tuple[int, Shown] | None:
        """The number of the next picture that is to be encoded, and the result that it is of."""
        with self._lock:
            while self._waiting:
                picture, shown = self._waiting.popleft()
                if picture.number in self._pictures:
                    return picture.number, shown
            return None

    def put_picture(self, number: int, jpeg: bytes) -> None:
        """Keep this JPEG file as the picture of this number."""
        with self._lock:
            picture = self._pictures.get(number)
            if picture is None or picture.jpeg is not None:
                return
            picture.jpeg = jpeg
            self._bytes += len(jpeg)
            for event in self._events:
                if event.picture is picture:
                    self._touch(event)
            while self._bytes > MOST_BYTES and self._events:
                self._forget_oldest()

    def clip(self, made: MadeClip) -> None:
        """Give this clip to the events in it; if there are none, it is an event itself."""
        if not self.most:
            return
        with self._lock:
            inside = [event for event in self._events if _is_in(event, made)]
            # A clip has several files where its camera was connected again: one of them has the event.
            if not inside and any(event.camera == made.camera and event.time == made.event for event in self._events):
                return
            if not inside:
                inside = [self._append(made.camera, made.event, "a clip was recorded", None)]
            self._clips_made += 1
            number = self._clips_made
            self._clips[number] = made.path
            for event in inside:
                event.clip = number
                self._touch(event)
            self._forget_unused_clips()

    def jpeg(self, number: int) -> bytes | None:
        """The picture of this number; `None` if there is none (any more)."""
        with self._lock:
            picture = self._pictures.get(number)
            return None if picture is None else picture.jpeg

    def clip_file(self, number: int) -> Path | None:
        """The file of the clip of this number; `None` if no event has it (any more)."""
        with self._lock:
            return self._clips.get(number)

    def since(self, revision: int) -> dict[str, Any] | None:
        """The events with later revisions, as JSON values; `None` if there are none.

        `oldest` is the number of the oldest event that is kept: a page forgets those before.
        """
        with self._lock:
            if revision >= self._revision:
                return None
            return {
                "run": self.run,
                "revision": self._revision,
                "oldest": self._events[0].number if self._events else self.total + 1,
                "events": [_as_json(event) for event in self._events if event.revision > revision],
            }

    def _picture_of(self, shown: Shown) -> tuple[_Picture | None, bool]:
        """The picture for the events of this result, and whether it is a new one, to be encoded."""
        now = _time_of(shown)
        latest = self._latest.get(shown.camera)
        if latest is not None and 0 <= now - latest.time < NEXT_PICTURE:
            return latest, False
        if len(self._waiting) >= MOST_WAITING:
            return None, False
        return _Picture(self.total + 1, now), True

    def _append(self, camera: str, when: int, text: str, picture: _Picture | None) -> _Event:
        self.total += 1
        event = _Event(self.total, camera, when, text, 0, picture)
        if picture is not None:
            picture.events += 1
            self._pictures[picture.number] = picture
            self._latest[camera] = picture
        self._events.append(event)
        self._touch(event)
        while len(self._events) > self.most:
            self._forget_oldest()
        return event

    def _touch(self, event: _Event) -> None:
        self._revision += 1
        event.revision = self._revision

    def _forget_oldest(self) -> None:
        event = self._events.popleft()
        picture = event.picture
        if picture is not None:
            picture.events -= 1
            if not picture.events:
                del self._pictures[picture.number]
                self._bytes -= len(picture.jpeg or b"")
                if self._latest.get(event.camera) is picture:
                    del self._latest[event.camera]
        if event.clip is not None:
            self._forget_unused_clips()

    def _forget_unused_clips(self) -> None:
        used = {event.clip for event in self._events}
        self._clips = {number: path for number, path in self._clips.items() if number in used}


def _is_in(event: _Event, made: MadeClip) -> bool:
    return event.camera == made.camera and made.begin <= event.time <= made.end


def _time_of(shown: Shown) -> int:
    return int(time.time() * 1000) if shown.timestamp is None else shown.timestamp


def _as_json(event: _Event) -> dict[str, Any]:
    picture = event.picture
    return {
        "number": event.number,
        "camera": event.camera,
        "time": event.time,
        "text": event.text,
        "picture": None if picture is None or picture.jpeg is None else picture.number,
        "clip": event.clip,
    }
