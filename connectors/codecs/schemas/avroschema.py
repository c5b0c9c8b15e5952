"""Avro schemas made ready for fastavro: references resolved, logical types replaced by ours, and unbounded types
refused.

Times are INT64 in milliseconds (since 1970, since midnight for a time of day), decimals DOUBLE or text, a uuid is text.
fastavro's own readers of these make objects that we would have to convert again, so a schema is read with logical types
of ours in their place (fastavro's documented way of adding some).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, DecimalException, localcontext
from typing import Any, Final, Literal
from uuid import UUID

from connectors.codecs.payloadfields import PayloadFields
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

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_PLAIN: Final = frozenset({"timestamp-millis", "local-timestamp-millis", "time-millis", "duration"})
_MICROS: Final = frozenset({"timestamp-micros", "local-timestamp-micros", "time-micros"})
_NANOS: Final = frozenset({"timestamp-nanos", "local-timestamp-nanos"})
_DAY: Final = 86_400_000
_INT32: Final = range(-(1 << 31), 1 << 31)


GUARD: Final = "streamer guard"
"""The field that ends each record of `AvroSchema.many`: no name that a schema may have."""
GUARD_SIZE: Final = 16


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class AvroSchema:
    """A record type, prepared for fastavro."""

    prepared: Any
    """The type as JSON. Names are full, and refer to types defined before them; logical types are ours."""
    one: Any
    """The type."""
    many: Any
    """An array of such records, each with the field `GUARD` at its end, random bytes that no sender can know: fastavro
    reads and writes many records in one call faster than each by itself, and the guards show where each ends."""
    names: tuple[str, ...]
    """The fields."""

    @property
    def fields(self) -> PayloadFields:
        """The fields that a record has, and those that need a value: they have no default, and cannot be null."""
        needed = (one["name"] for one in self.prepared["fields"] if "default" not in one and not _null(one["type"]))
        return PayloadFields(frozenset(self.names), frozenset(needed))


def parsed(text: str, references: Mapping[str, str], decimals: Decimals) -> AvroSchema:
    """The schema of this JSON text; `references` are the texts of others that it names.

    Raises `WireError` for text that is no schema of a record, and for a schema that contains itself or has arrays of
    elements without bytes: a payload of a few bytes could be read without end.
    """
    fastavro = _fastavro()
    try:
        others = {name: json.loads(other) for name, other in references.items()}
        prepared = _Preparing(others, decimals).record(json.loads(text))
        guard = {"name": GUARD, "type": {"type": "fixed", "name": "streamer.Guard", "size": GUARD_SIZE}}
        guarded = {**prepared, "fields": [*prepared["fields"], guard]}
        names = tuple(one["name"] for one in prepared["fields"])
        many = fastavro.parse_schema({"type": "array", "items": guarded})
        return AvroSchema(prepared, fastavro.parse_schema(prepared), many, names)
    except WireError:
        raise
    except RecursionError:
        raise WireError("the Avro schema is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - fastavro raises many kinds for a schema that is wrong
        raise WireError(f"the Avro schema is wrong: {type(error).__name__}: {error}") from None


@dataclass(slots=True)
class _Preparing:
    references: Mapping[str, Any]
    decimals: Decimals
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Named types that have been read: how many values one has, and the fewest bytes."""
    open: list[str] = field(default_factory=list)

    def record(self, schema: Any) -> Any:
        if not (isinstance(schema, dict) and schema.get("type") in ("record", "error")):
            kind = schema.get("type") if isinstance(schema, dict) else schema
            raise WireError(f"a record is read by a schema of the type record, not of {str(kind)[:60]!r}")
        return self.of(schema, "", 0)[0]

    def of(self, schema: Any, space: str, depth: int) -> tuple[Any, int, int]:
        """The schema made ready, how many values it has, and the fewest bytes that they take."""
        if depth > MOST_DEPTH:
            raise WireError(f"the Avro schema nests types more than {MOST_DEPTH} levels deep")
        if isinstance(schema, str):
            return self._named(schema, space, depth)
        if isinstance(schema, list):
            branches = [self.of(one, space, depth + 1) for one in schema]
            return [one[0] for one in branches], max((one[1] for one in branches), default=1), 1
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
        if kind == "enum":
            self.sizes[_full(schema, space)] = (1, 1)
            return {**schema, "name": _full(schema, space), "namespace": ""}, 1, 1
        if kind == "fixed":
            given = schema.get("size")
            least = given if isinstance(given, int) and given > 0 else 0
            self.sizes[_full(schema, space)] = (1, least)
            return self._logical({**schema, "name": _full(schema, space), "namespace": ""}), 1, least
        if isinstance(kind, str) and kind not in _PRIMITIVES:
            return self._named(kind, space, depth)
        return self._logical({**schema}), 1, _least(kind)

    def _record(self, schema: dict[str, Any], space: str, depth: int) -> tuple[Any, int, int]:
        name = _full(schema, space)
        inner = name.rpartition(".")[0]
        self.open.append(name)
        fields: list[Any] = []
        size, least = 1, 0
        for one in schema["fields"]:
            check_key(one["name"])
            prepared, values, fewest = self.of(one["type"], inner, depth + 1)
            size, least = size + values, least + fewest
            if size > MOST_VALUES:
                raise WireError(f"the record {name} has more than {MOST_VALUES} values")
            kept = {key: one[key] for key in ("name", "default", "aliases") if key in one}
            fields.append({**kept, "type": prepared})
        self.open.pop()
        self.sizes[name] = (size, least)
        aliases = {"aliases": schema["aliases"]} if "aliases" in schema else {}
        return {"type": "record", "name": name, "namespace": "", "fields": fields, **aliases}, size, least

    def _named(self, name: str, space: str, depth: int) -> tuple[Any, int, int]:
        if name in _PRIMITIVES:
            return self._logical({"type": name}) if name == "int" else name, 1, _least(name)
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
        if kind == "int":
            ours = "streamer-date" if logical == "date" else "streamer-int"
        elif kind == "long" and logical in _MICROS:
            ours = "streamer-micros"
        elif kind == "long" and logical in _NANOS:
            ours = "streamer-nanos"
        elif logical == "decimal" and kind in ("bytes", "fixed"):
            ours = f"streamer-decimal-{self.decimals}"
        elif logical == "uuid" and kind == "fixed" and schema.get("size") == 16:
            ours = "streamer-uuid"
        return schema if ours is None else {**schema, "logicalType": ours}


def _full(schema: Mapping[str, Any], space: str) -> str:
    name = schema.get("name")
    if not isinstance(name, str) or not name:
        raise WireError(f"a type {schema.get('type')!r} of the Avro schema has no name")
    own = schema.get("namespace", space)
    return f"{own}.{name}" if own and "." not in name else name


def _null(kind: Any) -> bool:
    return any(one == "null" for one in (kind if isinstance(kind, list) else [kind]))


def _least(kind: object) -> int:
    return {"null": 0, "float": 4, "double": 8}.get(str(kind), 1)


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.read
        import fastavro.write
    except ImportError:
        raise MissingPackageError("fastavro", "avro", "the codec avro") from None
    fastavro.read.LOGICAL_READERS.update(READERS)
    fastavro.write.LOGICAL_WRITERS.update(WRITERS)
    return fastavro


def _decimal(data: bytes, schema: Mapping[str, Any]) -> Decimal:
    if len(data) > MOST_DECIMAL:
        raise ValueError(f"a decimal of {len(data)} bytes")
    with localcontext(prec=1000):
        return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-int(schema.get("scale", 0)))


def _unscaled(value: Any, schema: Mapping[str, Any]) -> int:
    """The integer that a decimal is written as. `ValueError` for a value that is no decimal, or has too many digits."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("a decimal is written of a number or a text")
    try:
        with localcontext(prec=1000):
            unscaled = int(Decimal(str(value)).scaleb(int(schema.get("scale", 0))).to_integral_value())
    except (DecimalException, ValueError, OverflowError):
        raise ValueError(f"{str(value)[:60]!r} is no decimal number") from None
    precision = schema.get("precision")
    if precision and abs(unscaled) >= 10 ** int(precision):
        raise ValueError(f"{str(value)[:60]} has more than {precision} digits")
    return unscaled


def _decimal_bytes(value: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(value, bytes):
        return value
    number = _unscaled(value, schema)
    size = schema["size"] if schema["type"] == "fixed" else (number.bit_length() + 8) // 8
    try:
        return number.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise ValueError(f"{str(value)[:60]} does not fit into {size} bytes") from None


def _int32(value: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(value, int) and value not in _INT32:
        raise ValueError(f"{value} does not fit into 32 bits")
    return value


def _times(factor: int) -> Any:
    def written(value: Any, schema: Mapping[str, Any]) -> Any:
        return value * factor if isinstance(value, int) else value

    return written


READERS: Final[dict[str, Any]] = {
    "int-streamer-date": lambda data, writer, reader: data * _DAY,
    "long-streamer-micros": lambda data, writer, reader: data // 1000,
    "long-streamer-nanos": lambda data, writer, reader: data // 1_000_000,
    "fixed-streamer-uuid": lambda data, writer, reader: str(UUID(bytes=data)),
    **{
        f"{kind}-streamer-decimal-{name}": (lambda data, writer, reader, make=make: make(_decimal(data, writer)))
        for kind in ("bytes", "fixed")
        for name, make in (("number", float), ("text", lambda found: format(found, "f")))
    },
}
WRITERS: Final[dict[str, Any]] = {
    "int-streamer-int": _int32,
    "int-streamer-date": lambda value, schema: value // _DAY if isinstance(value, int) else value,
    "long-streamer-micros": _times(1000),
    "long-streamer-nanos": _times(1_000_000),
    "fixed-streamer-uuid": lambda value, schema: UUID(value).bytes if isinstance(value, str) else value,
    **{f"{kind}-streamer-decimal-{name}": _decimal_bytes for kind in ("bytes", "fixed") for name in ("number", "text")},
}
