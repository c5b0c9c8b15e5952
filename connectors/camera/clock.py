"""`Stamps`: the timestamp of each picture of a connection."""

from __future__ import annotations

import time

from connectors.camera.health import Health
from connectors.camera.upright import Picture


class Stamps:
    """Timestamps in milliseconds since 1970, which never go back.

    Of a live camera: its own clock (RTCP), where that is within `tolerance` seconds of the receipt, else the receipt: a
    camera whose clock was never set must not date its pictures to 1970. Of a file: the time in the file, counted from
    its opening, so that speeds and durations come out right however fast it is read.
    """

    def __init__(self, health: Health, tolerance: float, *, live: bool) -> None:
        self._health = health
        self._tolerance = tolerance
        self._live = live
        self._began = time.time()
        self._first: float | None = None
        self._last = 0

    def of(self, picture: Picture, seconds: float | None) -> int:
        """The timestamp of this picture, of a file at `seconds`; call it for each picture in order."""
        since_1970 = self._of_camera(picture) if self._live else self._of_file(picture, seconds)
        self._last = max(self._last, round(since_1970 * 1000))
        return self._last

    def _of_camera(self, picture: Picture) -> float:
        if picture.clock is None:
            return picture.receipt
        self._health.skew = picture.receipt - picture.clock
        self._health.clock_believed = abs(self._health.skew) <= self._tolerance
        return picture.clock if self._health.clock_believed else picture.receipt

    def _of_file(self, picture: Picture, seconds: float | None) -> float:
        if seconds is None:
            return picture.receipt
        if self._first is None:
            self._first = seconds
        return self._began + seconds - self._first
