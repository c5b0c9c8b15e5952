"""Pictures with rectangles for the detectors of `detectors`, and how far a box is from what was drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from detectors import COLORS, LABELS

from pipelines import BoundingBox
from pipelines.runners.images.fitting import view_of

HIGH, WIDE = SIZE = (160, 192)
"""Of the models' inputs."""
Corners = tuple[float, float, float, float]


def picture(wide: int, high: int, places: dict[int, Corners] | None = None) -> tuple[Any, dict[str, Corners]]:
    """A gray picture with a rectangle of each class's colour, and where these are in fractions of it."""
    shown = np.full((high, wide, 3), 114, np.uint8)
    truth = {}
    for number, (x1, y1, x2, y2) in (places or {0: (0.15, 0.3, 0.7, 0.8)}).items():
        left, top = int(x1 * wide), int(y1 * high)
        right, bottom = max(int(x2 * wide), left + 1), max(int(y2 * high), top + 1)
        shown[top:bottom, left:right] = COLORS[number][::-1]
        truth[LABELS[number]] = (left / wide, top / high, right / wide, bottom / high)
    return shown, truth


def corners(box: BoundingBox) -> Corners:
    return box.x1, box.y1, box.x2, box.y2


def off(box: BoundingBox, truth: Corners, size: tuple[int, int], fit: str) -> float:
    """By how many pixels of the model's input the edge of a box that is off most is, of what the model could see."""
    view = view_of(*size, WIDE, HIGH, fit)  # type: ignore[arg-type]
    seen = [min(max(place, low), high) for place, low, high in zip(truth, view[:2] * 2, view[2:4] * 2, strict=True)]
    scale = (WIDE / (view.right - view.left), HIGH / (view.bottom - view.top))
    return max(abs(a - b) * factor for a, b, factor in zip(corners(box), seen, scale * 2, strict=True))
