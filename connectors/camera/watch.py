"""`Watch`: notices a camera that sends data and no pictures, too few pictures, or always the same one."""

from __future__ import annotations

import time
import zlib
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import av

FIRST_PICTURE: Final = 20.0
"""Seconds that a first picture may take at least: some cameras send a key frame as rarely as that."""
_LOOK: Final = 1.0
_LEARNED: Final = 10.0
"""Seconds of pictures after which a camera's usual rate is known."""
_TRICKLE: Final = 0.1
"""The part of its usual rate below which a camera is stalled."""


class Watch:
    """Watches one connection. Times are seconds on `time.monotonic`; 0 switches a check off.

    `stall`: seconds without a picture, or of less than a tenth of the usual pictures; `frozen`: seconds of the very
    same picture. A lens shows noise: two pictures that are equal in every pixel are one that was sent twice.
    """

    def __init__(self, stall: float, frozen: float) -> None:
        self._stall = stall
        self._frozen = frozen
        self._began = self._last = time.monotonic()
        self._recent: deque[float] = deque()
        self._usual = 0.0
        self._count = 0
        self._looked_at = 0.0
        self._sum: int | None = None
        self._same_since = 0.0

    def trouble(self, corrupt: int) -> str | None:
        """Why the connection is useless, or `None`; called after every packet without a picture. `corrupt`: the number
        of packets that could not be decoded."""
        if not self._stall:
            return None
        silent = time.monotonic() - self._last
        if silent <= (self._stall if self._count else max(self._stall, FIRST_PICTURE)):
            return None
        why = f"; {corrupt} packets could not be decoded, or hold pictures larger than max_pixels" if corrupt else ""
        return f"it sends data, but no picture for {silent:.0f} s{why}"

    def picture(self, frame: av.VideoFrame) -> str | None:
        """Check this picture. Returns why the connection is useless; `None` if it is in order."""
        now = self._last = time.monotonic()
        self._count += 1
        return self._trickle(now) or self._freeze(frame, now)

    @property
    def lasts(self) -> bool:
        """Whether pictures have come for long enough to call the connection good."""
        return bool(self._count) and self._last - self._began >= _LEARNED

    def _trickle(self, now: float) -> str | None:
        if not self._stall:
            return None
        window = 2 * self._stall
        self._recent.append(now)
        while self._recent[0] < now - window:
            self._recent.popleft()
        span = min(window, now - self._began)
        if span < max(window, _LEARNED):
            return None
        rate = len(self._recent) / span
        self._usual = max(self._usual * 0.999, rate)
        # A slow camera may be late once.
        if self._usual * window < 20 or rate >= _TRICKLE * self._usual:
            return None
        return f"only {rate:.1f} pictures a second come, usually {self._usual:.0f}"

    def _freeze(self, frame: av.VideoFrame, now: float) -> str | None:
        if not self._frozen or now - self._looked_at < min(_LOOK, self._frozen / 4):
            return None
        self._looked_at = now
        seen = _checksum(frame)
        if seen != self._sum:
            self._sum, self._same_since = seen, now
            return None
        same = now - self._same_since
        return f"its picture has not changed in any pixel for {same:.0f} s" if same >= self._frozen else None


def _checksum(frame: av.VideoFrame) -> int:
    plane = frame.planes[0]
    lines = np.frombuffer(memoryview(plane), np.uint8)[: plane.height * plane.line_size].reshape(plane.height, -1)
    # The bytes of a line beyond the width are padding of the decoder.
    return zlib.crc32(lines[::2, : plane.width * _bytes_of_pixel(frame.format)].tobytes())


def _bytes_of_pixel(kind: av.VideoFormat) -> int:
    """Bytes of a pixel in the first plane, the brightness, or all colours where they are not apart."""
    return 1 + (kind.components[0].bits > 8) if kind.is_planar else max(kind.padded_bits_per_pixel // 8, 1)
