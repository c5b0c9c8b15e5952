"""Whether corners make an area that has one inside."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TypeAlias

XY: TypeAlias = tuple[float, float]


def fault(corners: Sequence[XY]) -> str | None:
    """Why three or more corners in their order enclose no area, or which edges cross; `None` if they are right."""
    if all(_side(corners[0], _other_than(corners[0], corners), corner) == 0 for corner in corners):
        return "its corners lie on one line, so that it has no area"
    edges = list(zip(corners, [*corners[1:], corners[0]], strict=True))
    for edge, other in combinations(edges, 2):
        if _cross(edge, other):
            return (
                f"the edge from {_shown(edge[0])} to {_shown(edge[1])} crosses that from {_shown(other[0])} to "
                f"{_shown(other[1])}; list the corners in the order in which one walks around it"
            )
    return None


def _other_than(corner: XY, corners: Sequence[XY]) -> XY:
    return next((other for other in corners if other != corner), corner)


def _side(start: XY, end: XY, point: XY) -> float:
    """Above zero on one side of the line from `start` to `end`, below on the other, zero on it."""
    return (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (point[0] - start[0])


def _cross(edge: tuple[XY, XY], other: tuple[XY, XY]) -> bool:
    """Whether these edges cross between their ends; those that only touch do not."""
    return _side(*edge, other[0]) * _side(*edge, other[1]) < 0 and _side(*other, edge[0]) * _side(*other, edge[1]) < 0


def _shown(point: XY) -> str:
    return f"[{point[0]:g}, {point[1]:g}]"
