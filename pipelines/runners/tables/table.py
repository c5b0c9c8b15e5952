"""`Table`: the rows of a table by their keys, and the values that records get from them as columns."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import repeat
from typing import Any, Final

import numpy as np

from pipelines.data.columns import MISSING, Column, Rows
from pipelines.errors import DataError, StreamerError, WrongTypeError, nearest
from pipelines.runners.forms import Forms, ValueForm
from pipelines.runners.tables.kinds import VALUE_TYPES, UnfitError, shortened, typed
from pipelines.runners.tables.tablefile import RawTable
from pipelines.steps.tables.lookup import ColumnKind
from pipelines.values import ValueType, type_of

_CLASSES: Final[Mapping[ColumnKind, frozenset[type]]] = {
    "text": frozenset({str}),
    "integer": frozenset({int, float}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
}
"""Classes of the values that can be equal to one of a column of this type: 7.0 is 7, but true is not 1."""
_COMPARABLE: Final[Mapping[ColumnKind, frozenset[ValueType]]] = {
    "text": frozenset({ValueType.STRING}),
    "integer": frozenset({ValueType.INT64, ValueType.DOUBLE}),
    "number": frozenset({ValueType.INT64, ValueType.DOUBLE}),
    "boolean": frozenset({ValueType.BOOLEAN}),
}
"""The same as types of values."""
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

    def rows(self, given: Sequence[Column], failures: dict[int, Exception]) -> Rows:
        """The row of the table for each record; `size` where there is none.

        `given` are the decoded columns of the records, one for each key. The errors of values that are of another type
        than their column are put into `failures`.
        """
        compared = [
            self._comparable(column.values(), key, name, failures)
            for column, (key, name) in zip(given, self._by.items(), strict=True)
        ]
        keys = compared[0] if len(compared) == 1 else list(zip(*compared, strict=True))
        return np.fromiter(map(self._index.get, keys, repeat(self.size)), np.int64, len(keys))

    def misfit(self, given: Forms) -> str | None:
        """Why no record that has values of these forms can have a row; `None` if that is not sure."""
        for key, name in self._by.items():
            kind, form = self.kinds.get(name), given.get(key)
            if kind is None or form is None or (isinstance(form, ValueForm) and form.type in _COMPARABLE[kind]):
                continue
            what = form.type.name if isinstance(form, ValueForm) else "an image or array"
            return f'"{key}" is {what}, and "{name}" of {self.label} is of type {VALUE_TYPES[kind].name}'
        return None

    def no_row(self, given: Sequence[Column], row: int) -> DataError:
        """The error of the record at this position, which no row of the table is for."""
        values = [column[row] for column in given]
        named = ", ".join(f"{key} {shortened(value)}" for key, value in zip(self._by, values, strict=True))
        # Long texts are neither compared nor kept.
        short = len(values) == 1 and not (isinstance(values[0], str) and len(values[0]) > _LONG)
        hint = self._hinted(values[0]) if short else ""
        return DataError(f"{self.label} has no row for {named}{hint}")

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

    def _comparable(self, values: list[Any], key: str, name: str, failures: dict[int, Exception]) -> list[Any]:
        """The values; those of another type than the column's are replaced, and their errors put into `failures`."""
        kind = self.kinds.get(name)
        odd = set(map(type, values)) - (_CLASSES[kind] if kind else frozenset())
        if not odd:
            return values
        alike: list[Any] = []
        for row, value in enumerate(values):
            strange = type(value) in odd
            if strange and kind is not None:
                failures.setdefault(row, self._unlike(value, key, name, kind))
            alike.append(None if strange else value)
        return alike

    def _unlike(self, value: Any, key: str, name: str, kind: ColumnKind) -> WrongTypeError:
        plain = isinstance(value, (str, int, float))
        shown = f'"{key}" is {shortened(value)}' if plain else f'"{key}" is of type {type_of(value).name}'
        hint = f"; types: {{{name}: text}} of the step reads texts there" if isinstance(value, str) else ""
        return WrongTypeError(f'{shown}, and "{name}" of {self.label} is of type {VALUE_TYPES[kind].name}{hint}')

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
