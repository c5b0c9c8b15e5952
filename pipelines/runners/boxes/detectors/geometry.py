"""Boxes between the forms in which models write them, and from a model's input into the picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.views import View
from pipelines.runners.boxes.detectors.detector import BoxForm, Unit

Doubles: TypeAlias = npt.NDArray[np.float64]


def corners_of(boxes: npt.NDArray[Any], form: BoxForm, unit: Unit, size: tuple[int, int]) -> Doubles:
    """Boxes `(n, 4)` of a form as corners x1, y1, x2, y2 in pixels of an input of `size`, height and width."""
    corners: Doubles = boxes.astype(np.float64)
    if form == "y1x1y2x2":
        corners = corners[:, [1, 0, 3, 2]]
    elif form == "cxcywh":
        half = corners[:, 2:] / 2
        corners = np.concatenate([corners[:, :2] - half, corners[:, :2] + half], axis=1)
    elif form == "xywh":
        corners[:, 2:] += corners[:, :2]
    if unit == "fractions":
        high, wide = size
        corners *= (wide, high, wide, high)
    return corners


def upright(boxes: npt.NDArray[Any], angles: npt.NDArray[Any]) -> Doubles:
    """The corners of the smallest upright boxes around turned ones: `(n, 4)` cx, cy, w, h and `(n,)` radians."""
    wide, high = boxes[:, 2].astype(np.float64), boxes[:, 3].astype(np.float64)
    cos, sin = np.abs(np.cos(angles)), np.abs(np.sin(angles))
    half = np.stack([wide * cos + high * sin, wide * sin + high * cos], axis=1) / 2
    return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)


def in_picture(places: Doubles, owner: npt.NDArray[np.int64], views: Sequence[View | None]) -> Doubles:
    """Places in fractions of arrays as places in fractions of their pictures.

    Args:
        places: `(n, 2 * k)`: x, y, x, y, ... in fractions of the array.
        owner: `(n,)`: the row that each belongs to.
        views: The view of each row; a row without one shows its whole picture.
    """
    if all(view is None or view.is_whole for view in views):
        return places
    edges = np.array([(0.0, 0.0, 1.0, 1.0) if view is None else view[:4] for view in views])[owner]
    begin, end = edges[:, :2], edges[:, 2:]
    shape = (len(places), places.shape[1] // 2, 2)
    moved = begin[:, np.newaxis] + (end - begin)[:, np.newaxis] * places.reshape(shape)
    mapped: Doubles = moved.reshape(places.shape)
    return mapped
