"""`Rate`: lets at most a given number of pictures a second through, by their times."""

from __future__ import annotations


class Rate:
    """Chooses pictures so that there are `fps` a second on average, at any rate of the camera.

    Taking every n-th picture would rely on the rate that a camera announces, and be wrong where the rate changes.
    """

    def __init__(self, fps: float) -> None:
        self._period = 1.0 / fps
        self._due: float | None = None

    def wants(self, seconds: float) -> bool:
        """Whether the picture of this time, in seconds that rise, is one of them. A jump of the time begins anew."""
        if self._due is None or abs(seconds - self._due) > 2.0 + 2 * self._period:
            self._due = seconds
        # Half a millisecond: times are rounded on the way.
        if seconds < self._due - 0.0005:
            return False
        self._due += self._period
        if self._due <= seconds:
            # After a gap in the stream the following pictures do not make up for missing ones.
            self._due = seconds + self._period
        return True
