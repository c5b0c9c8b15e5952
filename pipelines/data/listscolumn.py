"""`ListsColumn`: lists of numbers that lie in one array, so that they are an array or lists, as they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, RaggedColumn, Rows
from pipelines.values import ValueType


class ListsColumn(Column):
    """LISTs of INT64s or DOUBLEs, nested or not: `array` is `(N, ...)` of int64 or float64, a row's value is a list.

    `arrays` is a `DenseColumn` or a `RaggedColumn` of int64 or float64. Where it is float64, `whole` (`bool (N,)`) says
    which rows are lists of INT64s, which float64 does not round; `None`: no row is.
    """

    __slots__ = ("arrays", "whole")

    def __init__(self, arrays: Column, whole: Mask | None = None) -> None:
        super().__init__(ValueType.LIST, arrays.mask)
        self.arrays = arrays
        self.whole = whole if whole is not None and whole.any() else None

    def __len__(self) -> int:
        return len(self.arrays)

    def __getitem__(self, row: int) -> Any:
        array = self.arrays[row]
        if array is MISSING:
            return MISSING
        return (array.astype(np.int64) if self.whole is not None and self.whole[row] else array).tolist()

    @property
    def has_empty(self) -> bool:
        """Whether a list, or one inside a list, has no numbers: no array of it is accepted for a model."""
        if isinstance(self.arrays, DenseColumn):
            return 0 in self.arrays.storage.shape[1:]
        assert isinstance(self.arrays, RaggedColumn)
        counts = np.diff(self.arrays.splits)
        return 0 in self.arrays.samples.shape[1:] or not counts[slice(None) if self.mask is None else self.mask].all()

    def take(self, rows: Rows) -> ListsColumn:
        return ListsColumn(self.arrays.take(rows), None if self.whole is None else self.whole[rows])

    def values(self) -> list[Any]:
        if self.whole is None:
            if isinstance(self.arrays, DenseColumn) and self.mask is None:
                lists: list[Any] = self.arrays.storage.tolist()
                return lists
            return [MISSING if array is MISSING else array.tolist() for array in self.arrays.values()]
        return [self[row] for row in range(len(self))]

    def called(self, key: str) -> Column:
        column = super().called(key)
        assert isinstance(column, ListsColumn)
        column.arrays = self.arrays.called(key)
        return column

    def joined(self, columns: Sequence[Column]) -> Column | None:
        if not all(isinstance(column, ListsColumn) or column.empty for column in columns):
            return None
        arrays = Column.concat([column.arrays if isinstance(column, ListsColumn) else column for column in columns])
        if not isinstance(arrays, (DenseColumn, RaggedColumn)):
            return None
        whole = [
            np.zeros(len(column), np.bool_)
            if not isinstance(column, ListsColumn) or column.whole is None
            else column.whole
            for column in columns
        ]
        return ListsColumn(arrays, np.concatenate(whole))

    def _stacked(self) -> npt.NDArray[Any]:
        return self.arrays.array
