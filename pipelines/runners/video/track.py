"""Runs TRACK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from pipelines.data.data import Data
from pipelines.data.record import RecordContext
from pipelines.runners.runner import OpenContext
from pipelines.runners.video.association import solver
from pipelines.runners.video.boxrows import boxes_of, corners_of
from pipelines.runners.video.kalman import Doubles
from pipelines.runners.video.lanerunner import LaneRunner
from pipelines.runners.video.tracker import Tracker, TrackerSettings
from pipelines.steps.video.track import Track
from pipelines.values import BoundingBox, TypedList, ValueType


class TrackRunner(LaneRunner[Tracker]):
    """Puts a list of ids beside the boxes; the tracks of each camera are its own, the ids are of all cameras.

    Fails a row without boxes under the key, with boxes that are not finite, or more of them than `MOST_BOXES`; an empty
    list is a frame in which nothing was seen. Raises `MissingPackageError` when it is opened without `lap`.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True

    def __init__(self, step: Track, context: OpenContext) -> None:
        super().__init__(step.frame_rate, by_key=step.by_key)
        solver()
        self._step = step
        self._settings = TrackerSettings(
            two_stages=step.algorithm == "BYTE_TRACK",
            high=step.high_threshold,
            low=step.low_threshold,
            overlap=step.overlap,
            hits=step.hits,
            max_age=step.max_age,
        )
        self._ids = _Ids()

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._step.bbox_name is None else frozenset([self._step.bbox_name])

    def begin(self, record: RecordContext) -> Tracker:
        return Tracker(self._settings, self._ids)

    def checked(self, data: Data) -> tuple[str, list[BoundingBox], Doubles]:
        key, boxes = boxes_of(data, self._step.bbox_name)
        return key, boxes, corners_of(boxes, key)

    def step(self, data: Data, found: tuple[str, list[BoundingBox], Doubles], state: Tracker, now: float) -> Data:
        key, boxes, corners = found
        scores = np.array([_score(box) for box in boxes], np.float64)
        labels = np.array([box.label for box in boxes], object)
        ids = state.update(corners, scores, labels, now).tolist()
        kept = list(zip(boxes, ids, strict=True))
        if self._step.unconfirmed == "DROP":
            kept = [(box, number) for box, number in kept if number]
        if self._step.coast:
            coasting = state.coasting(self._step.coast)
            kept += zip(map(_box, coasting.corners.tolist(), coasting.labels), coasting.ids.tolist(), strict=True)
        if len(kept) != len(boxes) or self._step.coast:
            data[key] = [box for box, _ in kept] or TypedList(ValueType.BOUNDING_BOX)
        data[self._step.output_name] = [number for _, number in kept] or TypedList(ValueType.INT64)
        return data

    def saved(self) -> dict[str, Any]:
        return {"ids": self._ids.last}

    def load(self, saved: dict[str, Any]) -> None:
        self._ids.last = max(self._ids.last, int(saved["ids"]))


class _Ids:
    """Numbers from 1, each given once."""

    def __init__(self) -> None:
        self.last = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.last += 1
        return self.last


def _score(box: BoundingBox) -> float:
    """The probability of a box, 1 where it has none."""
    return 1.0 if box.probability is None else box.probability


def _box(corners: list[float], label: str | None) -> BoundingBox:
    x1, y1, x2, y2 = corners
    return BoundingBox.corners(x1, x2, y1, y2, label)
