"""Non-maximum suppression: of boxes that show the same thing the best stays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Overlap: TypeAlias = Callable[[npt.NDArray[np.floating], npt.NDArray[np.floating]], npt.NDArray[np.floating]]
"""How much a box overlaps each of others, 0 to 1."""


def intersection_over_union(
    box: npt.NDArray[np.floating], others: npt.NDArray[np.floating]
) -> npt.NDArray[np.floating]:
    """The area that a box `(4,)` shares with each of others `(n, 4)`, x1, y1, x2, y2, over that of both together."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.clip(sides, 0, None), axis=1)
    union = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - shared
    # Two boxes without area have a union of 0 and share nothing.
    share: npt.NDArray[np.floating] = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return share


def survivors(
    boxes: npt.NDArray[np.floating],
    scores: npt.NDArray[np.floating],
    groups: npt.NDArray[np.int64],
    limit: float,
    overlap: Overlap = intersection_over_union,
) -> npt.NDArray[np.bool_]:
    """Which boxes stay, `bool (n,)`.

    `boxes` is `(n, 4)`, x1, y1, x2, y2, or what `overlap` takes; `scores` and `groups` (0 or more) are `(n,)`. Within
    each group the boxes are gone through from the highest score down (equal ones in their order): one that overlaps a
    box that stays by more than `limit` goes.
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
            goes = overlap(boxes[best], boxes[rest]) > limit
            stays[rest[goes]] = False
            waiting = rest[~goes]
    return stays
