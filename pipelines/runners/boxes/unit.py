"""Boxes in pixels, where fractions of the picture are needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipelines.errors import DataError
from pipelines.values import BoundingBox

WIDEST: Final = 2.0
"""A box outside the picture with a larger width or height, as a fraction of the picture's, must be in pixels."""


def in_pixels(box: BoundingBox) -> bool:
    """Whether a box can only be in pixels: as fractions it would lie beside the picture, and be larger than it."""
    beside = (
        max(box.x1, box.x2) <= 0 or min(box.x1, box.x2) >= 1 or max(box.y1, box.y2) <= 0 or min(box.y1, box.y2) >= 1
    )
    return beside and max(abs(box.x2 - box.x1), abs(box.y2 - box.y1)) > WIDEST


def check_fractions(boxes: Iterable[BoundingBox], key: str, step: str) -> None:
    """Raise `DataError` for a box in pixels."""
    for box in boxes:
        if in_pixels(box):
            raise DataError(said_of_pixels(box, key, step))


def said_of_pixels(box: BoundingBox, key: str, step: str) -> str:
    """The error text about a box in pixels where fractions are needed."""
    return (
        f'"{key}" has {box!r}, which is in pixels, it seems: {step} takes fractions of the picture '
        "(x divided by its width, y by its height)"
    )
