"""Runs DETECT."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.data.views import View
from pipelines.errors import DataError, RowsFailed, StreamerError, WrongTypeError
from pipelines.runners.boxes.detectormodel import DetectorModel
from pipelines.runners.boxes.objectreader import with_objects, written_keys
from pipelines.runners.boxes.objects import Ints, Objects, lists_of
from pipelines.runners.boxes.unit import check_fractions
from pipelines.runners.images.fields import holds, listed
from pipelines.runners.images.imagearrays import Picture, prepared, stacked, viewed
from pipelines.runners.images.imagecolumns import image_values, of_key, only_image_keys, over_parts
from pipelines.runners.images.outputmemory import OutputMemory
from pipelines.runners.models.arrays import array_column
from pipelines.runners.runner import OpenContext, Runner
from pipelines.runners.video.boxrows import corners_of
from pipelines.steps.boxes.detect import Detect
from pipelines.values import Image, ValueType, type_of

Corners: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom in fractions of a picture."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """A picture for the model."""

    row: int
    part: int
    """The position of the region that it shows among those of its record."""
    picture: Picture
    view: View
    """What the array shows of the record's picture."""


class DetectRunner(Runner):
    """Runs the model on the pictures of all records together, and puts lists of boxes beside them.

    Fails a row without an image, with several of them, with a list of images, with one that cannot be decoded, and one
    for which the model gives scores that are no probabilities. `close` frees the model.
    """

    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True

    def __init__(self, step: Detect, context: OpenContext) -> None:
        self._step = step
        self._model = DetectorModel(step, context)
        self._config = self._model.config
        self._memory = OutputMemory()
        self._most_records: int | None = None
        try:
            self._model.start()
        except BaseException:
            self._model.close()
            raise

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._step.image_name is None else needed(self._step)

    @property
    def needs(self) -> frozenset[str]:
        return needed(self._step)

    @property
    def gives(self) -> frozenset[str] | None:
        return written(self._step)

    @property
    def types(self) -> Mapping[str, ValueType]:
        return dict.fromkeys(self.gives or (), ValueType.LIST)

    def limit(self, records: int) -> bool:
        self._most_records = records
        return True

    def close(self) -> None:
        self._model.close()

    def run_batch(self, batch: Batch) -> Result:
        return Result(over_parts(batch, only_image_keys(batch, self._step.image_name), self._detected))

    def _detected(self, batch: Batch, key: str) -> Batch:
        samples = self._samples(batch, key)
        objects = self._objects(samples)
        if objects is None:
            return self._without_any(batch)
        objects = objects.in_pictures([sample.view for sample in samples], self._model.size)
        owner = np.array([sample.row for sample in samples], np.int64)[objects.owner]
        parents = None
        if self._step.regions is not None:
            parents = np.array([sample.part for sample in samples], np.int64)[objects.owner]
            order = self._of_regions(owner, objects)
            objects, owner, parents = objects.take(order), owner[order], parents[order]
        objects = objects.owned(owner)
        result = with_objects(batch, self._step, self._model.detector, objects)
        if self._step.parents_name is None or parents is None:
            return result
        return result.with_columns(
            {self._step.parents_name: lists_of(parents.tolist(), owner, batch.size, ValueType.INT64)}
        )

    def _of_regions(self, owner: Ints, objects: Objects) -> Ints:
        """The positions of the best objects of each record, whichever regions they are in, the best first."""
        order = np.lexsort((-objects.score, owner))
        ranks = np.arange(len(order)) - np.searchsorted(owner[order], owner[order])
        return order[ranks < self._step.max_boxes]

    def _without_any(self, batch: Batch) -> Batch:
        keys = sorted(self.gives or ())
        kinds = {self._step.output_name: ValueType.BOUNDING_BOX, self._step.parents_name: ValueType.INT64}
        nobody = np.zeros(0, np.int64)
        return batch.with_columns(
            {key: lists_of((), nobody, batch.size, kinds.get(key, ValueType.LIST)) for key in keys}
        )

    def _objects(self, samples: Sequence[_Sample]) -> Objects | None:
        """The objects of all samples; `None` if there are no samples."""
        parts: list[Objects] = []
        failures: dict[int, Exception] = {}
        most = min(filter(None, (self._model.most, self._step.max_batch, self._most_records)), default=len(samples))
        for start in range(0, len(samples), most or 1):
            some = samples[start : start + most]
            array = stacked([sample.picture for sample in some], self._config, self._memory.empty)
            try:
                parts.append(self._model.objects(array).later(start))
            except RowsFailed as error:
                failures.update({some[place].row: failure for place, failure in error.failures.items()})
        if failures:
            raise RowsFailed(failures)
        return Objects.concat(parts) if parts else None

    def _samples(self, batch: Batch, key: str) -> list[_Sample]:
        regions = self._regions(batch)
        samples: list[_Sample] = []
        failures: dict[int, Exception] = {}
        for row, image in enumerate(image_values(batch, key)):
            try:
                samples += self._of_image(row, image, None if regions is None else regions[row])
            except StreamerError as error:
                failures[row] = of_key(error, key)
        if failures:
            raise RowsFailed(failures)
        return samples

    def _of_image(self, row: int, image: Any, regions: Sequence[Corners] | None) -> list[_Sample]:
        if not isinstance(image, Image):
            raise WrongTypeError('a list of images; DETECT takes one image of a record, and parts of it by "regions"')
        if regions is None:
            return [_Sample(row, 0, prepared(image, self._config), viewed(image, self._config))]
        return [
            _Sample(row, place, prepared(part, self._config), _inside(where, viewed(part, self._config)))
            for place, corners in enumerate(regions)
            for part, where in _cut(image, corners)
        ]

    def _regions(self, batch: Batch) -> Sequence[Sequence[Corners]] | None:
        """The parts of each row's picture that are looked at, by their corners; `None`: all of it."""
        step = self._step
        if step.region is not None:
            box = step.region.value
            return [[(box.x1, box.y1, box.x2, box.y2)]] * batch.size
        if step.regions is None:
            return None
        regions: list[list[Corners]] = []
        failures: dict[int, Exception] = {}
        for row, value in enumerate(array_column(batch, step.regions).values()):
            try:
                regions.append(_corners(value, step.regions))
            except DataError as error:
                failures[row] = error
        if failures:
            raise RowsFailed(failures)
        return regions


def needed(step: Detect) -> frozenset[str]:
    """The keys without which a record fails, as far as the step names them."""
    return frozenset(key for key in (step.image_name, step.regions) if key is not None)


def written(step: Detect) -> frozenset[str]:
    """The keys of all that the step puts into a record."""
    return written_keys(step) | frozenset([] if step.parents_name is None else [step.parents_name])


def _corners(value: Any, key: str) -> list[Corners]:
    if not holds(value, ValueType.BOUNDING_BOX):
        raise WrongTypeError(f'"{key}" must be a box or a list of boxes, not {type_of(value).name}')
    boxes = listed(value)
    check_fractions(boxes, key, "DETECT")
    return [(x1, y1, x2, y2) for x1, y1, x2, y2 in corners_of(boxes, key).tolist()]


def _cut(image: Image, corners: Corners) -> Iterator[tuple[Image, Corners]]:
    """The part of an image in whole pixels around these corners, and its own corners; nothing if it has no pixels."""
    wide, high = image.width, image.height
    x1, y1, x2, y2 = (min(max(place, 0.0), 1.0) for place in corners)
    left, top, right, bottom = (
        math.floor(x1 * wide),
        math.floor(y1 * high),
        math.ceil(x2 * wide),
        math.ceil(y2 * high),
    )
    if left < right and top < bottom:
        part = Image(image.get_as("numpy")[top:bottom, left:right])
        yield part, (left / wide, top / high, right / wide, bottom / high)


def _inside(where: Corners, view: View) -> View:
    """The view of a picture of whose part, with these corners, `view` is the view."""
    x1, y1, x2, y2 = where
    across, down = x2 - x1, y2 - y1
    return View(
        x1 + across * view.left,
        y1 + down * view.top,
        x1 + across * view.right,
        y1 + down * view.bottom,
        view.wide,
        view.high,
    )
