"""An Avro schema as the table of types by which the compiled extension reads records: `native/src/avro/reading.rs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from connectors.codecs.schemas.avroschema import MOST_DECIMAL, READERS, AvroSchema
from connectors.codecs.schemas.avrotree import NAMED, kind_of, named_types

(
    NULL, BOOLEAN, INT, LONG, DAYS, PARTS, REAL, FLOAT, DOUBLE, BYTES, FIXED, TEXT, TEXT_AS_BYTES, ENUM, ARRAY, MAP,
    UNION, RECORD, REFUSED,
) = range(19)  # fmt: skip
"""Kinds of types. `REFUSED`: values of this type are left to fastavro."""

AvroType = tuple[int, int, Sequence[int], Sequence[str | None], Any]
"""(kind, number, inner, names, more): the meaning of number, inner types, names and more depends on the kind."""

MOST_SCALE: Final = 1000
"""Digits behind the point of a decimal that is read here."""


class AvroTypes(NamedTuple):
    """The types of a schema, and the fields of its records that are not in payloads."""

    types: list[AvroType]
    """A type comes after the types that it contains; the last one is the record type."""
    defaults: dict[str, Any]
    """The fields that payloads do not have, and their values."""

    @property
    def fields(self) -> dict[str, AvroField]:
        """The fields that payloads have."""
        *_, (_, _, inner, names, _) = self.types
        return {name: self._field(one) for one, name in zip(inner, names, strict=True) if name is not None}

    def _field(self, place: int) -> AvroField:
        kind, _, inner, _, _ = self.types[place]
        if kind != UNION:
            return AvroField(self.types[place], 0)
        others = [one for one in inner if self.types[one][0] != NULL]
        return AvroField(self.types[others[0]] if len(others) == 1 and len(inner) < _ONE_BYTE else None, 1)


class AvroField(NamedTuple):
    """The form of a field's value in a payload."""

    type: AvroType | None
    """The type of its values, null aside; `None` if they are of several."""
    begin: int
    """The number of bytes before the value, which say that it is not null."""


def avro_types(writer: AvroSchema, reader: AvroSchema | None) -> AvroTypes | None:
    """The types of payloads of `writer`, read as `reader` by Avro's rules as fastavro has them.

    `None` if all payloads are left to fastavro: it refuses them, or a field takes no bytes, so that the size of the
    columns would not be bounded by that of the payloads.
    """
    made = _Making(named_types(writer.prepared), {} if reader is None else named_types(reader.prepared))
    own = None if reader is None else reader.prepared
    if own is not None and not made.match(writer.prepared, own):
        return None
    fields = made.fields(writer.prepared, own)
    if fields is None:
        return None
    if any(name is not None and not made.least[one] and made.types[one][0] != NULL for one, name in fields.pairs):
        return None
    made.record(fields._replace(defaults=[]))
    return AvroTypes(made.types, dict(fields.defaults))


def why_not_read(writer: AvroSchema, reader: AvroSchema) -> str | None:
    """Why payloads of `writer` cannot be read as `reader`, as far as the schemas tell."""
    made = _Making(named_types(writer.prepared), named_types(reader.prepared))
    return made.why_not(writer.prepared, reader.prepared, "")


class _Fields(NamedTuple):
    pairs: list[tuple[int, str | None]]
    """The type of each field of the payload and its key, `None` for a field that the reader lacks."""
    defaults: list[tuple[str, Any]]


class _Making:
    def __init__(self, writers: Mapping[str, Any], readers: Mapping[str, Any]) -> None:
        self.types: list[AvroType] = []
        self.least: list[int] = []
        """The fewest bytes of a value of each type."""
        self._writers = writers
        self._readers = readers
        self._made: dict[tuple[str, str | None], int] = {}

    def of(self, writer: Any, reader: Any) -> int:
        """The place of the type `writer`, read as `reader`; read as it is if that is `None`."""
        writer, reader = self._writer(writer), self._reader(reader)
        if isinstance(writer, list):
            return self._union(writer, reader)
        if isinstance(reader, list):
            # The first that fits.
            reader = next((one for one in map(self._reader, reader) if self.match(writer, one)), _NONE)
        if reader is _NONE or (reader is not None and not self.match(writer, reader)):
            return self._add(REFUSED)
        kind, other = kind_of(writer), None if reader is None else kind_of(reader)
        if kind not in NAMED:
            return self._unnamed(kind, writer, reader, other)
        if reader is not None and kind != other:
            return self._add(REFUSED)
        names = writer["name"], None if reader is None else reader["name"]
        if names not in self._made:
            self._made[names] = self._of_name(kind, writer, reader)
        return self._made[names]

    def fields(self, writer: Any, reader: Any) -> _Fields | None:
        """The fields of a record; `None` if fastavro refuses every record of this type."""
        if reader is None:
            return _Fields([(self.of(one["type"], None), one["name"]) for one in writer["fields"]], [])
        left = {one["name"]: one for one in reader["fields"]}
        aliases = {alias: one for one in reader["fields"] for alias in one.get("aliases", ())}
        pairs: list[tuple[int, str | None]] = []
        for one in writer["fields"]:
            own = left.get(one["name"], aliases.get(one["name"]))
            if own is None:
                pairs.append((self.of(one["type"], None), None))
                continue
            if left.pop(own["name"], None) is None:
                # Two fields of the payload match one field of the reader.
                return None
            pairs.append((self.of(one["type"], own["type"]), own["name"]))
        if any("default" not in one for one in left.values()):
            return None
        return _Fields(pairs, [(name, one["default"]) for name, one in left.items()])

    def record(self, fields: _Fields) -> int:
        """The place of a record with these fields."""
        least = sum(self.least[one] for one, _ in fields.pairs)
        inner, names = [one for one, _ in fields.pairs], [name for _, name in fields.pairs]
        return self._add(RECORD, inner=inner, names=names, more=fields.defaults, least=least)

    def match(self, writer: Any, reader: Any) -> bool:
        """Whether fastavro takes these for the same type, or one of which the other can be made."""
        if isinstance(writer, list) or isinstance(reader, list):
            return True
        writer, reader = self._writer(writer), self._reader(reader)
        kind, other = kind_of(writer), kind_of(reader)
        if kind in NAMED and other in NAMED:
            if kind == other == "fixed" and writer["size"] != reader["size"]:
                return False
            last, aliases = writer["name"].rpartition(".")[2], reader.get("aliases", ())
            return last == reader["name"].rpartition(".")[2] or writer["name"] in aliases or last in aliases
        if kind == other == "array":
            return self.match(writer["items"], reader["items"])
        if kind == other == "map":
            return self.match(writer["values"], reader["values"])
        return kind == other or (kind, other) in _PROMOTED

    def why_not(self, writer: Any, reader: Any, path: str) -> str | None:
        """Why `writer` cannot be read as `reader`; `None` if it can, or if that depends on the payload."""
        writer, reader = self._writer(writer), self._reader(reader)
        if isinstance(writer, list):
            found = [self.why_not(one, reader, path) for one in writer]
            return found[0] if found and None not in found else None
        if isinstance(reader, list):
            same = [one for one in reader if self.match(writer, one)]
            if same:
                return self.why_not(writer, same[0], path)
        kind, other = kind_of(writer), kind_of(reader if not isinstance(reader, list) else "union")
        if kind == other == "record":
            if not self.match(writer, reader):
                where = f'of "{path}"' if path else ""
                return (
                    f"the record type {where} is called {writer['name']} in the schema of the payload, and "
                    f"{reader['name']} in reader_schema; give it the same name there, or an alias "
                    f'("aliases": ["{writer["name"]}"])'
                ).replace("  ", " ")
            return self._why_not_record(writer, reader, path)
        if isinstance(reader, list) or not self.match(writer, reader):
            wanted = " or ".join(map(_said, reader)) if isinstance(reader, list) else _said(reader)
            return f'"{path}" is {_said(writer)} in the schema of the payload, which is not read as {wanted}'
        inner = {"array": "items", "map": "values"}.get(kind)
        return None if inner is None else self.why_not(writer[inner], reader[inner], f"{path}[]")

    def _why_not_record(self, writer: Any, reader: Any, path: str) -> str | None:
        own = {one["name"]: one["type"] for one in writer["fields"]}
        for one in reader["fields"]:
            place = f"{path}.{one['name']}".removeprefix(".")
            name = next((name for name in (one["name"], *one.get("aliases", ())) if name in own), None)
            if name is None:
                if "default" not in one:
                    return f'the schema of the payload has no field "{place}", and that of reader_schema has no default'
            elif (why := self.why_not(own[name], one["type"], place)) is not None:
                return why
        return None

    def _writer(self, schema: Any) -> Any:
        return self._writers.get(schema, schema) if isinstance(schema, str) else schema

    def _reader(self, schema: Any) -> Any:
        return self._readers.get(schema, schema) if isinstance(schema, str) else schema

    def _union(self, branches: list[Any], reader: Any) -> int:
        inner: list[int] = []
        for one in branches:
            own = self._writer(one)
            if isinstance(own, list) or not (reader is None or self.match(own, reader)):
                inner.append(self._add(REFUSED))
            else:
                inner.append(self.of(own, reader))
        return self._add(UNION, inner=inner)

    def _unnamed(self, kind: str, writer: Any, reader: Any, other: str | None) -> int:
        logical = writer.get("logicalType", "") if isinstance(writer, dict) else ""
        if kind == "array":
            return self._add(ARRAY, inner=[self.of(writer["items"], None if reader is None else reader["items"])])
        if kind == "map":
            return self._add(MAP, inner=[self.of(writer["values"], None if reader is None else reader["values"])])
        if logical == "streamer-date":
            return self._add(DAYS)
        if logical in _PARTS:
            return self._add(PARTS, _PARTS[logical])
        if kind in ("int", "long"):
            if other in ("float", "double"):
                return self._add(REAL, 32 if kind == "int" else 64)
            return self._add(INT if kind == "int" else LONG)
        if kind == "bytes":
            if logical:
                return self._decimal(BYTES, MOST_DECIMAL, writer, least=1)
            return self._add(TEXT) if other == "string" else self._add(BYTES, 1 << 62)
        if kind == "string":
            return self._add(TEXT_AS_BYTES if other == "bytes" else TEXT)
        found, least = _PLAIN[kind]
        return self._add(found, least=least)

    def _of_name(self, kind: str, writer: Any, reader: Any) -> int:
        if kind == "fixed":
            size, logical = writer["size"], writer.get("logicalType", "")
            if logical == "streamer-uuid":
                return self._add(FIXED, size, more=_maker(writer), least=size)
            if logical:
                return self._decimal(FIXED, size, writer, least=size)
            return self._add(FIXED, size, least=size)
        if kind == "enum":
            symbols: Sequence[str | None] = writer["symbols"]
            if reader is not None:
                default = reader.get("default")
                other = default if default and isinstance(default, str) else None
                symbols = [one if one in reader["symbols"] else other for one in symbols]
            return self._add(ENUM, names=symbols)
        fields = self.fields(writer, reader)
        return self._add(REFUSED) if fields is None else self.record(fields)

    def _decimal(self, kind: int, size: int, writer: Mapping[str, Any], least: int) -> int:
        scale = writer.get("scale", 0)
        if not isinstance(scale, int) or not 0 <= scale <= MOST_SCALE or size > MOST_DECIMAL:
            return self._add(REFUSED)
        return self._add(kind, size, more=_maker(writer), least=least)

    def _add(
        self,
        kind: int,
        number: int = 0,
        inner: Sequence[int] = (),
        names: Sequence[str | None] = (),
        more: Any = None,
        least: int = 1,
    ) -> int:
        self.types.append((kind, number, inner, names, more))
        self.least.append(least)
        return len(self.types) - 1


def _maker(writer: Mapping[str, Any]) -> Any:
    """The function of bytes that makes the value of a logical type."""
    return partial(_made, READERS[f"{writer['type']}-{writer['logicalType']}"], writer)


def _made(read: Any, writer: Mapping[str, Any], raw: bytes) -> Any:
    return read(raw, writer, None)


def _said(schema: Any) -> str:
    kind = kind_of(schema)
    return f"{kind} {schema['name']}" if kind in NAMED and isinstance(schema, dict) else kind


_NONE: Final = object()
_ONE_BYTE: Final = 64
"""Numbers below this are one byte."""
_PARTS: Final = {"streamer-micros": 1000, "streamer-time-micros": 1000, "streamer-nanos": 1_000_000}
_PLAIN: Final = {"null": (NULL, 0), "boolean": (BOOLEAN, 1), "float": (FLOAT, 4), "double": (DOUBLE, 8)}
_PROMOTED: Final = frozenset(
    {
        *(("int", other) for other in ("long", "float", "double")),
        *(("long", other) for other in ("float", "double")),
        ("float", "double"),
        ("string", "bytes"),
        ("bytes", "string"),
    }
)
