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
PLACE, SPEED, PLACE_VARIANCE, COMMON, SPEED_VARIANCE = range(5)


class BoxFilters:
    """N boxes: centre, width and height `(N, 4)`, each number with a speed and a filter of its own.

    Noise is in proportion to a box's width and height, so that fractions and pixels give the same.
    """

    def __init__(self) -> None:
        # Place and speed, and their covariance: the two variances and the covariance between; `(5, N, 4)`.
        self._state = np.zeros((5, 0, 4))

    def __len__(self) -> int:
        return self._state.shape[1]

    @property
    def corners(self) -> Doubles:
        """Where the boxes are: `x1, y1, x2, y2`, `(N, 4)`."""
        place = self._state[PLACE]
        corners: Doubles = np.empty_like(place)
        np.multiply(place[:, 2:], 0.5, out=corners[:, 2:])
        np.subtract(place[:, :2], corners[:, 2:], out=corners[:, :2])
        corners[:, 2:] += place[:, :2]
        return corners

    def add(self, corners: Doubles) -> None:
        """Further boxes `(M, 4)`, seen for the first time."""
        new = np.zeros((5, len(corners), 4))
        new[PLACE] = _centers(corners)
        scale = _scale(new[PLACE])
        new[PLACE_VARIANCE] = (MEASURED * scale) ** 2
        new[SPEED_VARIANCE] = (FIRST_SPEED * scale) ** 2
        self._state = np.concatenate([self._state, new], axis=1)

    def keep(self, rows: npt.NDArray[np.bool_]) -> None:
        """Keep these boxes and drop the others."""
        self._state = self._state[:, rows]

    def predict(self, seconds: float) -> None:
        """Move all boxes on by so many seconds."""
        place, speed, place_variance, common, speed_variance = self._state
        wander = (ACCELERATION * _scale(place)) ** 2
        place += speed * seconds
        np.maximum(place[:, 2:], SMALLEST, out=place[:, 2:])
        place_variance += (2 * seconds) * common + seconds**2 * speed_variance + wander * (seconds**3 / 3)
        common += seconds * speed_variance + wander * (seconds**2 / 2)
        speed_variance += wander * seconds

    def correct(self, rows: npt.NDArray[np.int64], corners: Doubles) -> None:
        """These boxes were seen at `corners` `(M, 4)`."""
        seen = _centers(corners)
        place, speed, variance, common, speed_variance = state = self._state[:, rows]
        total = variance + (MEASURED * _scale(seen)) ** 2
        for_place, for_speed = variance / total, common / total
        error = seen - place
        place += for_place * error
        speed += for_speed * error
        # Rounding must not make a variance negative where a box suddenly is a fraction of its size.
        np.maximum(speed_variance - for_speed * common, 0.0, out=speed_variance)
        np.maximum((1 - for_place) * variance, 0.0, out=variance)
        common *= 1 - for_place
        self._state[:, rows] = state

    def hold_size(self, rows: npt.NDArray[np.bool_]) -> None:
        """These boxes were not seen: they move on, and neither grow nor shrink."""
        self._state[SPEED, rows, 2:] = 0.0


def _centers(corners: Doubles) -> Doubles:
    centers = np.empty_like(corners)
    np.subtract(corners[:, 2:], corners[:, :2], out=centers[:, 2:])
    np.add(corners[:, :2], centers[:, 2:] / 2, out=centers[:, :2])
    return centers


def _scale(place: Doubles) -> Doubles:
    """Width, height, width, height: the noise of each number is proportional to them."""
    return np.maximum(place[:, [2, 3, 2, 3]], SMALLEST)
