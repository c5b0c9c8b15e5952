"""`Snapshots`: a URL that gives one picture at a time, asked again and again, as a live video."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from connectors.camera.errors import VideoError
from connectors.camera.upright import Picture
from connectors.camera.video import Video

if TYPE_CHECKING:
    from connectors.camera.footage import Footage

_LOOK: Final = 0.1
"""Seconds of one wait in `read`, so that a camera can be stopped meanwhile."""


class Snapshots(Video):
    """Asks for a picture every so many seconds.

    The first answer shows what the URL gives: if a second picture follows in it, it is a stream of pictures, and read
    on.
    """

    live = True

    def __init__(self, first: Video, ask: Callable[[], Video], every: float, footage: Footage | None) -> None:
        """`first` is the open answer to the first request, `ask` makes another one."""
        self._answer = first
        self._ask = ask
        self._every = every
        self._footage = footage
        self._due = time.monotonic()
        self._count = 0
        self._waits = False
        self.codec, self.size, self.rate = first.codec, first.size, 1.0 / every

    def read(self) -> Sequence[Picture] | None:
        """As `Video.read`; without a picture while the next one is not due."""
        if self._waits:
            left = self._due - time.monotonic()
            if left > 0:
                time.sleep(min(left, _LOOK))
                return []
            self._answer, self._waits, self._count = self._ask(), False, 0
        pictures = self._answer.read()
        self.size, self.corrupt = self._answer.size, self._answer.corrupt
        if pictures is not None:
            self._count += len(pictures)
            return pictures
        if not self._count:
            raise VideoError("it gives a picture that cannot be decoded")
        if self._count > 1:
            return None
        self._answer.close()
        self.polled = True
        if self._footage is not None:
            self._footage.unusable = "it gives single pictures, not a stream"
        # Requests that take longer than that are not made up for.
        self._due = max(self._due + self._every, time.monotonic())
        self._waits = True
        return []

    def close(self) -> None:
        """As `Video.close`."""
        self._answer.close()
