"""Seconds between the frames of one camera, by their timestamps, also where its clock jumps."""

from __future__ import annotations

from typing import Final

LATE: Final = 1.0
"""Seconds by which a timestamp may lie before the latest one and still be that of a late frame."""


class LaneClock:
    """The time of one lane in seconds, from 0 at its first record. It never goes back.

    A timestamp less than a second before the latest one is that of a late frame, and no time has passed. One that
    lies further back is that of a clock that was set: the scene goes on as if a usual frame had come.
    """

    def __init__(self, frame_rate: float) -> None:
        """`frame_rate`: frames a second of records without timestamps."""
        self._usual = 1.0 / frame_rate
        self._now: float | None = None
        self._latest: int | None = None

    def advance(self, timestamp: int | None) -> float:
        """The time of the next record, of which `timestamp` is in milliseconds."""
        if self._now is None:
            self._now, self._latest = 0.0, timestamp
            return self._now
        self._now += self._passed(timestamp)
        return self._now

    def _passed(self, timestamp: int | None) -> float:
        if timestamp is None or self._latest is None:
            self._latest = timestamp if self._latest is None else self._latest
            return self._usual
        seconds = (timestamp - self._latest) / 1000
        if -LATE < seconds < 0:
            return 0.0
        self._latest = timestamp
        return self._usual if seconds < 0 else seconds
