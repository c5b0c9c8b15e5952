"""`Waiting`: the frames of one camera that nobody has taken yet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import Literal

from connectors.camera.frame import Frame

Policy = Literal["latest", "fifo", "block"]
Cause = Literal["replaced", "full", "old", "rate", "corrupt", "closed"]
"""Why a picture was not run: a newer one took its place (`latest`), too many waited (`max_frames`), it waited too long
(`max_age`), fewer were asked for (`fps`), it could not be decoded, or the source was closed."""


class Waiting:
    """Frames between a camera's thread, which puts them, and the source, which takes them.

    `latest` keeps one frame, the newest. `fifo` keeps `max_frames`, and drops the oldest beyond them and those older
    than `max_age` seconds. `block` keeps `max_frames`, and makes the camera wait. `arrived` is the source's: whoever
    calls a method but `put` holds it. `drop` is told of each frame that is dropped.
    """

    def __init__(
        self, policy: Policy, max_frames: int, max_age: float | None, arrived: Condition, drop: Callable[[Cause], None]
    ) -> None:
        self._policy = policy
        self._most = 1 if policy == "latest" else max_frames
        self._max_age = max_age if policy == "fifo" else None
        self._arrived = arrived
        self._drop = drop
        self._frames: deque[Frame] = deque()
        self.closed = False
        """Whether frames are dropped, as nobody takes them any more."""

    def __len__(self) -> int:
        self._drop_old()
        return len(self._frames)

    @property
    def full(self) -> bool:
        """Whether as many wait as may."""
        return len(self._frames) >= self._most

    @property
    def held_bytes(self) -> int:
        """Bytes of the frames that wait."""
        return sum(frame.byte_count for frame in self._frames)

    def put(self, frame: Frame) -> None:
        """Add a frame, in the camera's thread. With `block`: waits for a free place, as long as it is not closed."""
        with self._arrived:
            while self._policy == "block" and len(self._frames) >= self._most and not self.closed:
                self._arrived.wait()
            if self.closed:
                self._drop("closed")
                return
            while len(self._frames) >= self._most:
                self._frames.popleft()
                self._drop("replaced" if self._policy == "latest" else "full")
            self._frames.append(frame)
            self._arrived.notify_all()

    def connection(self) -> int | None:
        """The connection of the frame that is next; `None` if none waits."""
        self._drop_old()
        return self._frames[0].facts.connection if self._frames else None

    def take(self) -> Frame:
        """The next frame. There has to be one."""
        frame = self._frames.popleft()
        if self._policy == "block":
            self._arrived.notify_all()
        return frame

    def close(self) -> None:
        """Drop what waits, and take nothing more."""
        self.closed = True
        while self._frames:
            self._frames.popleft()
            self._drop("closed")
        self._arrived.notify_all()

    def _drop_old(self) -> None:
        if self._max_age is None:
            return
        oldest = time.monotonic() - self._max_age
        while self._frames and self._frames[0].at < oldest:
            self._frames.popleft()
            self._drop("old")
