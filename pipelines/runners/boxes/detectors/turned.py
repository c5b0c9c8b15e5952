"""How much turned boxes overlap.

Each box counts as the normal distribution that has its centre, size and direction, and the overlap of two is 1 less the
Hellinger distance of their distributions: J. Llerena and others, "Probabilistic Intersection-over-Union for Training
and Evaluation of Oriented Object Detectors", 2021 (arXiv 2106.06072). The exporters of such models suppress by the same
measure; it is 1 for equal boxes, and near 0 for those that lie side by side, however they are turned.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.runners.boxes.detectors.detector import Candidates

Floats: TypeAlias = npt.NDArray[np.floating]

_TINY = 1e-12


def distributions_of(candidates: Candidates) -> Floats:
    """The distributions of turned boxes `(n, 5)`: mean of x and y, variance of x and of y, covariance.

    The last three of the candidates' further numbers are width, height and angle in radians.
    """
    middle = (candidates.corners[:, :2] + candidates.corners[:, 2:]) / 2
    wide, high, angle = candidates.extra[:, -3:].astype(np.float64).T
    # Of a uniform distribution along each side.
    along, across = wide**2 / 12, high**2 / 12
    cos, sin = np.cos(angle), np.sin(angle)
    variances = along * cos**2 + across * sin**2, along * sin**2 + across * cos**2, (along - across) * cos * sin
    return np.stack([*middle.T, *variances], axis=1)


def overlap(box: Floats, others: Floats) -> Floats:
    """The overlap, 0 to 1, of a box `(5,)` with others `(n, 5)`, all as `distributions_of` gives them."""
    x, y = box[0] - others[:, 0], box[1] - others[:, 1]
    xx, yy, xy = (box[at] + others[:, at] for at in (2, 3, 4))
    both = np.maximum(xx * yy - xy**2, _TINY)
    distance = (yy * x**2 + xx * y**2 - 2 * xy * x * y) / (4 * both)
    spread = np.sqrt(np.maximum(_determinant(box) * _determinant(others), _TINY**2))
    # Of Bhattacharyya.
    distance += np.log(np.maximum(both / (4 * spread), _TINY)) / 2
    shared: Floats = 1 - np.sqrt(1 - np.exp(-np.clip(distance, 0, 100)))
    return shared


def _determinant(boxes: Floats) -> Floats:
    determinant: Floats = boxes[..., 2] * boxes[..., 3] - boxes[..., 4] ** 2
    return determinant
