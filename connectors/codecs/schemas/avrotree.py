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
    return {inner["name"]: inner for inner in types(schema) if kind_of(inner) in NAMED}


def types(schema: Any) -> Iterator[dict[str, Any]]:
    """All types that are written out in a schema, itself and those in it."""
    if isinstance(schema, list):
        for branch in schema:
            yield from types(branch)
    elif isinstance(schema, dict):
        yield schema
        for field in schema.get("fields", ()):
            yield from types(field["type"])
        for inner in sorted(_INNER & schema.keys()):
            yield from types(schema[inner])


def self_contained(schema: Any, named: Mapping[str, Any]) -> Any:
    """The type with each type that it names written out where it is named first; `named` are types by their names."""
    defined: set[str] = set()

    def written_out(part: Any) -> Any:
        part = named[part] if isinstance(part, str) and part in named and part not in defined else part
        if isinstance(part, dict) and kind_of(part) in NAMED:
            defined.add(part["name"])
        if isinstance(part, list):
            return [written_out(inner) for inner in part]
        if not isinstance(part, dict):
            return part
        written = {key: written_out(value) if key in _INNER else value for key, value in part.items()}
        if "fields" in part:
            written["fields"] = [{**field, "type": written_out(field["type"])} for field in part["fields"]]
        return written

    return written_out(schema)


_INNER: Final = frozenset({"items", "values"})
