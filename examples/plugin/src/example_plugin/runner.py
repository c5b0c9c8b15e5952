"""Runs STANDARDIZE. What is heavy to import belongs in a module like this one."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from pipelines import Batch, Data, OpenContext, Result, RowRunner
from pipelines.data.columns import DenseColumn

from example_plugin.step import Standardize


class StandardizeRunner(RowRunner):
    """A batch whose arrays are one array is done at once, any other record by record."""

    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True

    def __init__(self, step: Standardize, context: OpenContext) -> None:
        self._step = step

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self._step.field_name})

    def run_batch(self, batch: Batch) -> Result:
        key = self._step.field_name
        column = batch.column(key) if key in batch else None
        if not isinstance(column, DenseColumn) or column.mask is not None or column.array.ndim < 2:
            return super().run_batch(batch)
        return Result(batch.with_columns({key: DenseColumn(self._standardized(column.array))}))

    def run(self, data: Data) -> Data:
        data[self._step.field_name] = self._standardized(data.get_ndarray(self._step.field_name))
        return data

    def _standardized(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        # float32 stays float32, as Python's floats are weak; integers become float64.
        result: np.ndarray[Any, Any] = (array - self._step.mean) / self._step.std
        return result
