"""Non-maximum suppression: of boxes that show the same thing the best stays."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt


def survivors(
    corners: npt.NDArray[np.floating], scores: npt.NDArray[np.floating], groups: npt.NDArray[np.int64], limit: float
) -> npt.NDArray[np.bool_]:
    """Which boxes stay, `bool (n,)`.

    `corners` is `(n, 4)`: x1, y1, x2, y2; `scores` and `groups` (0 or more) are `(n,)`. Within each group the boxes are
    gone through from the highest score down (equal ones in their order): one that overlaps a box that stays by more
    than `limit` (area of the intersection / area of the union) goes.
    """
    stays = np.ones(len(scores), np.bool_)
    order = np.lexsort((-scores, groups))
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1, append=-1)).tolist()
    for start, end in itertools.pairwise(starts):
        if end - start == 1:
            continue
        waiting = order[start:end]
        while len(waiting) > 1:
            best, rest = waiting[0], waiting[1:]
            goes = _overlap(corners[best], corners[rest]) > limit
            stays[rest[goes]] = False
            waiting = rest[~goes]
    return stays


def _overlap(box: npt.NDArray[np.floating], others: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.clip(sides, 0, None), axis=1)
    union = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - shared
    # Two boxes without area have a union of 0 and share nothing.
    share: npt.NDArray[np.floating] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return share
