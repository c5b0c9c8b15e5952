"""The perspective transformation that maps four points to four others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError
from pipelines.values import Point

Corners: TypeAlias = npt.NDArray[np.float64]
"""`(4, 2)`: x and y of the top left, top right, bottom left, bottom right corner."""
FARTHEST: Final = 1e9
"""How far from 0 a coordinate may be: pixels are counted in 32 bits, and areas and products are still exact enough."""
Homography: TypeAlias = npt.NDArray[np.float64]


def corners_of(points: Sequence[Point], what: str) -> Corners:
    """Four points as an array.

    Raises `DataError` for another number, points without two coordinates, and numbers that are not finite or farther
    from 0 than `FARTHEST`.
    """
    if len(points) != 4 or any(not isinstance(point, Point) or point.dimensions != 2 for point in points):
        raise DataError(
            f"{what}: four points with two coordinates are needed (top left, top right, bottom left, bottom right), "
            f"{len(points)} values are given"
        )
    corners = np.array([point.coords for point in points], np.float64)
    if not (np.abs(corners) <= FARTHEST).all():
        raise DataError(f"{what} are {corners.tolist()}: their numbers have to be finite, and below 1e9")
    return corners


def homography(source: Corners, target: Corners) -> Homography:
    """The matrix `(3, 3)` that maps `source` to `target`; element (2, 2) is 1.

    Raises `DataError` where there is none: three of the points on a line.
    """
    # Single precision as in Konduit Serving, so that the same definition gives the same picture.
    source, target = source.astype(np.float32).astype(np.float64), target.astype(np.float32).astype(np.float64)
    equations = np.zeros((8, 8))
    for row, ((x, y), (u, v)) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        equations[row] = [x, y, 1, 0, 0, 0, -x * u, -y * u]
        equations[row + 4] = [0, 0, 0, x, y, 1, -x * v, -y * v]
    try:
        solution = np.linalg.solve(equations, np.concatenate([target[:, 0], target[:, 1]]))
    except np.linalg.LinAlgError:
        solution = np.full(8, np.nan)
    if not np.isfinite(solution).all():
        raise DataError(f"the points {source.tolist()} cannot be mapped to {target.tolist()}: three are on a line")
    return np.append(solution, 1.0).reshape(3, 3)


def mapped(matrix: Homography, points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Points `(n, 2)` mapped by a matrix `(3, 3)`. Raises `DataError` for a point that has no finite image."""
    projected = np.concatenate([points, np.ones((len(points), 1))], axis=1) @ matrix.T
    if (np.abs(projected[:, 2]) < 1e-12).any():
        raise DataError("the transformation maps a point to infinity; check the source and target points")
    flat: npt.NDArray[np.float64] = projected[:, :2] / projected[:, 2:]
    return flat


def upright(source: Corners) -> Corners:
    """A rectangle for a quadrilateral: as wide and high as its longer sides, near its top left corner.

    Where that corner lies beyond half the width, it is mirrored to the left, as in Konduit Serving (which takes the
    height for the width and the width for the height).
    """
    top_left, top_right, bottom_left, bottom_right = source
    width = max(_distance(top_left, top_right), _distance(bottom_left, bottom_right))
    height = max(_distance(top_left, bottom_left), _distance(top_right, bottom_right))
    x = top_left[0] if top_left[0] <= width / 2 else width - top_left[0]
    y = top_left[1] if top_left[1] <= height / 2 else height - top_left[1]
    return np.array([(x, y), (x + width, y), (x, y + height), (x + width, y + height)])


def frame(width: float, height: float) -> Corners:
    """The corners of an image."""
    return np.array([(0, 0), (width, 0), (0, height), (width, height)], np.float64)


def _distance(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> float:
    return float(np.hypot(*(a - b)))
