"""What the decoders of all layouts share: from numbers of boxes to `Candidates`."""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, RowsFailed
from pipelines.runners.boxes.detectors.detector import Candidates, Detector
from pipelines.runners.boxes.detectors.geometry import corners_of, upright
from pipelines.runners.boxes.detectors.given import Size

Array: TypeAlias = npt.NDArray[Any]
Numbers: TypeAlias = npt.NDArray[np.int64]

_MOST: Final = 1.001
"""Above this a score is no probability, whatever it was rounded to."""
_FAR: Final = 1e6
"""No model has so many classes."""


def candidates_of(
    detector: Detector, size: Size, owner: Numbers, boxes: Array, score: Array, number: Numbers, extra: Array | None
) -> Candidates:
    """Boxes `(n, 4)` in the detector's form, with what belongs to them, as candidates.

    Boxes that are not finite or have no area are left out. Raises `RowsFailed` for pictures with scores above 1.
    """
    check_scores(owner, score)
    extra = np.zeros((len(owner), 0), np.float32) if extra is None else extra.astype(np.float32, copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        if detector.task == "obb":
            corners = upright(boxes, extra[:, -1])
            # Width and height are those of the turned box, which its outline is made of.
            extra = np.concatenate([boxes[:, 2:4].astype(np.float32), extra[:, -1:]], axis=1)
        else:
            corners = corners_of(boxes, detector.box, detector.unit, size)
        good: npt.NDArray[np.bool_] = np.all(np.isfinite(corners), axis=1) & np.isfinite(score)
        good &= np.all(corners[:, 2:] > corners[:, :2], axis=1)
    made = Candidates(
        owner.astype(np.int64, copy=False),
        corners,
        score.astype(np.float32, copy=False),
        number.astype(np.int64, copy=False),
        extra,
    )
    return made if good.all() else made.take(good, left_out=int((~good).sum()))


def check_scores(owner: Numbers, score: Array) -> None:
    """Raise `RowsFailed` for the pictures of which a score is above 1."""
    wrong = np.flatnonzero(score > _MOST)
    if len(wrong):
        rows, first = np.unique(owner[wrong], return_index=True)
        raise RowsFailed(
            {
                int(row): DataError(f"{float(score[wrong[at]]):.6g} is no probability: another layout, or activation")
                for row, at in zip(rows, first, strict=True)
            }
        )


def class_numbers(classes: Array, detector: Detector) -> Numbers:
    """Class numbers that a model gives, counted from 0; far below 0 for what is no number."""
    known = np.clip(np.nan_to_num(classes.astype(np.float64), nan=-_FAR), -_FAR, _FAR)
    return np.rint(known).astype(np.int64) - detector.first_class


def least(detector: Detector, threshold: float) -> float:
    """The score, before its activation, whose probability is `threshold`."""
    if detector.activation != "SIGMOID":
        return threshold
    if threshold <= 0:
        return -math.inf
    return math.inf if threshold >= 1 else math.log(threshold / (1 - threshold))


def reaching(scores: Array, limit: float) -> tuple[Any, ...]:
    """The positions of the scores that are at least `limit`, and of those that are not a number: these are counted."""
    return np.nonzero(~(scores < limit))


def probabilities(detector: Detector, scores: Array) -> Array:
    """The probabilities of scores after `SIGMOID`; scores as they are where it is not the detector's activation."""
    if detector.activation != "SIGMOID":
        return scores
    with np.errstate(over="ignore"):
        made: Array = 1 / (1 + np.exp(-scores.astype(np.float64)))
    return made


def softmax(scores: Array) -> Array:
    """Scores `(N, n, C)` as probabilities that are 1 in all for each box; no number where a score is infinite."""
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    made: Array = powers / powers.sum(axis=2, keepdims=True)
    return made
