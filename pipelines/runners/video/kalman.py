"""Kalman filters of boxes that move at nearly constant speed, all of them at once, for any time between frames."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Doubles: TypeAlias = npt.NDArray[np.float64]

MEASURED: Final = 0.05
"""Standard deviation of a detector's coordinate, as a fraction of the box's width or height."""
ACCELERATION: Final = np.array([1.0, 1.0, 0.3, 0.3])
"""How much the speed of the centre and of the size wanders within a second, in widths or heights a second."""
FIRST_SPEED: Final = np.array([2.0, 2.0, 0.5, 0.5])
"""Standard deviation of the speed of a box that was seen once, in widths or heights a second."""
SMALLEST: Final = 1e-9


class BoxFilters:
    """N boxes: centre, width and height `(N, 4)`, each number with a speed and a filter of its own.

    Noise is in proportion to a box's width and height, so that fractions and pixels give the same.
    """

    def __init__(self) -> None:
        self._place = np.zeros((0, 4))
        self._speed = np.zeros((0, 4))
        # The covariance of place and speed of each number: two variances and what they have in common.
        self._place_variance = np.zeros((0, 4))
        self._common = np.zeros((0, 4))
        self._speed_variance = np.zeros((0, 4))

    def __len__(self) -> int:
        return len(self._place)

    @property
    def corners(self) -> Doubles:
        """Where the boxes are: `x1, y1, x2, y2`, `(N, 4)`."""
        half = self._place[:, 2:] / 2
        return np.hstack([self._place[:, :2] - half, self._place[:, :2] + half])

    def add(self, corners: Doubles) -> None:
        """Further boxes `(M, 4)`, seen for the first time."""
        place = _centers(corners)
        scale = _scale(place)
        self._place = np.vstack([self._place, place])
        self._speed = np.vstack([self._speed, np.zeros_like(place)])
        self._place_variance = np.vstack([self._place_variance, (MEASURED * scale) ** 2])
        self._common = np.vstack([self._common, np.zeros_like(place)])
        self._speed_variance = np.vstack([self._speed_variance, (FIRST_SPEED * scale) ** 2])

    def keep(self, rows: npt.NDArray[np.bool_]) -> None:
        """Only these boxes."""
        self._place, self._speed = self._place[rows], self._speed[rows]
        self._place_variance, self._common = self._place_variance[rows], self._common[rows]
        self._speed_variance = self._speed_variance[rows]

    def predict(self, seconds: float) -> None:
        """Move all boxes on by so many seconds."""
        wander = (ACCELERATION * _scale(self._place)) ** 2
        self._place = self._place + self._speed * seconds
        self._place[:, 2:] = np.maximum(self._place[:, 2:], SMALLEST)
        self._place_variance = (
            self._place_variance
            + 2 * seconds * self._common
            + seconds**2 * self._speed_variance
            + wander * seconds**3 / 3
        )
        self._common = self._common + seconds * self._speed_variance + wander * seconds**2 / 2
        self._speed_variance = self._speed_variance + wander * seconds

    def correct(self, rows: npt.NDArray[np.int64], corners: Doubles) -> None:
        """These boxes were seen at `corners` `(M, 4)`."""
        seen = _centers(corners)
        variance, common = self._place_variance[rows], self._common[rows]
        total = variance + (MEASURED * _scale(seen)) ** 2
        for_place, for_speed = variance / total, common / total
        error = seen - self._place[rows]
        self._place[rows] += for_place * error
        self._speed[rows] += for_speed * error
        self._place_variance[rows] = np.maximum((1 - for_place) * variance, 0.0)
        self._common[rows] = (1 - for_place) * common
        # Rounding must not make a variance negative where a box suddenly is a fraction of its size.
        self._speed_variance[rows] = np.maximum(self._speed_variance[rows] - for_speed * common, 0.0)

    def hold_size(self, rows: npt.NDArray[np.bool_]) -> None:
        """These boxes were not seen: they move on, and neither grow nor shrink."""
        self._speed[rows, 2:] = 0.0


def _centers(corners: Doubles) -> Doubles:
    size = corners[:, 2:] - corners[:, :2]
    return np.hstack([corners[:, :2] + size / 2, size])


def _scale(place: Doubles) -> Doubles:
    """Width, height, width, height: what the noise of each number is in proportion to."""
    return np.maximum(np.tile(place[:, 2:], 2), SMALLEST)
