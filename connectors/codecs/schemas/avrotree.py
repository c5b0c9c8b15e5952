"""Prepared Avro schemas as trees: JSON in which every name is full and every logical type is ours (`avroschema`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

NAMED: Final = frozenset({"record", "enum", "fixed"})
"""Kinds of types that have names."""
SAID: Final = "streamer.logicalType"
"""The key of the logical type that a schema names, beside ours."""


def kind_of(schema: Any) -> str:
    """The kind of a prepared type: `record`, `int`."""
    return str(schema if isinstance(schema, str) else schema["type"])


def named_types(schema: Any) -> dict[str, Any]:
    """The types in a prepared schema that have names, by these."""
    return {one["name"]: one for one in types(schema) if kind_of(one) in NAMED}


def types(schema: Any) -> Iterator[dict[str, Any]]:
    """All types that are written out in a schema, itself and those in it."""
    if isinstance(schema, list):
        for one in schema:
            yield from types(one)
    elif isinstance(schema, dict):
        yield schema
        for one in schema.get("fields", ()):
            yield from types(one["type"])
        for inner in sorted(_INNER & schema.keys()):
            yield from types(schema[inner])


def self_contained(schema: Any, named: Mapping[str, Any]) -> Any:
    """The type with each type that it names written out where it is named first; `named` are types by their names."""
    defined: set[str] = set()

    def written_out(one: Any) -> Any:
        one = named[one] if isinstance(one, str) and one in named and one not in defined else one
        if isinstance(one, dict) and kind_of(one) in NAMED:
            defined.add(one["name"])
        if isinstance(one, list):
            return [written_out(inner) for inner in one]
        if not isinstance(one, dict):
            return one
        found = {key: written_out(value) if key in _INNER else value for key, value in one.items()}
        if "fields" in one:
            found["fields"] = [{**field, "type": written_out(field["type"])} for field in one["fields"]]
        return found

    return written_out(schema)


_INNER: Final = frozenset({"items", "values"})
