"""An Avro schema for results, derived from the values of the first results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pipelines.errors import WireError

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def derived_schema(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """The JSON text of a record type with this name that all these rows of plain values follow.

    A value that some rows lack is a union with null. An integer is a long, and beside other numbers a double.
    Raises `WireError` if values make no type: a key that is no name in Avro, values of several types, an empty list.
    """
    return json.dumps(_record(rows, name), indent=2)


def _record(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    fields: list[dict[str, Any]] = []
    for key in dict.fromkeys(key for row in rows for key in row):
        if not _NAME.fullmatch(key):
            raise WireError(f'invalid Avro field name "{key}": letters, digits and _ are; drop it, or rename it')
        there = [row[key] for row in rows if row.get(key) is not None]
        inner = f"{name}_{key}"
        if len(there) < len(rows):
            fields.append({"name": key, "type": ["null", _type(there, key, inner)], "default": None})
        else:
            fields.append({"name": key, "type": _type(there, key, inner)})
    return {"type": "record", "name": name, "fields": fields}


def _type(values: Iterable[Any], key: str, name: str) -> Any:
    values = list(values)
    kinds = {type(value) for value in values}
    if kinds == {int, float}:
        return "double"
    if len(kinds) == 1:
        (kind,) = kinds
        if kind in _TYPES:
            return _TYPES[kind]
        if kind is dict:
            return _record(values, name)
        if kind is list and any(values):
            return {"type": "array", "items": _type((item for value in values for item in value), key, name)}
    raise WireError(f'no Avro type can be derived from the values of "{key}"; give the codec a schema for its results')


_TYPES: Final[Mapping[type, str]] = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "bytes"}
