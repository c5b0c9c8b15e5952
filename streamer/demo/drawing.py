"""Numbers as the demos print them: curves, durations, percentages."""

from __future__ import annotations

import math
from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"


def curve(values: Sequence[float], top: float | None = None) -> str:
    """Numbers as a line of bars; the highest number, or `top` if given, has a full bar."""
    if top is None:
        top = max((value for value in values if math.isfinite(value)), default=0.0)
    if top <= 0:
        return ""
    return "".join(BARS[min(int(value / top * 7.99), 7)] if math.isfinite(value) else " " for value in values)


def milliseconds(seconds: float) -> str:
    """A duration in seconds as text, in milliseconds."""
    return f"{seconds * 1000:.1f} ms" if math.isfinite(seconds) else "-"


def percent(share: float) -> str:
    """A share between 0 and 1 as text, in percent."""
    return f"{share:.1%}" if math.isfinite(share) else "-"
