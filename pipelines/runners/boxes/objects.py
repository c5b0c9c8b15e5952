"""`Objects`: what a detector sees in the pictures of a batch, and the values that records get of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import Column, ObjectColumn
from pipelines.data.views import View
from pipelines.runners.boxes.detectors.geometry import in_picture
from pipelines.values import BoundingBox, Point, TypedList, ValueType

Ints: TypeAlias = npt.NDArray[np.int64]
Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Objects:
    """n objects, picture after picture: `owner` never falls, and those of a picture come by falling score."""

    owner: Ints
    """`(n,)`: the position of the picture."""
    corners: Doubles
    """`(n, 4)`: x1, y1, x2, y2."""
    score: npt.NDArray[np.float32]
    """`(n,)`: probability."""
    number: Ints
    """`(n,)`: class, counted from 0."""
    keypoints: Doubles | None = None
    """`(n, k, 3)`: x, y and visibility."""
    outlines: list[Doubles] | None = None
    """n polygons `(m, 2)`."""

    def __len__(self) -> int:
        return len(self.owner)

    def take(self, index: Ints) -> Objects:
        """Those at these positions."""
        outlines = None if self.outlines is None else [self.outlines[place] for place in index.tolist()]
        keypoints = None if self.keypoints is None else self.keypoints[index]
        return Objects(
            self.owner[index], self.corners[index], self.score[index], self.number[index], keypoints, outlines
        )

    def later(self, pictures: int) -> Objects:
        """The same objects in pictures that come behind so many others."""
        return self if not pictures else self.owned(self.owner + pictures)

    @staticmethod
    def concat(parts: Sequence[Objects]) -> Objects:
        """All of them, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        first = parts[0]
        return Objects(
            np.concatenate([part.owner for part in parts]),
            np.concatenate([part.corners for part in parts]),
            np.concatenate([part.score for part in parts]),
            np.concatenate([part.number for part in parts]),
            None if first.keypoints is None else np.concatenate([_there(part.keypoints) for part in parts]),
            None if first.outlines is None else [line for part in parts for line in part.outlines or ()],
        )

    def owned(self, owner: Ints) -> Objects:
        """The same objects as those of other rows."""
        return replace(self, owner=owner)

    def in_pictures(self, views: Sequence[View | None], size: tuple[int, int]) -> Objects:
        """From pixels of arrays of `size`, height and width, to fractions of the pictures that these views show.

        They are cut off at the pictures' edges; objects in the margin around a picture only are left out.
        """
        unit = np.array([size[1], size[0]], np.float64)

        def moved(places: Doubles, owner: Ints) -> Doubles:
            fractions = places / np.tile(unit, places.shape[1] // 2)
            return np.clip(in_picture(fractions, owner, views), 0.0, 1.0)

        corners = moved(self.corners, self.owner)
        keypoints, outlines = self.keypoints, self.outlines
        if keypoints is not None:
            places = moved(keypoints[..., :2].reshape(len(keypoints), 2 * keypoints.shape[1]), self.owner)
            keypoints = np.concatenate([places.reshape(*keypoints.shape[:2], 2), keypoints[..., 2:]], axis=2)
        if outlines:
            lengths = [len(line) for line in outlines]
            places = moved(np.concatenate(outlines), np.repeat(self.owner, lengths))
            outlines = np.split(places, np.cumsum(lengths)[:-1])
        made = Objects(self.owner, corners, self.score, self.number, keypoints, outlines)
        inside = (corners[:, :2] < corners[:, 2:]).all(axis=1)
        return made if inside.all() else made.take(np.flatnonzero(inside))

    def boxes(self, labels: Sequence[str] | None) -> list[BoundingBox]:
        """A box of each object; without labels a class has its number as label."""
        numbers = self.number.tolist()
        names = list(map(str, numbers)) if labels is None else [labels[number] for number in numbers]
        rounded = self.corners.astype(np.float32).tolist()
        return list(map(_box, rounded, names, self.score.tolist()))

    def points(self) -> list[list[Point]]:
        """The keypoints of each object."""
        assert self.keypoints is not None
        return [[Point((x, y), None, seen) for x, y, seen in points] for points in self.keypoints.tolist()]

    def polygons(self) -> list[list[Point]]:
        """The outline of each object."""
        assert self.outlines is not None
        return [[Point(place) for place in line.tolist()] for line in self.outlines]


def lists_of(values: Iterable[Any], owner: Ints, size: int, kind: ValueType) -> Column:
    """One list for each of `size` rows, of elements of this type; `owner` says whose each value is, and never falls."""
    listed = list(values)
    ends = np.searchsorted(owner, np.arange(size), side="right").tolist()
    starts = [0, *ends][:size]
    lists = [listed[start:end] or TypedList(kind) for start, end in zip(starts, ends, strict=True)]
    return ObjectColumn(lists, ValueType.LIST)


def _box(corners: list[float], label: str, score: float) -> BoundingBox:
    x1, y1, x2, y2 = corners
    box = BoundingBox.corners(x1, x2, y1, y2, label, score)
    box.narrow = True
    return box


def _there(keypoints: Doubles | None) -> Doubles:
    assert keypoints is not None
    return keypoints
