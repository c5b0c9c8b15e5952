"""Non-maximum suppression: of boxes that show the same thing the best stays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def survivors(
    corners: npt.NDArray[np.floating], scores: npt.NDArray[np.floating], groups: npt.NDArray[np.int64], limit: float
) -> npt.NDArray[np.bool_]:
    """Which boxes stay, `bool (n,)`.

    `corners` is `(n, 4)`: x1, y1, x2, y2; `scores` and `groups` are `(n,)`. Within each group the boxes are gone
    through from the highest score down (equal ones in their order): one that overlaps a box that stays by more than
    `limit` (area of the intersection / area of the union) goes.
    """
    stays = np.zeros(len(scores), np.bool_)
    for group in np.unique(groups).tolist():
        members = np.flatnonzero(groups == group)
        waiting = members[np.argsort(-scores[members], kind="stable")]
        while len(waiting):
            best, rest = waiting[0], waiting[1:]
            stays[best] = True
            waiting = rest[_overlap(corners[best], corners[rest]) <= limit]
    return stays


def _overlap(one: npt.NDArray[np.floating], others: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    sides = np.minimum(one[2:], others[:, 2:]) - np.maximum(one[:2], others[:, :2])
    shared = np.prod(np.clip(sides, 0, None), axis=1)
    union = np.prod(one[2:] - one[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - shared
    # Two boxes without area have a union of 0 and share nothing.
    share: npt.NDArray[np.floating] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return share
