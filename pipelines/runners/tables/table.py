"""`Table`: the rows of a table by their keys, and the values that records get from them as columns."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Any, Final

import numpy as np

from pipelines.data.columns import MISSING, Column
from pipelines.errors import DataError, StreamerError, nearest
from pipelines.runners.forms import Forms
from pipelines.runners.tables.kinds import UnfitError, shortened, typed
from pipelines.runners.tables.lookupkeys import LookupKeys
from pipelines.runners.tables.tablefile import RawTable
from pipelines.steps.tables.lookup import ColumnKind

_COMPARED: Final = 10_000
"""Rows of a table in which the nearest key is looked for: in more it would take too long, and a sorted list of them."""
_NEIGHBOURS: Final = 8
_LONG: Final = 100
"""Characters of a text from which on no nearest one is looked for."""


class Table:
    """Rows by their keys. Nothing of it changes once it is made, so that any thread may read it.

    `by` gives for each key of records the column to compare it with, `take` for each key that records get the column
    with its values.
    """

    def __init__(
        self,
        raw: RawTable,
        label: str,
        by: Mapping[str, str],
        take: Mapping[str, str],
        types: Mapping[str, ColumnKind],
    ) -> None:
        """`types` are those that columns must have; those of others are as the table shows them.

        Raises `StreamerError` for values that are not of their type, and for keys that are missing or there twice.
        """
        self.label = label
        self.size = raw.size
        self.kinds: dict[str, ColumnKind] = {}
        """The types of columns, as far as they have values or types were given."""
        self._by = by
        self._keys = LookupKeys(label, by, self.kinds, "types: {{{name}: text}} of the step reads texts there")
        values = {name: self._typed(raw, name, types.get(name)) for name in raw.columns}
        self._index = self._indexed(raw, [values[name] for name in by.values()])
        # One more row, which has nothing, is that of records that no row is for.
        self.columns = {key: Column.of([*values[name], MISSING]) for key, name in take.items()}
        """The columns of values by their keys in records: a row for each of the table, and one that lacks all."""
        self._hinted: Callable[[Hashable], str] = lru_cache(1024)(self._hint)

    @property
    def complete(self) -> bool:
        """Whether all rows have all values that records get."""
        absent = self.size
        return all(len(column.positions()) == absent for column in self.columns.values())

    def looked_up(
        self, given: Sequence[Column], failures: dict[int, Exception]
    ) -> tuple[Mapping[str, Column], Sequence[int]]:
        """The columns of values for these records, and the positions of those that no row is for.

        `given` are the decoded columns of the records, one for each key. The errors of values that are of another type
        than their column are put into `failures`; no row is for their records.
        """
        keys = self._keys.comparable(given, failures)
        rows = np.fromiter(map(self._index.get, keys, repeat(self.size)), np.int64, len(keys))
        columns = {key: column.take(rows) for key, column in self.columns.items()}
        return columns, np.flatnonzero(rows == self.size).tolist()

    def misfit(self, given: Forms) -> str | None:
        """Why no record that has values of these forms can have a row; `None` if that is not sure."""
        return self._keys.misfit(given)

    def no_row(self, given: Sequence[Column], row: int) -> DataError:
        """The error of the record at this position, which no row of the table is for."""
        values = [column[row] for column in given]
        # Long texts are neither compared nor kept.
        short = len(values) == 1 and not (isinstance(values[0], str) and len(values[0]) > _LONG)
        return self._keys.no_row(values, self._hinted(values[0]) if short else "")

    def _typed(self, raw: RawTable, name: str, kind: ColumnKind | None) -> list[Any]:
        try:
            shown, values = typed(name, raw.columns[name], kind, fields=not raw.typed)
        except UnfitError as error:
            raise StreamerError(f"{self.label}, {raw.place(error.position)}: {error}") from None
        except ValueError as error:
            raise StreamerError(f'{self.label}: the column "{name}" is of no one type: {error}') from None
        if shown is not None:
            self.kinds[name] = shown
        return values

    def _indexed(self, raw: RawTable, keys: Sequence[Sequence[Any]]) -> dict[Hashable, int]:
        names = list(self._by.values())
        for name, values in zip(names, keys, strict=True):
            row = next((row for row, value in enumerate(values) if value is MISSING), None)
            if row is not None:
                raise StreamerError(f'{self.label}, {raw.place(row)}: "{name}" is missing, by which rows are looked up')
        listed = keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))
        index: dict[Hashable, int] = dict(zip(listed, range(len(listed)), strict=True))
        if len(index) < len(listed):
            # The index has the last of equal keys.
            row, key = next((row, key) for row, key in enumerate(listed) if index[key] != row)
            values = (key,) if len(keys) == 1 else key
            named = ", ".join(f'"{name}" {shortened(value)}' for name, value in zip(names, values, strict=True))
            places = f"{raw.place(row)} and {raw.place(index[key])}"
            raise StreamerError(f"{self.label}: {named} is there twice, in {places}; a key has one row")
        return index

    @cached_property
    def _sorted(self) -> list[Any]:
        keys: list[Any] = list(self._index)
        return sorted(keys, key=_order)

    def _hint(self, key: Any) -> str:
        """The end of the error about a key that is not there: the nearest one."""
        finite = isinstance(key, str) or math.isfinite(key)
        if not 0 < self.size <= _COMPARED or isinstance(key, bool) or not finite:
            return ""
        place = bisect.bisect_left(self._sorted, _order(key), key=_order)
        near = self._sorted[max(place - _NEIGHBOURS, 0) : place + _NEIGHBOURS]
        if isinstance(key, str):
            return nearest(key, near)
        return f"; the nearest is {min(near, key=lambda other: abs(other - key))!r}"


def _order(key: Any) -> Any:
    # Texts that differ in case or blanks around them are beside each other.
    return key.strip().casefold() if isinstance(key, str) else key
