"""Runs TRACK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.data.data import Data
from pipelines.data.record import RecordContext
from pipelines.data.result import Result
from pipelines.errors import RowsFailed
from pipelines.runners.runner import OpenContext
from pipelines.runners.state.lastrecords import NO_RECORD
from pipelines.runners.video.association import solver
from pipelines.runners.video.boxrows import boxes_of, corners_of
from pipelines.runners.video.kalman import Doubles
from pipelines.runners.video.lanerunner import LaneRunner
from pipelines.runners.video.tracker import Ints, Tracker, TrackerSettings
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
    needs_all: ClassVar[bool] = True

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

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset([self._step.output_name])

    @property
    def types(self) -> Mapping[str, ValueType]:
        return {self._step.output_name: ValueType.LIST}

    def begin(self, record: RecordContext) -> Tracker:
        return Tracker(self._settings, self._ids)

    def checked(self, data: Data) -> tuple[str, list[BoundingBox], Doubles]:
        key, boxes = boxes_of(data, self._step.bbox_name)
        return key, boxes, corners_of(boxes, key)

    def step(self, data: Data, values: tuple[str, list[BoundingBox], Doubles], state: Tracker, now: float) -> Data:
        key, boxes, _ = values
        kept, ids = self._tracked(values, state, now)
        if kept is not boxes:
            data[key] = kept
        data[self._step.output_name] = ids
        return data

    def run_batch(self, batch: Batch) -> Result:
        key = self._step.bbox_name
        if key is None or key == self._step.output_name or key not in batch:
            # The boxes of each record have to be looked for, or are missed.
            return super().run_batch(batch)
        unreadable: dict[int, Exception] = {}
        given = dict(batch.column(key).cells(unreadable))
        if unreadable:
            raise RowsFailed(unreadable, of=batch)
        positions: list[int] = []
        boxes: list[list[BoundingBox]] = []
        ids: list[list[int]] = []
        failed: dict[int, Exception] = {}
        for position in range(batch.size):
            parents = batch.parents(position)
            try:
                values = self.checked(
                    Data.trusted({key: given[position]}) if position in given else batch.row(position)
                )
                state, now = self.moved_on(_record(batch, parents))
                kept, numbers = self._tracked(values, state, now)
            except Exception as error:  # noqa: BLE001 - any exception belongs to that record
                failed.update(dict.fromkeys(parents.tolist(), error))
                continue
            positions.append(position)
            boxes.append(given[position] if kept is values[1] else kept)
            ids.append(numbers)
        columns = {self._step.output_name: Column.of(ids)}
        if any(listed is not given[position] for listed, position in zip(boxes, positions, strict=True)):
            columns[key] = Column.of(boxes)
        emitted = batch if not failed else batch.take(np.array(positions, np.int64))
        return Result(emitted.with_columns(columns), failed)

    def _tracked(
        self, values: tuple[str, list[BoundingBox], Doubles], state: Tracker, now: float
    ) -> tuple[list[BoundingBox], list[int]]:
        """The boxes of a frame, the very list if they are those that came, and the id of each."""
        _, boxes, corners = values
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
            boxes = [box for box, _ in kept] or TypedList(ValueType.BOUNDING_BOX)
        return boxes, [number for _, number in kept] or TypedList(ValueType.INT64)


class _Ids:
    """Numbers from 1, each given once."""

    def __init__(self) -> None:
        self.last = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.last += 1
        return self.last


def _record(batch: Batch, parents: Ints) -> RecordContext:
    """The record that a row came from, the first of several."""
    record = batch.origin.record(int(parents[0])) if batch.origin is not None and len(parents) else None
    return NO_RECORD if record is None else record


def _score(box: BoundingBox) -> float:
    """The probability of a box, 1 where it has none."""
    return 1.0 if box.probability is None else box.probability


def _box(corners: list[float], label: str | None) -> BoundingBox:
    x1, y1, x2, y2 = corners
    return BoundingBox.corners(x1, x2, y1, y2, label)
