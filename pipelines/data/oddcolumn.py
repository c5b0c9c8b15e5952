"""`OddColumn`: the values of rows some of which have one that no `Data` can hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipelines.data.columns import MISSING, Column, Rows
from pipelines.data.data import owned
from pipelines.errors import RowsFailed
from pipelines.values.native import settled
from pipelines.values.oddvalue import OddValue


class OddColumn(Column):
    """A list of native values, `OddValue` where a row has none of these, and `MISSING` where it lacks the key.

    To ask for the values fails the rows with odd ones, by `RowsFailed`; `all_cells` gives them all.
    """

    __slots__ = ("objects",)

    def __init__(self, objects: list[Any]) -> None:
        there = np.fromiter((value is not MISSING for value in objects), np.bool_, len(objects))
        super().__init__(None, None if there.all() else there)
        self.objects = objects

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, row: int) -> Any:
        value = self.objects[row]
        if isinstance(value, OddValue):
            raise RowsFailed({range(len(self))[row]: value.error(self.key)}, of=self)
        return value

    def values(self) -> list[Any]:
        failed = {row: value.error(self.key) for row, value in enumerate(self.objects) if isinstance(value, OddValue)}
        if failed:
            raise RowsFailed(failed, of=self)
        return list(self.objects)

    def all_cells(self) -> Iterator[tuple[int, Any]]:
        return ((row, value) for row, value in enumerate(self.objects) if value is not MISSING)

    def decoded(self) -> Column:
        """Raises `RowsFailed`, as it has values that cannot be decoded."""
        self.values()
        return self

    @property
    def has_odd(self) -> bool:
        return True

    @property
    def writable(self) -> bool:
        return True

    def lent(self) -> Column:
        return OddColumn(list(map(owned, self.objects)))

    def take(self, rows: Rows) -> Column:
        return Column.of([self.objects[row] for row in rows.tolist()])


def column_with_odd(values: list[Any]) -> Column:
    """The column of native values, gaps and odd values, some of which may have been changed since they were lent."""
    values = [settled(value) if isinstance(value, OddValue) else value for value in values]
    return OddColumn(values) if any(isinstance(value, OddValue) for value in values) else Column.of(values)
