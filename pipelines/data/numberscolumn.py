"""`NumbersColumn`: INT64s beside DOUBLEs, `30` among `30.5`, as one float64 array that still knows which are which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, Rows, joined_masks, mask_at
from pipelines.values import ValueType


class NumbersColumn(Column):
    """Numbers of N rows: `array` is float64 for all of them, and the value of a row is the `int` or `float` it was.

    `storage` is `float64 (N,)`; `whole` is `bool (N,)` and says which rows are INT64. These must be integers that
    float64 does not round. Where `present` is false the row lacks the key; the arrays' numbers there mean nothing.
    """

    __slots__ = ("storage", "whole")

    def __init__(self, storage: npt.NDArray[np.float64], whole: Mask, present: Mask | None = None) -> None:
        super().__init__(None, present)
        if storage.flags.writeable:
            storage = storage.view()
            storage.flags.writeable = False
        self.storage = storage
        self.whole = whole

    def __len__(self) -> int:
        return len(self.storage)

    def __getitem__(self, row: int) -> Any:
        if self.mask is not None and not self.mask[row]:
            return MISSING
        number = self.storage[row].item()
        return int(number) if self.whole[row] else number

    def take(self, rows: Rows) -> Column:
        """A `DenseColumn` if these rows are all INT64 or all DOUBLE."""
        storage, whole, mask = self.storage[rows], self.whole[rows], mask_at(self.mask, rows)
        there = whole if mask is None else whole[mask]
        if not there.any():
            return DenseColumn(storage, ValueType.DOUBLE, mask)
        if there.all():
            known = storage if mask is None else np.where(mask, storage, 0.0)
            return DenseColumn(known.astype(np.int64), ValueType.INT64, mask)
        return NumbersColumn(storage, whole, mask)

    def values(self) -> list[Any]:
        numbers: list[Any] = self.storage.tolist()
        for row in np.flatnonzero(self.whole if self.mask is None else self.whole & self.mask).tolist():
            numbers[row] = int(numbers[row])
        if self.mask is not None:
            for row in np.flatnonzero(~self.mask).tolist():
                numbers[row] = MISSING
        return numbers

    def inner(self, row: int) -> tuple[Any, ...] | None:
        return (ValueType.DOUBLE,) if self.mask is None or self.mask[row] else None

    def joined(self, columns: Sequence[Column]) -> Column | None:
        storage, whole = [], []
        for column in columns:
            if isinstance(column, NumbersColumn):
                storage.append(column.storage)
                whole.append(column.whole)
            elif isinstance(column, DenseColumn) and column.type is ValueType.DOUBLE:
                storage.append(column.storage)
                whole.append(np.zeros(len(column), np.bool_))
            elif column.empty:
                storage.append(np.zeros(len(column)))
                whole.append(np.zeros(len(column), np.bool_))
            else:
                return None
        return NumbersColumn(np.concatenate(storage), np.concatenate(whole), joined_masks(columns))

    def _stacked(self) -> npt.NDArray[Any]:
        return self.storage
