"""`Waiting`: the frames of one camera that were not polled yet."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Condition
from typing import Final, Literal

from connectors.camera.frame import Frame

Policy = Literal["latest", "fifo", "block"]
Cause = Literal["replaced", "full", "old", "rate", "corrupt", "closed"]
"""Why a picture was not run: a newer one took its place (`latest`), too many waited (`max_frames`), it waited too long
(`max_age`), fewer were asked for (`fps`), it could not be decoded, or the source was closed."""


COMPANY: Final = 0.05
"""Seconds that a frame of a file waits at most for others, to be polled together."""


class Waiting:
    """Frames between a camera's thread, which puts them, and the source, which takes them.

    `latest` keeps one frame, the newest. `fifo` keeps `max_frames`, and drops the oldest beyond them and those older
    than `max_age` seconds. `block` keeps `max_frames`, and makes the camera wait. `arrived` is the source's: callers of
    any method but `put` hold it. `drop` is called with each dropped frame and the cause.

    Frames of a file (`block`) are not urgent, so they are polled together: one batch instead of many.
    """

    def __init__(
        self,
        policy: Policy,
        max_frames: int,
        max_age: float | None,
        arrived: Condition,
        drop: Callable[[Cause, Frame], None],
    ) -> None:
        self._max_frames = max_frames
        self._longest = max_age
        self.choose(policy)
        self._arrived = arrived
        self._drop = drop
        self._frames: deque[Frame] = deque()
        self._complete = False
        self.last = False
        """Whether no more frames come."""
        self.closed = False
        """Whether it is closed: frames are dropped, as none is polled any more."""

    def choose(self, policy: Policy) -> None:
        """Set the policy. Called before the first frame."""
        self.policy = policy
        self._most = 1 if policy == "latest" else self._max_frames
        self._max_age = self._longest if policy == "fifo" else None
        self._together = policy == "block"

    def __len__(self) -> int:
        self._drop_old()
        return len(self._frames)

    @property
    def ready(self) -> int:
        """How many frames may be taken: all that wait. With `block` none before `max_frames` are there, the first has
        waited for `COMPANY`, or no more come."""
        self._drop_old()
        if self._together and not self._complete:
            self._complete = bool(self._frames) and (
                self.full or self.last or time.monotonic() - self._frames[0].at >= COMPANY
            )
            return len(self._frames) if self._complete else 0
        return len(self._frames)

    @property
    def full(self) -> bool:
        """Whether as many frames wait as are allowed to."""
        return len(self._frames) >= self._most

    @property
    def held_bytes(self) -> int:
        """Bytes of the frames that were not polled yet."""
        return sum(frame.byte_count for frame in self._frames)

    def put(self, frame: Frame) -> None:
        """Add a frame, in the camera's thread. With `block`: waits for a free place, as long as it is not closed."""
        with self._arrived:
            while self._together and len(self._frames) >= self._most and not self.closed:
                self._arrived.wait()
            if self.closed:
                self._drop("closed", frame)
                return
            while len(self._frames) >= self._most:
                self._drop("replaced" if self.policy == "latest" else "full", self._frames.popleft())
            self._frames.append(frame)
            if not self._together or self.full:
                self._arrived.notify_all()

    def connection(self) -> int | None:
        """The connection number of the next frame; `None` if no frame may be taken."""
        return self._frames[0].facts.connection if self.ready else None

    def take(self) -> Frame:
        """Remove and return the next frame. `connection` must not be `None`."""
        frame = self._frames.popleft()
        if self._together:
            self._complete = bool(self._frames)
            self._arrived.notify_all()
        return frame

    def leave(self) -> None:
        """Called when a poll took a full batch: the frames that are left wait for others again."""
        self._complete = False

    def close(self) -> None:
        """Drop all frames; later ones are dropped as well."""
        self.closed = True
        while self._frames:
            self._drop("closed", self._frames.popleft())
        self._arrived.notify_all()

    def _drop_old(self) -> None:
        if self._max_age is None:
            return
        oldest = time.monotonic() - self._max_age
        while self._frames and self._frames[0].at < oldest:
            self._drop("old", self._frames.popleft())
