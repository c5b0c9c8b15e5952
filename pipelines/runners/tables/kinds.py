"""The types of a table's columns: what fields of CSV look like, and values as values of a type."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from pipelines.data.columns import MISSING
from pipelines.errors import WireError
from pipelines.steps.tables.lookup import ColumnKind
from pipelines.values import ValueType
from pipelines.values.native import INT64_MAX, INT64_MIN
from pipelines.wire.stated.types import Stated

VALUE_TYPES: Final[Mapping[ColumnKind, ValueType]] = {
    "text": ValueType.STRING,
    "integer": ValueType.INT64,
    "number": ValueType.DOUBLE,
    "boolean": ValueType.BOOLEAN,
}
"""The types that the values of a column have in records."""

# A field has such a type only if it is written as such a value would be: `007`, `+7` and `12e4` are names of things.
_LOOKS_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_LOOKS_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+([eE][+-]?[0-9]+)?|[eE][+-][0-9]+)?")


def typed(
    name: str, values: Sequence[Any], kind: ColumnKind | None, *, fields: bool
) -> tuple[ColumnKind | None, list[Any]]:
    """The type of the column `name` and its values in it, with `MISSING` for `None`.

    `kind` is the type that it must have; `None`: that of its values, or if they are `fields` of CSV, that which these
    look like. Raises `UnfitError` for a value that cannot be of the type, and `ValueError` if there is no type.
    """
    if kind is not None:
        return kind, _as_kind(name, values, kind)
    there = [value for value in values if value is not None]
    shown = kind_of_fields(there) if fields else kind_of_values(there)
    if shown is None:
        return None, [MISSING] * len(values)
    return shown, _as_they_look(values, shown) if fields else _as_kind(name, values, shown)


def kind_of_fields(fields: Collection[str]) -> ColumnKind | None:
    """The type that all these fields of CSV look like; `None` if there are none.

    A column of integers of which one does not fit in 64 bits, or of numbers with more than 15 digits before the point,
    is one of texts: it would not keep them exactly.
    """
    if not fields:
        return None
    if all(map(_LOOKS_INTEGER.fullmatch, fields)):
        return "integer" if all(INT64_MIN <= number <= INT64_MAX for number in map(int, fields)) else "text"
    if all(map(_LOOKS_NUMBER.fullmatch, fields)):
        return "number" if all(map(math.isfinite, map(float, fields))) else "text"
    return "boolean" if all(field.lower() in ("true", "false") for field in fields) else "text"


def kind_of_values(values: Iterable[Any]) -> ColumnKind | None:
    """The type of a column of these values; `None` without values. Raises `ValueError` if it is not the same."""
    classes = set(map(type, values))
    if not classes:
        return None
    if classes == {bool}:
        return "boolean"
    if classes == {str}:
        return "text"
    if classes <= {int, float}:
        return "integer" if classes == {int} else "number"
    names = sorted(_NAMES.get(kind, kind.__name__) for kind in classes)
    if classes <= _NAMES.keys():
        raise ValueError(f"it has {' and '.join(names)}; say what they are to be (types)")
    raise ValueError(f"it has values of {' and '.join(names)}; texts, numbers and booleans can be looked up")


def _as_kind(name: str, values: Sequence[Any], kind: ColumnKind) -> list[Any]:
    read = _reader(name, kind)
    converted: list[Any] = []
    try:
        for value in values:
            # One by one, so that the length says where it stopped.
            converted.append(MISSING if value is None else read(value))
    except (WireError, OverflowError) as error:
        raise UnfitError(len(converted), str(error)) from None
    return converted


def _reader(name: str, kind: ColumnKind) -> Callable[[Any], Any]:
    """Reads a value as one of this type, by the rules of codecs; `MISSING` for NaN. Raises `WireError`."""
    stated = Stated(name, kind)

    def read(value: Any) -> Any:
        if kind == "number" and type(value) in (int, float):
            return MISSING if value != value else float(value)
        if kind == "integer" and type(value) in (int, float) and value % 1 == 0:
            # Its text says whether it fits in 64 bits.
            value = str(int(value))
        elif kind == "boolean" and type(value) is int:
            # SQLite has no others.
            value = str(value)
        if type(value) in stated.kept:
            return value
        converted = stated.converted(value)
        return MISSING if converted is None else converted

    return read


class UnfitError(ValueError):
    """A value cannot be of the type of its column; `position` is its row, counted from 0."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(why)
        self.position = position


def shortened(value: object) -> str:
    """A value as Python writes it, at most 60 characters of it."""
    text = repr(value[:61] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= 62 else f"{text[:60]}..."


_NAMES: Final = {str: "texts", int: "integers", float: "numbers", bool: "booleans"}


def _as_they_look(fields: Sequence[str | None], kind: ColumnKind) -> list[Any]:
    # All of them are known to be of the type: this takes half the time of `_as_kind`.
    convert = _LOOKS[kind]
    return [MISSING if field is None else convert(field) for field in fields]


_LOOKS: Final[Mapping[ColumnKind, Callable[[str], Any]]] = {
    "text": str,
    "integer": int,
    "number": float,
    "boolean": lambda field: field.lower() == "true",
}
