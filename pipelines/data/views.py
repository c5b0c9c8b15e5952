"""`View`: which part of its picture an array shows, so that places in the array become places in the picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class View(NamedTuple):
    """Where the edges of an array lie in fractions of the picture that it was made of, and its size in pixels.

    A padded picture reaches beyond 0..1, a cropped one stays inside. A place in fractions of the array is at
    `left + (right - left) * x`, `top + (bottom - top) * y` of the picture.
    """

    left: float
    top: float
    right: float
    bottom: float
    wide: int
    """Width of the array in pixels."""
    high: int
    """Height of the array in pixels."""

    @property
    def is_whole(self) -> bool:
        """Whether fractions of the array are those of the picture."""
        return self[:4] == (0.0, 0.0, 1.0, 1.0)


Views = Sequence[View | None]
"""The view of each row; `None` for a row whose arrays are not known to show a picture."""


def or_none(views: Views | None) -> Views | None:
    """`views`, or `None` if no row has a view."""
    return views if views is not None and any(view is not None for view in views) else None


def agreed(views: Iterable[View | None]) -> View | None:
    """The view that all of these agree on, those that are `None` left out; `None` if two differ, or there is none."""
    known = {view for view in views if view is not None}
    return known.pop() if len(known) == 1 else None
