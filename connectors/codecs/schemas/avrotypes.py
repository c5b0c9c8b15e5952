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
    """The types of a schema."""

    types: list[AvroType]
    """A type comes after the types that it contains; the last one is the record type."""

    @property
    def defaults(self) -> dict[str, Any]:
        """The fields that payloads do not have, and their values."""
        return dict(self.types[-1][4])

    @property
    def fields(self) -> dict[str, AvroField]:
        """The fields that payloads have."""
        _, _, inner, names, _ = self.types[-1]
        return {name: self._field(index) for index, name in zip(inner, names, strict=True) if name is not None}

    def _field(self, place: int) -> AvroField:
        kind, _, inner, _, _ = self.types[place]
        if kind != UNION:
            return AvroField(self.types[place], 0)
        others = [branch for branch in inner if self.types[branch][0] != NULL]
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
    made, record = _made(writer, reader)
    fields = [(made[index], name) for index, name in zip(record.type[2], record.type[3], strict=True)]
    if record.type[0] == REFUSED or any(name and not place.least and place.type[0] != NULL for place, name in fields):
        return None
    return AvroTypes([place.type for place in made])


def why_not_read(writer: AvroSchema, reader: AvroSchema) -> str | None:
    """Why payloads of `writer` cannot be read as `reader`, as far as the schemas tell."""
    return _made(writer, reader)[1].why


class _Made(NamedTuple):
    type: AvroType
    least: int
    """The fewest bytes of a value."""
    why: str | None
    """Why no value is read as the reader's type; `None` if some are, or if there is no word for it."""


def _made(writer: AvroSchema, reader: AvroSchema | None) -> tuple[list[_Made], _Made]:
    """All types, and that of the record."""
    prepared = None if reader is None else reader.prepared
    made = _Making(named_types(writer.prepared), {} if prepared is None else named_types(prepared))
    place = made.of(writer.prepared, prepared, "")
    return made.types, made.types[place]


class _Making:
    def __init__(self, writers: Mapping[str, Any], readers: Mapping[str, Any]) -> None:
        self.types: list[_Made] = []
        self._writers = writers
        self._readers = readers
        self._named: dict[tuple[str, str | None], int] = {}

    def of(self, writer: Any, reader: Any, path: str) -> int:
        """The place of the type `writer`, read as `reader`; read as it is if that is `None`."""
        writer, reader = self._writer(writer), self._reader(reader)
        if isinstance(writer, list):
            return self._union(writer, reader, path)
        wanted = reader
        if isinstance(reader, list):
            # The first that fits.
            reader = next((branch for branch in map(self._reader, reader) if self.match(writer, branch)), reader)
        if isinstance(reader, list) or (reader is not None and not self.match(writer, reader)):
            return self._add(REFUSED, why=_mismatch(writer, wanted, path))
        kind, other = kind_of(writer), None if reader is None else kind_of(reader)
        if kind not in NAMED:
            return self._unnamed(kind, writer, reader, other, path)
        if reader is not None and kind != other:
            return self._add(REFUSED, why=_mismatch(writer, wanted, path))
        names = writer["name"], None if reader is None else reader["name"]
        if names not in self._named:
            make = self._record if kind == "record" else self._of_name
            self._named[names] = make(writer, reader, path)
        return self._named[names]

    def _record(self, writer: Any, reader: Any, path: str) -> int:
        left = {} if reader is None else {field["name"]: field for field in reader["fields"]}
        aliases = {alias: field for field in left.values() for alias in field.get("aliases", ())}
        inner: list[int] = []
        names: list[str | None] = []
        for field in writer["fields"]:
            read_field = field if reader is None else left.get(field["name"], aliases.get(field["name"]))
            names.append(None if read_field is None else read_field["name"])
            if reader is not None and read_field is not None and left.pop(read_field["name"], None) is None:
                # Two fields of the payload match one field of the reader.
                return self._add(REFUSED)
            wanted = None if reader is None or read_field is None else read_field["type"]
            inner.append(self.of(field["type"], wanted, f"{path}.{field['name']}".removeprefix(".")))
        lacking = next((name for name, field in left.items() if "default" not in field), None)
        why = next((self.types[index].why for index in inner if self.types[index].why is not None), None)
        if lacking is not None:
            place = f"{path}.{lacking}".removeprefix(".")
            reason = f'the schema of the payload has no field "{place}", and that of reader_schema has no default'
            return self._add(REFUSED, why=why or reason)
        least = sum(self.types[index].least for index in inner)
        defaults = [(name, field["default"]) for name, field in left.items()]
        return self._add(RECORD, inner=inner, names=names, more=defaults, least=least, why=why)

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

    def _writer(self, schema: Any) -> Any:
        return self._writers.get(schema, schema) if isinstance(schema, str) else schema

    def _reader(self, schema: Any) -> Any:
        return self._readers.get(schema, schema) if isinstance(schema, str) else schema

    def _union(self, branches: list[Any], reader: Any, path: str) -> int:
        inner: list[int] = []
        for branch in map(self._writer, branches):
            inner.append(self._add(REFUSED) if isinstance(branch, list) else self.of(branch, reader, path))
        whys = [self.types[branch].why for branch in inner]
        return self._add(UNION, inner=inner, why=whys[0] if whys and None not in whys else None)

    def _unnamed(self, kind: str, writer: Any, reader: Any, other: str | None, path: str) -> int:
        logical = writer.get("logicalType", "") if isinstance(writer, dict) else ""
        limit = logical if logical in LIMITED else None
        if kind in _INNER:
            place, key = _INNER[kind]
            inner = self.of(writer[key], None if reader is None else reader[key], f"{path}[]")
            return self._add(place, inner=[inner], why=self.types[inner].why)
        if logical == "streamer-date":
            return self._add(DAYS)
        if logical in _PARTS:
            return self._add(PARTS, _PARTS[logical], more=limit)
        if kind in ("int", "long"):
            if other in ("float", "double"):
                return self._add(REAL, 32 if kind == "int" else 64)
            return self._add(INT if kind == "int" else LONG, more=limit)
        if kind == "bytes":
            if logical:
                return self._decimal(BYTES, MOST_DECIMAL, writer, least=1)
            return self._add(TEXT) if other == "string" else self._add(BYTES, 1 << 62)
        if kind == "string":
            return self._add(TEXT_AS_BYTES if other == "bytes" else TEXT, more=limit)
        number, least = _PLAIN[kind]
        return self._add(number, least=least)

    def _of_name(self, writer: Any, reader: Any, path: str) -> int:
        if kind_of(writer) == "fixed":
            size, logical = writer["size"], writer.get("logicalType", "")
            if logical == "streamer-uuid":
                return self._add(FIXED, size, more=_maker(writer), least=size)
            if logical:
                return self._decimal(FIXED, size, writer, least=size)
            return self._add(FIXED, size, least=size)
        symbols: Sequence[str | None] = writer["symbols"]
        if reader is not None:
            default = reader.get("default")
            other = default if default and isinstance(default, str) else None
            symbols = [symbol if symbol in reader["symbols"] else other for symbol in symbols]
        return self._add(ENUM, names=symbols)

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
        why: str | None = None,
    ) -> int:
        self.types.append(_Made((kind, number, inner, names, more), least, why))
        return len(self.types) - 1


def _maker(writer: Mapping[str, Any]) -> Any:
    """The function of bytes that makes the value of a logical type."""
    return partial(_read, READERS[f"{writer['type']}-{writer['logicalType']}"], writer)


def _read(read: Any, writer: Mapping[str, Any], raw: bytes) -> Any:
    return read(raw, writer, None)


def _mismatch(writer: Any, reader: Any, path: str) -> str:
    if not isinstance(reader, list) and kind_of(writer) == kind_of(reader) == "record":
        where = f'of "{path}" ' if path else ""
        return (
            f"the record type {where}is called {writer['name']} in the schema of the payload, and {reader['name']} in "
            f'reader_schema; give it the same name there, or an alias ("aliases": ["{writer["name"]}"])'
        )
    wanted = " or ".join(map(_said, reader if isinstance(reader, list) else [reader]))
    return f'"{path}" is {_said(writer)} in the schema of the payload, which is not read as {wanted}'


def _said(schema: Any) -> str:
    kind = kind_of(schema)
    return f"{kind} {schema['name']}" if kind in NAMED and isinstance(schema, dict) else kind


LIMITED: Final = frozenset({"streamer-time-millis", "streamer-time-micros", "streamer-uuid"})
"""Logical types that do not hold all values of their type; they are `more` of numbers and texts."""
_INNER: Final = {"array": (ARRAY, "items"), "map": (MAP, "values")}
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
