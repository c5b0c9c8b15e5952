"""Zones and lines, and on which side of them a point is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from pipelines.data.record import RecordContext
from pipelines.steps.video.zones import Place

XY: TypeAlias = tuple[float, float]


class Area:
    """A polygon."""

    def __init__(self, points: Sequence[XY]) -> None:
        self._edges = list(zip(points, [*points[1:], points[0]], strict=True))

    def depth(self, point: XY) -> float:
        """How far inside a point is; below zero how far outside."""
        nearest = min(_distance(point, start, end) for start, end in self._edges)
        return nearest if self._holds(point) else -nearest

    def _holds(self, point: XY) -> bool:
        # A ray to the right meets the edges of a polygon an odd number of times from inside.
        x, y = point
        inside = False
        for (x1, y1), (x2, y2) in self._edges:
            if (y1 > y) != (y2 > y) and x < x1 + (y - y1) * (x2 - x1) / (y2 - y1):
                inside = not inside
        return inside


class Gate:
    """A line from one point to another."""

    def __init__(self, start: XY, end: XY) -> None:
        self._start, self._end = start, end
        self._along = (end[0] - start[0], end[1] - start[1])
        self._length = math.hypot(*self._along)

    def side(self, point: XY) -> float:
        """How far to the right of the line, seen from its start, a point is; below zero how far to the left.

        The picture's y goes down. The line counts as endless: points beyond its ends have a side, too.
        """
        return self._cross(point) / self._length

    def passed(self, before: XY, after: XY) -> int:
        """The direction in which the way from one point to the next crosses the line between its ends.

        A point on the line is to its right: ways that follow each other count it once.

        Returns:
            1 from left to right, -1 from right to left, else 0.
        """
        a, b = self._cross(before), self._cross(after)
        if (a < 0) == (b < 0):
            return 0
        part = a / (a - b)
        x = before[0] + part * (after[0] - before[0]) - self._start[0]
        y = before[1] + part * (after[1] - before[1]) - self._start[1]
        place = x * self._along[0] + y * self._along[1]
        if not 0 <= place <= self._length**2:
            return 0
        return 1 if a < 0 else -1

    def _cross(self, point: XY) -> float:
        return self._along[0] * (point[1] - self._start[1]) - self._along[1] * (point[0] - self._start[0])


def place_of(place: Place, record: RecordContext | None) -> bool:
    """Whether the camera of a record, by its topic or its key, has a zone or line."""
    if place.cameras is None:
        return True
    if record is None:
        return False
    return record.topic in place.cameras or (record.key or b"").decode(errors="replace") in place.cameras


def _distance(point: XY, start: XY, end: XY) -> float:
    """From a point to a line between two points."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    square = dx * dx + dy * dy
    part = 0.0 if square == 0 else ((point[0] - start[0]) * dx + (point[1] - start[1]) * dy) / square
    part = min(max(part, 0.0), 1.0)
    return math.hypot(point[0] - start[0] - part * dx, point[1] - start[1] - part * dy)
