"""Avro schemas made ready for fastavro: references resolved, logical types replaced by ours, and unbounded types
refused.

Times are INT64 in milliseconds (since 1970, since midnight for a time of day), decimals DOUBLE or text, a uuid is text.
fastavro's own readers of these make objects that we would have to convert again, so a schema is read with logical types
of ours in their place (fastavro's documented way of adding some).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import partial
from typing import Any, Final, Literal
from uuid import UUID

from connectors.codecs.config import PayloadFields
from connectors.codecs.schemas.avroleaves import DAY
from connectors.codecs.schemas.avrotree import (
    SAID,
    kind_of,
    named_types,
    self_contained,
    types,
)
from pipelines.data.data import check_key
from pipelines.errors import MissingPackageError, WireError

Decimals = Literal["number", "text"]
"""The type of decimals' values."""

MOST_DEPTH: Final = 64
"""How deep types may be nested: fastavro reads them by recursion in C, which has no other bound."""
MOST_VALUES: Final = 20_000
"""How many values one record may have without those in its arrays and maps."""

MOST_DECIMAL: Final = 256
"""Bytes of a decimal at most: to make digits of many costs their square."""

_VALUE: Final = "streamer.value."
"""Begins the names of records that are made for other types."""
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_TIMES: Final = {
    ("int", "date"): "streamer-date",
    ("int", "time-millis"): "streamer-time-millis",
    ("long", "time-micros"): "streamer-time-micros",
    **{
        ("long", f"{where}timestamp-{unit}"): f"streamer-{unit}"
        for where in ("", "local-")
        for unit in ("micros", "nanos")
    },
}
_LONG_SIZE: Final = 10
"""Bytes of a number at most."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class AvroSchema:
    """A record type, prepared for fastavro."""

    prepared: Any
    """The type as JSON. Names are full, and refer to types defined before them; logical types are ours."""
    parsed: Any
    """The type as fastavro takes it. It reads logical types, and writes values that are ready to be written: to write
    them it does not know our logical types."""
    names: tuple[str, ...]
    """The fields."""

    @property
    def fields(self) -> PayloadFields:
        """The fields that a record has, and those that need a value: they have no default, and cannot be null."""
        without_default = (field for field in self.prepared["fields"] if "default" not in field)
        needed = frozenset(field["name"] for field in without_default if not _null(field["type"]))
        return PayloadFields(frozenset(self.names), needed)

    @property
    def name(self) -> str:
        """The name of the record type, with its namespace; of another type `long`, `string`, ..."""
        return str(self.prepared["name"]).removeprefix(_VALUE)


def default_value(schema: Any, default: Any, named: Mapping[str, Any], *, logical: bool) -> Any:
    """The value that a field's default, JSON, means: bytes of a text, a float of `"NaN"`, with `logical` milliseconds
    of days.

    Raises `ValueError` for a default that is none of the prepared type; `named` are the types with names.
    """
    value = partial(default_value, named=named, logical=logical)
    if isinstance(schema, list):
        for branch in schema:
            try:
                return value(branch, default)
            except ValueError:
                continue
        raise ValueError(default)
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = kind_of(schema)
    if not isinstance(default, _JSON[kind]) or (isinstance(default, bool) and kind != "boolean"):
        raise ValueError(default)
    if kind == "record":
        fields = {field["name"]: field for field in schema["fields"]}
        given = {name: field["default"] for name, field in fields.items() if "default" in field} | default
        if given.keys() != fields.keys():
            raise ValueError(default)
        return {name: value(field["type"], given[name]) for name, field in fields.items()}
    if kind == "array":
        return [value(schema["items"], item) for item in default]
    if kind == "map":
        return {key: value(schema["values"], entry) for key, entry in default.items()}
    if kind in ("bytes", "fixed"):
        default = default.encode("latin-1")
    elif kind in ("float", "double"):
        default = float(default)
    read = READERS.get(f"{kind}-{schema.get('logicalType')}") if logical and isinstance(schema, dict) else None
    return default if read is None else read(default, schema, None)


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """The schema of payloads: a record type, or a union of some, and of null. Another type is that of the only field of
    a record, which has the same bytes."""

    branches: tuple[AvroSchema | None, ...]
    """The types; `None` is null."""
    union: bool

    def of(self, payload: bytes, at: int) -> tuple[AvroSchema | None, int]:
        """The type of the record of a payload that begins at `at`, and where it goes on behind the number of the type.

        Raises `WireError` if there is no such type.
        """
        if not self.union:
            return self.branches[0], at
        text = io.BytesIO(payload[at : at + _LONG_SIZE])
        try:
            number: Any = _fastavro().schemaless_reader(text, "long", None)
        except EOFError:
            number = -1
        if not 0 <= number < len(self.branches):
            names = ", ".join("null" if branch is None else branch.name for branch in self.branches)
            raise WireError(f"the payload does not follow its schema: it begins with none of its types {names}")
        return self.branches[number], at + text.tell()


def payload_schema(
    text: str, references: Mapping[str, str], decimals: Decimals, value_key: str | None = None
) -> PayloadSchema:
    """The schema of payloads that has this JSON text; `references` are the texts of others that it names. Payloads that
    are no records have their value as the field `value_key`; `None`: they are an error.

    Defaults are not looked at: payloads are not read by the defaults of those who wrote them. Raises as
    `record_schema` does, for a text that is no schema of a record or of a union of records and null.
    """
    with _schema_errors():
        schema = json.loads(text)
        preparing = _Preparing(_json(references), decimals, defaults=False)
        if not isinstance(schema, list):
            return PayloadSchema((_ready(preparing.record(schema, value_key)),), union=False)
        made = [None if branch == "null" else preparing.record(branch, value_key) for branch in schema]
        named = named_types([branch for branch in made if branch is not None])
        ready = [None if branch is None else _ready(self_contained(branch, named)) for branch in made]
        return PayloadSchema(tuple(ready), union=True)


def record_schema(text: str, references: Mapping[str, str], decimals: Decimals) -> AvroSchema:
    """The schema of results that has this JSON text; `references` are the texts of others that it names.

    Raises `WireError` for text that is no schema of a record, and for a schema that contains itself or has arrays of
    elements without bytes: a payload of a few bytes could be read without end.
    """
    with _schema_errors():
        return _ready(_Preparing(_json(references), decimals).record(json.loads(text)))


def reader_schema(text: str, decimals: Decimals) -> AvroSchema:
    """The schema of this JSON text, for payloads to be read as. Its defaults are values as they are read: milliseconds,
    bytes, numbers. Raises as `record_schema` does.
    """
    schema = record_schema(text, {}, decimals)
    named = named_types(schema.prepared)
    fields = [
        field
        for root in (schema.prepared, schema.parsed)
        for record in types(root)
        for field in record.get("fields", ())
        if "default" in field
    ]
    with _schema_errors():
        values = [default_value(field["type"], field["default"], named, logical=True) for field in fields]
    for schema_field, value in zip(fields, values, strict=True):
        schema_field["default"] = value
    return schema


def _ready(prepared: Any) -> AvroSchema:
    names = tuple(field["name"] for field in prepared["fields"])
    return AvroSchema(prepared, _fastavro().parse_schema(prepared), names)


def _json(texts: Mapping[str, str]) -> dict[str, Any]:
    return {name: json.loads(text) for name, text in texts.items()}


@contextmanager
def _schema_errors() -> Iterator[None]:
    try:
        yield
    except (WireError, MissingPackageError):
        raise
    except RecursionError:
        raise WireError("the Avro schema is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - fastavro raises many kinds for a schema that is wrong
        raise WireError(f"the Avro schema is wrong: {type(error).__name__}: {error}") from None


@dataclass(slots=True)
class _Preparing:
    references: Mapping[str, Any]
    decimals: Decimals
    defaults: bool = True
    """Whether those of fields are kept."""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Named types that have been read: how many values one has, and the fewest bytes."""
    open: list[str] = field(default_factory=list)

    def record(self, schema: Any, value_key: str | None = None) -> Any:
        prepared = self.of(schema, "", 0)[0]
        if isinstance(prepared, dict) and kind_of(prepared) == "record":
            return prepared
        if value_key is not None:
            name = "union" if isinstance(prepared, list) else kind_of(prepared)
            fields = [{"name": value_key, "type": prepared}]
            return {"type": "record", "name": f"{_VALUE}{name}", "namespace": "", "fields": fields}
        if isinstance(prepared, list):
            instead = "a union; payloads are read by a union of records, other records by a record"
        else:
            instead = f"{kind_of(prepared)}; make it a record with a field of that type"
            if not self.defaults:
                # It is the schema of payloads.
                instead += ", or give the codec value_key, the key of that value"
        raise WireError(f"the Avro schema is not one of a record, but of the type {instead}")

    def of(self, schema: Any, space: str, depth: int) -> tuple[Any, int, int]:
        """The schema made ready, how many values it has, and the fewest bytes that they take."""
        if depth > MOST_DEPTH:
            raise WireError(f"the Avro schema nests types more than {MOST_DEPTH} levels deep")
        if isinstance(schema, str):
            return self._named(schema, space, depth)
        if isinstance(schema, list):
            branches = [self.of(branch, space, depth + 1) for branch in schema]
            return [branch[0] for branch in branches], max((branch[1] for branch in branches), default=1), 1
        if not isinstance(schema, dict):
            raise WireError(f"the Avro schema has {str(schema)[:60]!r} where a type stands")
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            return self.of(kind, space, depth + 1)
        if kind in ("record", "error"):
            return self._record(schema, space, depth)
        if kind == "array":
            items, _, least = self.of(schema.get("items"), space, depth + 1)
            if not least:
                raise WireError("the Avro schema has an array whose elements take no bytes: it could be endless")
            return {"type": "array", "items": items}, 1, 1
        if kind == "map":
            return {"type": "map", "values": self.of(schema.get("values"), space, depth + 1)[0]}, 1, 1
        if kind in ("enum", "fixed"):
            name, size = _full(schema, space), schema.get("size")
            least = 1 if kind == "enum" else size if isinstance(size, int) and size > 0 else 0
            self.sizes[name] = 1, least
            kept = {key: value for key, value in schema.items() if key != "default" or self.defaults}
            return self._logical({**kept, "name": name, "namespace": ""}), 1, least
        if isinstance(kind, str) and kind not in _PRIMITIVES:
            return self._named(kind, space, depth)
        return self._logical({**schema}), 1, _least(kind)

    def _record(self, schema: dict[str, Any], space: str, depth: int) -> tuple[Any, int, int]:
        name = _full(schema, space)
        inner = name.rpartition(".")[0]
        self.open.append(name)
        fields: list[Any] = []
        size, least = 1, 0
        kept = ("name", "aliases", "default") if self.defaults else ("name", "aliases")
        for schema_field in schema["fields"]:
            check_key(schema_field["name"])
            prepared, values, fewest = self.of(schema_field["type"], inner, depth + 1)
            size, least = size + values, least + fewest
            if size > MOST_VALUES:
                raise WireError(f"the record {name} has more than {MOST_VALUES} values")
            fields.append({**{key: schema_field[key] for key in kept if key in schema_field}, "type": prepared})
        self.open.pop()
        self.sizes[name] = (size, least)
        aliases = {"aliases": schema["aliases"]} if "aliases" in schema else {}
        return {"type": "record", "name": name, "namespace": "", "fields": fields, **aliases}, size, least

    def _named(self, name: str, space: str, depth: int) -> tuple[Any, int, int]:
        if name in _PRIMITIVES:
            return name, 1, _least(name)
        for full in ([f"{space}.{name}"] if space and "." not in name else []) + [name]:
            if full in self.open:
                raise WireError(f"the record {full} contains itself: its payloads could be nested without end")
            if full in self.sizes:
                return full, *self.sizes[full]
            if full in self.references:
                return self.of(self.references[full], space, depth + 1)
        raise WireError(f'the Avro schema names a type "{name[:60]}" that there is not')

    def _logical(self, schema: dict[str, Any]) -> Any:
        """The type with a logical type of ours, or none."""
        kind, logical = schema["type"], schema.pop("logicalType", None)
        ours: str | None = None
        if logical == "decimal" and kind in ("bytes", "fixed"):
            ours = f"streamer-decimal-{self.decimals}"
        elif logical == "uuid" and (kind == "string" or (kind == "fixed" and schema.get("size") == 16)):
            ours = "streamer-uuid"
        elif isinstance(logical, str):
            ours = _TIMES.get((kind, logical))
        return schema if ours is None else {**schema, "logicalType": ours, SAID: logical}


def _full(schema: Mapping[str, Any], space: str) -> str:
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise WireError(f"a type {schema.get('type')!r} of the Avro schema has no name")
    namespace = schema.get("namespace", space)
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _null(kind: Any) -> bool:
    return any(branch == "null" for branch in (kind if isinstance(kind, list) else [kind]))


def _least(kind: object) -> int:
    return {"null": 0, "float": 4, "double": 8}.get(str(kind), 1)


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.read
    except ImportError:
        raise MissingPackageError("fastavro", "avro", "the codec avro") from None
    fastavro.read.LOGICAL_READERS.update(READERS)
    return fastavro


def _decimal(data: bytes, schema: Mapping[str, Any]) -> Decimal:
    if len(data) > MOST_DECIMAL:
        raise ValueError(f"a decimal of {len(data)} bytes")
    with localcontext(prec=1000):
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-int(schema.get("scale", 0)))


READERS: Final[dict[str, Any]] = {
    "int-streamer-date": lambda data, writer, reader: data * DAY,
    "long-streamer-micros": lambda data, writer, reader: data // 1000,
    "long-streamer-time-micros": lambda data, writer, reader: data // 1000,
    "long-streamer-nanos": lambda data, writer, reader: data // 1_000_000,
    "fixed-streamer-uuid": lambda data, writer, reader: str(UUID(bytes=data)),
    **{
        f"{kind}-streamer-decimal-{name}": (lambda data, writer, reader, make=make: make(_decimal(data, writer)))
        for kind in ("bytes", "fixed")
        for name, make in (("number", float), ("text", lambda number: format(number, "f")))
    },
}
_JSON: Final[Mapping[str, Any]] = {
    "null": type(None),
    "boolean": bool,
    **dict.fromkeys(("int", "long"), int),
    **dict.fromkeys(("float", "double"), (int, float, str)),
    **dict.fromkeys(("string", "enum", "bytes", "fixed"), str),
    "array": list,
    **dict.fromkeys(("map", "record"), dict),
}
"""Python's types of the JSON that defaults are."""
