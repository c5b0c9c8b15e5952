"""The best of the boxes that a decoder read: one of each object, the most probable first."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.runners.boxes.detectors.detector import Candidates
from pipelines.runners.boxes.detectors.turned import distributions_of, overlap
from pipelines.runners.boxes.suppression import survivors
from pipelines.runners.images.opencv import opencv

Numbers: TypeAlias = npt.NDArray[np.int64]


def best(
    candidates: Candidates, *, classes: int, limit: float | None, agnostic: bool, most: int, turned: bool = False
) -> Candidates:
    """Those that stay, by picture, in each picture the most probable first (equal ones in their order).

    Args:
        candidates: Of the whole batch.
        classes: More than the highest class number.
        limit: Of two boxes of a picture and class whose intersection / union is larger, the less probable one goes
            (non-maximum suppression, `suppression.survivors`); `None`: all stay.
        agnostic: Whether boxes of different classes count as boxes of one.
        most: How many boxes of a picture stay at most.
        turned: Whether they are turned boxes, with width, height and angle as their last further numbers: these overlap
            as `turned.overlap` says.
    """
    if limit is not None and len(candidates) > 1:
        groups = candidates.owner if agnostic else candidates.owner * classes + candidates.number
        if turned:
            stays = survivors(distributions_of(candidates), candidates.score, groups, limit, overlap)
            candidates = candidates.take(stays)
        else:
            candidates = candidates.take(_survivors(candidates, groups, limit))
    order = np.lexsort((-candidates.score, candidates.owner))
    owner = candidates.owner[order]
    # The place of each box among those of its picture.
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner)
    return candidates.take(order[rank < most])


def _survivors(candidates: Candidates, groups: Numbers, limit: float) -> Numbers:
    """Positions of those that stay, rising: one call of OpenCV for all pictures and classes."""
    corners = candidates.corners
    boxes = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
    # Groups are numbered anew, as OpenCV takes int32.
    _, group = np.unique(groups, return_inverse=True)
    stays = opencv().dnn.NMSBoxesBatched(boxes, candidates.score, group.astype(np.int32), -1.0, limit)
    return np.sort(np.asarray(stays, np.int64))
