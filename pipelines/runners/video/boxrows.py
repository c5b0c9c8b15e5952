"""The boxes of a record as columns."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from pipelines.data.data import Data
from pipelines.errors import DataError, WrongTypeError
from pipelines.runners.images.fields import boxes_key, listed
from pipelines.runners.images.homography import FARTHEST
from pipelines.runners.video.kalman import Doubles
from pipelines.values import BoundingBox

MOST_BOXES: Final = 1000
"""Boxes of a frame at most: comparing each with each takes time and memory that grow with their square."""


def boxes_of(data: Data, key: str | None, ids_name: str | None = None) -> tuple[str, list[BoundingBox]]:
    """The key and the list of a record's boxes. Raises `DataError` for more than `MOST_BOXES`.

    `ids_name` is not looked at where no key is given: a list of ids that is empty could be one of boxes.
    """
    others = data if ids_name is None else Data.trusted({name: data[name] for name in data if name != ids_name})
    key = boxes_key(others if key is None else data, key)
    boxes = listed(data[key])
    if len(boxes) > MOST_BOXES:
        raise DataError(f'"{key}" has {len(boxes)} boxes, more than {MOST_BOXES}; raise the threshold of the detector')
    return key, boxes


def corners_of(boxes: list[BoundingBox], key: str) -> Doubles:
    """`x1, y1, x2, y2` of each box, `(N, 4)`, in their order.

    Raises `DataError` for numbers that are not finite, or farther from 0 than `FARTHEST`.
    """
    corners = np.array([(box.x1, box.y1, box.x2, box.y2) for box in boxes], np.float64).reshape(len(boxes), 4)
    fits = np.abs(corners) <= FARTHEST
    if not fits.all():
        wrong = int(np.flatnonzero(~fits.all(axis=1))[0])
        raise DataError(f'box {wrong} of "{key}" is {boxes[wrong]!r}: its numbers have to be finite, and below 1e9')
    if (corners[:, :2] > corners[:, 2:]).any():
        return np.hstack([np.minimum(corners[:, :2], corners[:, 2:]), np.maximum(corners[:, :2], corners[:, 2:])])
    return corners


def ids_of(data: Data, key: str, boxes: list[BoundingBox], boxes_name: str) -> list[int]:
    """The ids of a record's boxes. Raises `ValueNotFoundError` without them, `DataError` unless each box has one."""
    ids: Any = data[key]
    if not isinstance(ids, list) or any(isinstance(number, bool) or not isinstance(number, int) for number in ids):
        raise WrongTypeError(f'"{key}" has to be a list of integers, the ids that TRACK gives')
    if len(ids) != len(boxes):
        raise DataError(f'"{key}" has {len(ids)} ids, but "{boxes_name}" {len(boxes)} boxes: there is one for each')
    return ids
