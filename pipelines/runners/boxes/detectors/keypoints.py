"""The keypoints of boxes of pose models."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.runners.boxes.detectors.detector import Candidates, Detector


def keypoints(candidates: Candidates, detector: Detector) -> npt.NDArray[Any]:
    """The keypoints of each box, `(n, k, 3)`: x and y in pixels of the input, and visibility, 1 where none is given.

    A detector without keypoints gives `(n, 0, 3)`.
    """
    if detector.keypoints is None:
        return np.zeros((len(candidates), 0, 3))
    count, numbers = detector.keypoints
    made = candidates.extra.reshape(len(candidates), count, numbers).astype(np.float64)
    if numbers == 3:
        return made
    return np.concatenate([made, np.ones((len(candidates), count, 1))], axis=2)
