"""The outlines of objects: of the masks of segmentation models, and of turned boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.runners.boxes.detectors.detector import Candidates, Detector
from pipelines.runners.images.opencv import opencv

Array: TypeAlias = npt.NDArray[Any]


def outlines(
    candidates: Candidates, detector: Detector, outputs: Sequence[Array], size: tuple[int, int]
) -> list[Array]:
    """The outline of each object, `(m, 2)`: x and y in pixels of an input of `size`, height and width.

    Of a mask it is that of its largest part, computed within the box only; empty where the mask is. Of a turned box it
    is the four corners. Other detectors give the corners of their upright boxes.
    """
    if detector.task == "segment":
        protos = outputs[detector.outputs[1]]
        return [
            _mask_outline(protos[owner], extra[: protos.shape[1]], corners, size)
            for owner, extra, corners in zip(
                candidates.owner.tolist(), candidates.extra, candidates.corners, strict=True
            )
        ]
    if detector.task == "obb":
        return list(_turned(candidates))
    left, top, right, bottom = candidates.corners.T
    return list(np.stack([left, top, right, top, right, bottom, left, bottom], axis=1).reshape(-1, 4, 2))


def _turned(candidates: Candidates) -> Array:
    """The corners `(n, 4, 2)` of turned boxes: around the centre of the upright one, clockwise from the first."""
    middle = (candidates.corners[:, :2] + candidates.corners[:, 2:]) / 2
    wide, high, angle = candidates.extra[:, -3:].astype(np.float64).T
    along = np.stack([np.cos(angle) * wide, np.sin(angle) * wide], axis=1) / 2
    across = np.stack([-np.sin(angle) * high, np.cos(angle) * high], axis=1) / 2
    return np.stack(
        [middle - along - across, middle + along - across, middle + along + across, middle - along + across], 1
    )


def _mask_outline(protos: Array, coefficients: Array, corners: Array, size: tuple[int, int]) -> Array:
    """The outline of sum(coefficient * prototype) > 0 within a box; prototypes `(32, h, w)` cover the input."""
    _, rows, columns = protos.shape
    scale = np.array([columns / size[1], rows / size[0]])
    left, top = (max(math.floor(place), 0) for place in corners[:2] * scale)
    right, bottom = (
        min(math.ceil(place), most) for place, most in zip(corners[2:] * scale, (columns, rows), strict=True)
    )
    if right <= left or bottom <= top:
        return np.zeros((0, 2))
    part = protos[:, top:bottom, left:right]
    values = np.tensordot(coefficients.astype(np.float32), part.astype(np.float32, copy=False), 1)
    cv2 = opencv()
    # In pixels of the input, where the edge between two cells of the prototypes lies is known better.
    wide, high = round((right - left) / scale[0]), round((bottom - top) / scale[1])
    mask = (cv2.resize(values, (wide, high), interpolation=cv2.INTER_LINEAR) > 0).astype(np.uint8)
    parts, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    if not parts:
        return np.zeros((0, 2))
    largest: Array = max(parts, key=cv2.contourArea)
    places = largest.reshape(-1, 2) + 0.5 + np.array([left, top]) / scale
    clipped: Array = np.clip(places, corners[:2], corners[2:])
    return clipped
