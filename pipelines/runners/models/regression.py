"""Runs REGRESSION_OUTPUT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn
from pipelines.data.result import Result
from pipelines.errors import DataError, RowsFailed, StreamerError
from pipelines.runners.models.arrays import array_column
from pipelines.runners.models.matrices import Matrix, by_row, matrices, put_together
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.models.regression import RegressionOutput
from pipelines.values import ValueType
from pipelines.wire.shortest import shortest


class RegressionOutputRunner(Runner):
    """Adds columns of an array to each record by name: a DOUBLE for `[C]` or `[1, C]`, a list of k for `[k, C]`.

    Raises `StreamerError` when it opens without names. Fails a row whose array has another shape or lacks a column.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: RegressionOutput, context: OpenContext) -> None:
        if not step.names:
            raise StreamerError('REGRESSION_OUTPUT needs "names": key to add and column, for example {"price": 0}')
        self._names = dict(step.names)
        self._widest = max(self._names, key=self._names.__getitem__)
        self._input = step.input_name

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._input is None else frozenset([self._input])

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset(self._names)

    @property
    def sample_types(self) -> Mapping[str, ValueType]:
        return dict.fromkeys(self._names, ValueType.DOUBLE)

    def limit(self, records: int) -> bool:
        return True

    def run_batch(self, batch: Batch) -> Result:
        parts = matrices(array_column(batch, self._input), self._input)
        failures = {position: error for part in parts for position, error in self._too_narrow(part, batch.size).items()}
        if failures:
            raise RowsFailed(failures)
        return Result(batch.with_columns(put_together(parts, batch.size, self._named)))

    def _named(self, part: Matrix) -> dict[str, Column]:
        columns: dict[str, Column] = {}
        for name, index in self._names.items():
            values = _doubles(part.samples[:, index])
            if part.splits is None:
                columns[name] = DenseColumn(values, ValueType.DOUBLE)
            else:
                columns[name] = by_row(part, values.tolist(), ValueType.DOUBLE)
        return columns

    def _too_narrow(self, part: Matrix, size: int) -> dict[int, Exception]:
        width = part.samples.shape[1]
        needed = self._names[self._widest]
        if needed < width:
            return {}
        error = DataError(f'"{self._widest}" is column {needed}, but the array has {width} columns, counted from 0')
        return dict.fromkeys(range(size) if part.positions is None else part.positions.tolist(), error)


def _doubles(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The numbers as DOUBLE.

    Narrow floats become what their shortest digits say, as arrays are written as text: 0.1, where merely widened they
    would be 0.10000000149011612.
    """
    narrow = values.dtype.kind == "f" and values.dtype.itemsize < 8
    doubles: npt.NDArray[np.float64] = shortest(values) if narrow else values.astype(np.float64)
    return doubles
