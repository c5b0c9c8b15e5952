"""The values by which records are looked up, compared with the types of a table's keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipelines.data.columns import Column
from pipelines.errors import DataError, WrongTypeError
from pipelines.runners.forms import Forms, ValueForm
from pipelines.runners.tables.kinds import VALUE_TYPES, shortened
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


class LookupKeys:
    """The keys by which rows of a table are looked up."""

    def __init__(
        self, label: str, by: Mapping[str, str], kinds: Mapping[str, ColumnKind], texts: str, key: str = ""
    ) -> None:
        """`by` gives for each key of records the column to compare it with, `kinds` the types of columns.

        `texts` is what to write if values are texts and the column is not. `key` is the name of the table's only
        key in messages, where it is no column.
        """
        self.label = label
        self._by = by
        self._kinds = kinds
        self._texts = texts
        self._key = key

    def comparable(self, given: Sequence[Column], failures: dict[int, Exception]) -> list[Any]:
        """The key of each record: a value, or of several columns a tuple. No row has the key `None`.

        `given` are the decoded columns of the records, one for each of `by`. A value of another type than its column is
        replaced by `None`, and its error put into `failures`, by position.
        """
        compared = [
            self._comparable(column.values(), key, name, failures)
            for column, (key, name) in zip(given, self._by.items(), strict=True)
        ]
        return compared[0] if len(compared) == 1 else list(zip(*compared, strict=True))

    def misfit(self, given: Forms) -> str | None:
        """Why no record that has values of these forms can have a row; `None` if that is not sure."""
        for key, name in self._by.items():
            kind, form = self._kinds.get(name), given.get(key)
            if kind is None or form is None or (isinstance(form, ValueForm) and form.type in _COMPARABLE[kind]):
                continue
            what = form.type.name if isinstance(form, ValueForm) else "an image or array"
            return f'"{key}" is {what}, and {self._named(name)} is of type {VALUE_TYPES[kind].name}'
        return None

    def no_row(self, values: Sequence[Any], hint: str = "") -> DataError:
        """The error of a record with these values, one for each of `by`, which no row of the table is for."""
        named = ", ".join(f"{key} {shortened(value)}" for key, value in zip(self._by, values, strict=True))
        return DataError(f"{self.label} has no row for {named}{hint}")

    def _comparable(self, values: list[Any], key: str, name: str, failures: dict[int, Exception]) -> list[Any]:
        kind = self._kinds.get(name)
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
        hint = f"; {self._texts.format(name=name)}" if isinstance(value, str) else ""
        return WrongTypeError(f"{shown}, and {self._named(name)} is of type {VALUE_TYPES[kind].name}{hint}")

    def _named(self, name: str) -> str:
        return self._key or f'"{name}" of {self.label}'
