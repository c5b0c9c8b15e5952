"""Runs DETECTIONS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.data.data import is_reserved
from pipelines.data.result import Result
from pipelines.data.views import View
from pipelines.errors import DataError, RowsFailed, StreamerError
from pipelines.runners.boxes.boxlists import float_array
from pipelines.runners.boxes.detectors.detector import Detector
from pipelines.runners.boxes.detectors.layouts.yolo import is_raw
from pipelines.runners.boxes.detectors.recognise import recognise
from pipelines.runners.boxes.objectreader import LEFT_OUT, ObjectReader, asked, with_objects, written_keys
from pipelines.runners.images.imagecolumns import is_plain, over_parts
from pipelines.runners.models.arrays import array_column
from pipelines.runners.models.model import Port
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.boxes.detect import Detections
from pipelines.values import ValueType

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = tuple[int, ...]

_SIDES = (1, 1)
"""Stands for the size of the model's input where boxes are in fractions of it."""


class DetectionsRunner(Runner):
    """Replaces a detection model's arrays by the boxes in them, those of all records together.

    What arrays mean is found out with the first record that has arrays of such names and shapes. Fails a row without
    arrays, with arrays that are in no layout, or of several samples, with scores that are no probabilities, and one
    for which the size of the model's input is needed and not known.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: Detections, context: OpenContext) -> None:
        self._step = step
        self._asked = asked(step, context)
        self._left_out = context.metrics.counter(LEFT_OUT, "Boxes that are not finite, or have no area.")
        self._own_geometry = context.own_geometry
        self._readers: dict[Any, ObjectReader] = {}

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._step.input_names is None else frozenset(self._step.input_names)

    @property
    def gives(self) -> frozenset[str] | None:
        # With the other values the arrays are gone.
        return None if self._step.keep_other_values else written_keys(self._step)

    @property
    def types(self) -> Mapping[str, ValueType]:
        return dict.fromkeys(written_keys(self._step), ValueType.LIST)

    def run_batch(self, batch: Batch) -> Result:
        return Result(over_parts(batch, self._parts(batch), self._with_boxes))

    def _parts(self, batch: Batch) -> Iterator[tuple[Rows, Batch, tuple[list[str], View | None]]]:
        """The rows whose arrays agree in keys, shapes and view."""
        for positions, part, keys in self._by_keys(batch):
            for among, alike in part.groups(keys):
                views = [None] * alike.size if alike.views is None else alike.views
                rows_by_view: dict[View | None, list[int]] = {}
                for row, view in enumerate(views):
                    rows_by_view.setdefault(view, []).append(row)
                same = [np.array(rows, np.int64) for rows in rows_by_view.values()]
                for view, rows, some in zip(rows_by_view, same, alike.divided(same), strict=True):
                    yield positions[among[rows]], some, (keys, view)

    def _by_keys(self, batch: Batch) -> Iterator[tuple[Rows, Batch, list[str]]]:
        everyone = np.arange(batch.size, dtype=np.int64)
        if self._step.input_names is not None:
            keys = list(self._step.input_names)
            for key in keys:
                # Names the rows that lack it.
                array_column(batch, key)
            yield everyone, batch, keys
            return
        columns = {key: batch[key] for key in batch.columns if not is_reserved(key)}
        if all(map(is_plain, columns.values())):
            arrays = [key for key, column in columns.items() if column.type is ValueType.NDARRAY]
            if arrays:
                # Usual behind a model: all records have the same values, and need not be looked at one by one.
                yield everyone, batch, arrays
                return
        rows_by_keys: dict[tuple[str, ...], list[int]] = {}
        for row, values in enumerate(batch.all_values()):
            keys = [key for key, value in values.items() if isinstance(value, np.ndarray)]
            rows_by_keys.setdefault(tuple(keys), []).append(row)
        if () in rows_by_keys:
            error = DataError("the record has no array; DETECTIONS comes behind the step that runs the model")
            raise RowsFailed(dict.fromkeys(rows_by_keys[()], error))
        parts = [np.array(rows, np.int64) for rows in rows_by_keys.values()]
        for rows, part, names in zip(parts, batch.divided(parts), rows_by_keys, strict=True):
            yield rows, part, list(names)

    def _with_boxes(self, batch: Batch, what: tuple[list[str], View | None]) -> Batch:
        keys, view = what
        try:
            arrays = [float_array(batch, key, integers=True) for key in keys]
            size = self._size(view)
            reader = self._reader(keys, arrays, size)
            objects = reader.read(_together(arrays, reader.detector), size or _SIDES, batch.size)
        except RowsFailed:
            raise
        except StreamerError as error:
            failure = error if isinstance(error, DataError) else DataError(str(error))
            raise RowsFailed(dict.fromkeys(range(batch.size), failure)) from None
        views = [None if self._own_geometry else view] * batch.size
        objects = objects.in_pictures(views, size or _SIDES)
        result = with_objects(batch.without(keys).with_views(None), self._step, reader.detector, objects)
        if self._step.keep_other_values:
            return result
        return result.select({key: result.column(key) for key in written_keys(self._step)})

    def _size(self, view: View | None) -> tuple[int, int] | None:
        return self._step.high_wide if view is None else (view.high, view.wide)

    def _reader(self, keys: Sequence[str], arrays: Sequence[Array], size: tuple[int, int] | None) -> ObjectReader:
        shapes = tuple(array.shape[1:] for array in arrays)
        form = (tuple(keys), shapes, size)
        reader = self._readers.get(form)
        if reader is None:
            detector = self._recognised(keys, arrays, shapes, size)
            if size is None and detector.unit == "pixels":
                raise DataError(
                    "boxes are in pixels of the model's input, whose size is not known, as no IMAGE_TO_NDARRAY of this "
                    'pipeline made it: give "size"'
                )
            if detector.layout == "yolox":
                detector = replace(detector, raw=is_raw([arrays[place] for place in detector.outputs]))
            reader = ObjectReader(self._step, detector, self._left_out)
            # Without an end, shapes that change with every record would fill the memory.
            if len(self._readers) < 100:
                self._readers[form] = reader
        return reader

    def _recognised(
        self, keys: Sequence[str], arrays: Sequence[Array], shapes: Sequence[Shape], size: tuple[int, int] | None
    ) -> Detector:
        high, wide = size or (None, None)
        inputs = [Port("picture", np.dtype(np.float32), (None, 3, high, wide))]
        given = replace(self._asked, size=None)
        named = list(zip(keys, arrays, shapes, strict=True))
        ports = [Port(key, array.dtype, (None, *shape[1:])) for key, array, shape in named if shape]
        try:
            return recognise(inputs, ports, {}, given)
        except StreamerError:
            # Maybe records have their sample without an axis for it.
            alone = [Port(key, array.dtype, (None, *shape)) for key, array, shape in named]
            try:
                return recognise(inputs, alone, {}, given)
            except StreamerError:
                pass
            raise


def _together(arrays: Sequence[Array], detector: Detector) -> list[Array]:
    """The arrays of all records as those that the model gives for a batch. Raises `DataError` for several samples."""
    first = arrays[detector.outputs[0]]
    if detector.layout == "flat7":
        table = first.reshape(len(first), -1, 7).copy()
        table[:, :, 0] = np.arange(len(table))[:, np.newaxis]
        return [table.reshape(-1, 7)]
    if first.ndim == 3:
        return list(arrays)
    if first.shape[1] != 1:
        raise DataError(f"the arrays have {first.shape[1]} samples; DETECTIONS takes those of one picture in a record")
    return [array[:, 0] if array.ndim > 1 and array.shape[1] == 1 else array for array in arrays]
