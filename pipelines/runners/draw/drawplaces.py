"""Zones and lines drawn into a picture, with their counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from pipelines.data.data import Data
from pipelines.errors import DataError
from pipelines.runners.draw.canvas import draw_text
from pipelines.runners.images.colors import Color
from pipelines.runners.images.opencv import opencv
from pipelines.runners.video.places import place_of
from pipelines.steps.video.zones import Line, Zone
from pipelines.values.pixels import Pixels

ARROW: Final = 0.05
"""Length of the arrow at a line, as a fraction of the longer side of the picture."""
FARTHEST: Final = 32_000
"""Pixels from the left top corner to a point that is drawn at most: OpenCV's coordinates are bounded."""

Spot: TypeAlias = tuple[int, int]


class Places:
    """Draws the zones and lines of the camera that a record is of."""

    def __init__(
        self, zones: Mapping[str, Zone], lines: Mapping[str, Line], chosen: Color, counts_name: str | None
    ) -> None:
        self._zones = zones
        self._lines = lines
        self._color = chosen
        self._counts_name = counts_name

    def draw(self, picture: Pixels, data: Data) -> None:
        """Draw into the picture. Raises `ValueNotFoundError` or `WrongTypeError` for counts that are not there."""
        cv2 = opencv()
        counts: Mapping[str, Any] = {} if self._counts_name is None else data.get_data(self._counts_name)
        for name, zone in self._zones.items():
            if place_of(zone, data.record):
                corners = [_spot(point, picture) for point in zone.points]
                cv2.polylines(picture, [np.array(corners, np.int32)], True, self._color, 1, cv2.LINE_AA)
                self._name(picture, name, counts, ("inside",), min(corners, key=lambda spot: (spot[1], spot[0])))
        for name, line in self._lines.items():
            if place_of(line, data.record):
                start, end = _spot(line.start, picture), _spot(line.end, picture)
                cv2.line(picture, start, end, self._color, 1, cv2.LINE_AA)
                self._arrow(picture, start, end)
                self._name(picture, name, counts, ("in", "out"), start)

    def _arrow(self, picture: Pixels, start: Spot, end: Spot) -> None:
        """From the middle of a line to its right, seen from its start: the way that is `in`."""
        cv2 = opencv()
        across, down = end[0] - start[0], end[1] - start[1]
        length = math.hypot(across, down)
        if not length:
            return
        size = ARROW * max(picture.shape[:2])
        middle = ((start[0] + end[0]) // 2, (start[1] + end[1]) // 2)
        tip = (round(middle[0] - down / length * size), round(middle[1] + across / length * size))
        cv2.arrowedLine(picture, middle, tip, self._color, 1, cv2.LINE_AA, 0, 0.4)

    def _name(self, picture: Pixels, name: str, counts: Mapping[str, Any], keys: tuple[str, ...], spot: Spot) -> None:
        counted = counts.get(name)
        if counted is None:
            text = name
        elif isinstance(counted, Data) and all(key in counted for key in keys):
            text = f"{name} " + " ".join(
                str(counted[key]) if key == "inside" else f"{key} {counted[key]}" for key in keys
            )
        else:
            raise DataError(
                f'"{self._counts_name}" has no {", ".join(keys)} for "{name}"; it has to be as ZONES gives it'
            )
        draw_text(picture, text, spot[0], spot[1], self._color)


def _spot(point: tuple[float, float], picture: Pixels) -> Spot:
    height, width = picture.shape[:2]
    x, y = (min(max(place, -FARTHEST), FARTHEST) for place in (point[0] * width, point[1] * height))
    return round(x), round(y)
