"""`avro`: payloads are Avro records, of a schema registry or of a schema that both sides know."""

from __future__ import annotations

import io
import json
import logging
import secrets
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, model_validator

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig
from connectors.codecs.onevalue import with_scalars
from connectors.codecs.payloadfields import PayloadFields
from connectors.codecs.plainrows import AS_OBJECTS, alike_rows, decoded_columns, decoded_rows, read_rows_of
from connectors.codecs.rows import payload_bytes
from connectors.codecs.schemas import avroschema
from connectors.codecs.schemas.avroschema import GUARD, GUARD_SIZE, AvroSchema
from connectors.codecs.schemas.avrovalues import AvroValues
from connectors.codecs.schemas.compiledavro import AvroPart, CompiledAvroReader, joined_parts
from connectors.codecs.schemas.compiledavrowriter import CompiledAvroWriter
from connectors.codecs.schemas.config import REGISTRY_PACKAGES, RegistryConfig
from connectors.codecs.schemas.derived import derived_schema
from connectors.codecs.schemas.framing import ID_SIZE, Frame, framed, schema_headers, without_schemas
from connectors.codecs.schemas.registry import Registered, SchemaRegistry
from connectors.codecs.schemas.schemafile import schema_text
from connectors.compiledform import HasCompiledForm
from connectors.localpath import LocalPath
from connectors.records import Records
from connectors.units import Size
from pipelines.data.batch import Batch
from pipelines.data.rowrange import RowNumbers, row_range
from pipelines.errors import ConnectorError, DefinitionError, MissingPackageError, WireError, nearest
from pipelines.hotpath import HotPathReport, compiled, taken
from pipelines.plugins.requirements import Package, Requires, all_of
from pipelines.wire.plainvalues import RULES, plain_rows

_log = logging.getLogger(__name__)

_AVRO: Final = Package("fastavro", "avro")
_MANY: Final = 8
"""Records from which on they are read together."""


class AvroConfig(HasCompiledForm, CodecConfig):
    """Avro records: with a schema registry, or by a schema in a file. Times are milliseconds, decimals numbers or texts, null is absence."""  # noqa: E501

    type: Literal["avro"] = "avro"
    """The type of codec."""
    registry: RegistryConfig | None = None
    """The schema registry, `{url: http://localhost:8081}`; without one payloads are bare records of `schema`."""
    schema_: LocalPath | dict[str, Any] | None = Field(default=None, alias="schema")
    """The schema that results are written by, and without a registry also the schema of payloads that are read: a file, `readings.avsc`, or the schema itself. With a registry it may be left out: then it is the latest one of the subject, or, with `auto_register`, derived from the first results where there is none."""  # noqa: E501
    reader_schema: LocalPath | dict[str, Any] | None = None
    """The schema that payloads are read as, by Avro's rules: fields that this schema lacks are skipped, and fields that a payload lacks have its defaults."""  # noqa: E501
    decimals: Literal["number", "text"] = "number"
    """The type of decimals: DOUBLE, or texts with all their digits."""
    record_name: str = Field(default="Result", pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$")
    """The name of a derived schema."""
    max_bytes: Size = 16 << 20
    """Size of the largest payload; a larger one is an error of its record."""

    @model_validator(mode="after")
    def _some_schema(self) -> AvroConfig:
        if self.registry is None and self.schema_ is None:
            raise ValueError("give the codec avro a registry, or a schema")
        return self

    @property
    def needs(self) -> Requires:
        """fastavro, and with a registry the packages of its client."""
        return _AVRO if self.registry is None else all_of(_AVRO, REGISTRY_PACKAGES)

    def ask(self) -> str | None:
        """The findings of a request to the registry; for a sink, the schema by which its results are going to be
        written."""
        if self.registry is None:
            return None
        otherwise = "register a schema, or write auto_register: true"
        if self.registry.auto_register:
            derived = self.schema_ is None
            otherwise = "a schema is derived from the first results" if derived else "that of the codec is registered"
        record = self.record_name if self.schema_ is None else _record_name(schema_text(self.schema_))
        return SchemaRegistry(self.registry).about(self.sink_topic, record, otherwise)

    def read_fields(self) -> PayloadFields | None:
        """Those of the reader's schema, or without a registry of the schema."""
        own = self.schema_ if self.registry is None else None
        schema = self.reader_schema if self.reader_schema is not None else own
        return None if schema is None else _own(schema_text(schema), self.decimals).fields

    def written_fields(self, *, ask: bool = False) -> PayloadFields | None:
        """Those of the schema of results, which with `ask` may be that of the subject."""
        if self.schema_ is not None:
            return _own(schema_text(self.schema_), self.decimals).fields
        if not ask or self.registry is None:
            return None
        registry = SchemaRegistry(self.registry)
        found = registry.latest(registry.subject(self.sink_topic, self.record_name))
        return None if found is None else _registered(found, self.decimals).fields

    def build(self) -> Avro:
        """The codec. Raises `MissingPackageError`, `DefinitionError` for a schema that cannot be read or used, and
        `HotPathError` if the compiled form is insisted on and was not built.
        """
        return Avro(self)


class Avro(Codec):
    """One record for each row.

    codec = AvroConfig(schema={"type": "record", ...}).build()
    """

    opens_images: ClassVar[bool] = True

    def __init__(self, config: AvroConfig) -> None:
        try:
            import fastavro
        except ImportError:
            raise MissingPackageError("fastavro", "avro", "the codec avro") from None
        self._read_one: Callable[..., Any] = fastavro.schemaless_reader
        self._config = config
        self._registry = None if config.registry is None else SchemaRegistry(config.registry)
        self._given = None if config.schema_ is None else self._own(schema_text(config.schema_))
        self._reader = None if config.reader_schema is None else self._own(schema_text(config.reader_schema))
        self._text = None if config.schema_ is None else schema_text(config.schema_)
        self._writer: _Writer | None = None
        self._hot_path = taken(config.hot_path)
        self._native = compiled(config.hot_path)
        self._compiled = (
            None if self._native is None else CompiledAvroReader(self._native, self._reader, config.max_bytes)
        )
        if self._registry is not None and config.sink_topic is not None:
            self._registry.subject(config.sink_topic, config.record_name)

    @property
    def hot_path(self) -> HotPathReport:
        """Compiled where that was built and is wanted."""
        return self._hot_path

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """A row for each record, with its fields that are not null."""
        headers = None if self._registry is None else schema_headers(records)
        decoded = self._decode_compiled(records, wanted or frozenset(), first, headers)
        if decoded is None:
            decoded = self._decode_plain(records, wanted, first, headers)
        return decoded if self._registry is None else without_schemas(decoded, records, first)

    def _decode_plain(
        self,
        records: Records,
        wanted: frozenset[str] | None,
        first: int,
        headers: Sequence[bytes | None] | None,
    ) -> Decoded:
        payloads = _Payloads(self._config.max_bytes, {}, headers)
        alike = self._read_together(records.values, payloads)
        if alike is not None:
            rows, schema = alike
            numbers = list(range(first, first + len(rows)))
            return decoded_rows(records, first, wanted, rows, numbers, {}, names=(self._reader or schema).names)
        rows, places, wrong = self._read_each(enumerate(records.values), payloads)
        numbers, failed = [first + row for row in places], {first + row: error for row, error in wrong.items()}
        names = None if self._reader is None else self._reader.names
        return decoded_rows(records, first, wanted, rows, numbers, failed, names=names)

    def _decode_compiled(
        self, records: Records, wanted: frozenset[str], first: int, headers: Sequence[bytes | None] | None
    ) -> Decoded | None:
        """As `_decode_plain`, read by the extension; `None` if it reads none of these records."""
        if self._compiled is None:
            return None
        parts, left = self._compiled.read(records.values, headers, wanted, self._schema_of)
        if not parts:
            return None
        failed: dict[int, Exception] = {}
        if left:
            payloads = _Payloads(self._config.max_bytes, {}, headers)
            rows, places, wrong = self._read_each(((row, records.values[row]) for row in left), payloads)
            failed = {first + row: error for row, error in wrong.items()}
            if rows:
                names = None if self._reader is None else self._reader.names
                found = read_rows_of(rows, wanted, RULES, names)
                keys = names or list(dict.fromkeys(key for row in rows for key in row))
                parts.append(AvroPart(found, np.array(places, np.int64), keys))
        part = joined_parts(parts, wanted)
        count = len(part.positions)
        whole = count == len(records)
        numbers: RowNumbers = row_range(first, count) if whole else part.positions + first
        return decoded_columns(records, first, part.found, numbers, failed)

    def encode(self, batch: Batch) -> Encoded:
        """A record for each row, by the schema of the results."""
        failed: dict[int, Exception] = {}
        together = None if self._writer is None else self._writer.together(batch)
        if self._writer is not None and together is not None:
            return Encoded(together, failed, self._writer.frame.headers(batch.size))
        rows = plain_rows(batch, AS_OBJECTS, failed)
        if not rows:
            return Encoded([], failed)
        writer = self._writer_for(rows, failed)
        if writer is None:
            return Encoded([None] * len(rows), failed)
        headers = writer.frame.headers(len(rows))
        values: list[bytes | None] = [None] * len(rows)
        for at, row in enumerate(rows):
            if at in failed:
                continue
            try:
                values[at] = writer.written(row)
            except WireError as error:
                failed[at] = error
        return Encoded(values, failed, headers)

    def _read_together(
        self, values: Sequence[Any], payloads: _Payloads
    ) -> tuple[list[dict[str, Any]], AvroSchema] | None:
        """The records of all payloads, if they are good and follow one schema; `None` if that is not so.

        They are read in one call, each followed by a guard: random bytes made after the payloads were received. If
        every guard is found in its place, every record ended where its payload does.
        """
        if len(values) < _MANY or set(map(type, values)) != {bytes} or max(map(len, values)) > payloads.most:
            return None
        begin = 0
        schema = self._given
        if payloads.headers is not None:
            frame = values[0][:ID_SIZE]
            if payloads.headers.count(None) < len(values) or not all(value.startswith(frame) for value in values):
                return None
            try:
                schema, begin = self._framed(values[0], None)
            except WireError:
                return None
            if begin != ID_SIZE:
                return None
        assert schema is not None
        guard = secrets.token_bytes(GUARD_SIZE)
        bodies = [value[begin:] for value in values] if begin else values
        joined = b"".join([_long(len(values)), guard.join(bodies), guard, b"\0"])
        try:
            text = io.BytesIO(joined)
            rows = self._read_one(text, schema.many, None if self._reader is None else self._reader.many)
        except Exception:  # noqa: BLE001 - one of them is no record: each is read by itself
            return None
        if len(rows) != len(values) or text.tell() != len(joined):
            return None
        return (rows, schema) if [row[GUARD] for row in rows].count(guard) == len(rows) else None

    def _read_each(
        self, values: Iterable[tuple[int, Any]], payloads: _Payloads
    ) -> tuple[list[dict[str, Any]], list[int], dict[int, Exception]]:
        """The records of these payloads, the rows of the records, and the errors of other payloads by row."""
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        failed: dict[int, Exception] = {}
        for row, payload in values:
            if payload is None:
                continue
            try:
                rows.append(self._read(payload, row, payloads))
            except ConnectorError:
                raise
            except Exception as error:  # noqa: BLE001 - fastavro raises many kinds for bytes that are no record
                failed[row] = error if isinstance(error, WireError) else _no_record(error)
            else:
                numbers.append(row)
        return rows, numbers, failed

    def _read(self, payload: Any, row: int, payloads: _Payloads) -> dict[str, Any]:
        raw = payload_bytes(payload, "avro")
        size, begin, schema = len(raw), 0, self._given
        if size > payloads.most:
            raise _too_large(size, payloads.most)
        if payloads.headers is not None:
            header = payloads.headers[row]
            frame = raw[:ID_SIZE] if header is None else None
            known = None if frame is None else payloads.schemas.get(frame)
            if known is None:
                schema, begin = self._framed(raw, header)
                if frame is not None and begin == ID_SIZE:
                    payloads.schemas[frame] = schema
            else:
                schema, begin = known, ID_SIZE
        assert schema is not None
        text = io.BytesIO(raw)
        text.seek(begin)
        found: dict[str, Any] = self._read_one(text, schema.one, None if self._reader is None else self._reader.one)
        if text.tell() != size:
            raise WireError(f"{size - text.tell()} bytes follow the record: it has another schema")
        return found

    def _schema_of(self, raw: bytes, header: bytes | None) -> tuple[AvroSchema, int]:
        """As `_framed`, also without a registry."""
        if self._registry is not None:
            return self._framed(raw, header)
        assert self._given is not None
        return self._given, 0

    def _framed(self, raw: bytes, header: bytes | None) -> tuple[AvroSchema, int]:
        """The schema of a payload, and where its record begins."""
        assert self._registry is not None
        of, rest, whole = framed(raw, header)
        return self._registry.parsed(of, self._parsed), 0 if whole is not None else len(raw) - len(rest)

    def _own(self, text: str) -> AvroSchema:
        return _own(text, self._config.decimals)

    def _parsed(self, registered: Registered) -> AvroSchema:
        return _registered(registered, self._config.decimals)

    def _writer_for(self, rows: Sequence[dict[str, Any]], failed: Container[int]) -> _Writer | None:
        """The writer of results, made when the first results are known. `None` if none of these can be written."""
        if self._writer is None:
            good = [row for at, row in enumerate(rows) if at not in failed]
            self._writer = self._made_writer(good) if good else None
        return self._writer

    def _made_writer(self, rows: list[dict[str, Any]]) -> _Writer:
        if self._registry is None:
            assert self._given is not None
            return _Writer(self._given, Frame(b""), self._native)
        if self._text is not None and self._given is not None:
            text = self._text
            registered = self._registry.written(
                self._registry.subject(self._config.sink_topic, _record_name(text)), "AVRO", text
            )
            return _Writer(self._given, self._registry.frame(registered), self._native)
        subject = self._registry.subject(self._config.sink_topic, self._config.record_name)
        latest = self._registry.latest(subject)
        if latest is not None:
            try:
                return _Writer(self._parsed(latest), self._registry.frame(latest), self._native)
            except WireError as error:
                raise ConnectorError(f"the schema of the subject {subject} cannot be used: {error}") from None
        if not self._registry.config.auto_register:
            raise ConnectorError(
                f"the schema registry {self._registry.config.url} has no subject {subject}: register a schema for the "
                "results, or give the codec one (schema: FILE) or auto_register: true"
            )
        try:
            text = derived_schema(rows, self._config.record_name)
        except WireError as error:
            raise ConnectorError(str(error)) from None
        _log.info("the schema of results, as the first ones are, is registered as %s: %s", subject, _compact(text))
        registered = self._registry.written(subject, "AVRO", _compact(text))
        return _Writer(self._own(text), self._registry.frame(registered), self._native)


@dataclass(slots=True)
class _Payloads:
    """The payloads of a block: limits, schemas and headers."""

    most: int
    """The largest size."""
    schemas: dict[bytes, AvroSchema]
    """Schemas by the bytes that begin payloads: nearly all payloads of a block begin with the id of the same schema."""
    headers: Sequence[bytes | None] | None
    """The headers that name schemas; `None` without a registry."""


class _Writer:
    """Writes rows by one schema."""

    def __init__(self, schema: AvroSchema, frame: Frame, native: ModuleType | None) -> None:
        import fastavro

        self.frame = frame
        self.names = frozenset(schema.names)
        self._write: Callable[..., None] = fastavro.schemaless_writer
        self._schema = schema
        self._values = AvroValues(schema)
        self._compiled = None if native is None else CompiledAvroWriter(native, schema, frame.prefix)

    def together(self, batch: Batch) -> Sequence[bytes | None] | None:
        """The payloads of all rows, by the extension or in one call of fastavro; `None` if neither can do that."""
        batch = with_scalars(batch, self._values.scalars)
        written = None if self._compiled is None else self._compiled.written(batch)
        return self._in_one_call(batch) if written is None and batch.size >= _MANY else written

    def _in_one_call(self, batch: Batch) -> list[bytes] | None:
        """The payloads with a guard between them; `None` if a row lacks a value that others have, or if one cannot be
        written.
        """
        guard, prefix = secrets.token_bytes(GUARD_SIZE), self.frame.prefix
        alike = alike_rows(batch, {GUARD: guard})
        if alike is None or not self.names.issuperset(alike[0]):
            return None
        names, rows = alike
        if not all(self._values.all_fit(name, [row[name] for row in rows]) for name in names):
            return None
        buffer = io.BytesIO()
        try:
            self._write(buffer, self._schema.many, rows)
        except Exception:  # noqa: BLE001 - the caller then writes each row by itself, and finds the row
            return None
        parts = buffer.getvalue().split(guard)
        if len(parts) != len(rows) + 1:
            return None
        parts[0] = parts[0].removeprefix(_long(len(rows)))
        del parts[-1]
        return [prefix + part for part in parts] if prefix else parts

    def written(self, row: Mapping[str, Any]) -> bytes:
        """The payload of a row."""
        if not row.keys() <= self.names:
            other = next(key for key in row if key not in self.names)
            raise WireError(
                f'the schema of the results has no field "{other}"{nearest(other, self.names)}; choose what the sink '
                "writes (keys: [NAME], drop: [NAME]), or add the field"
            )
        if not self._values.fit(row):
            row = self._values.fitted(row)
            if not self._values.fit(row):
                raise self._refused(row)
        try:
            return self._as_it_is(row)
        except Exception as error:  # noqa: BLE001 - fastavro raises many kinds for values that are none of the schema
            raise self._refused(row, error) from None

    def _as_it_is(self, row: Mapping[str, Any]) -> bytes:
        buffer = io.BytesIO()
        buffer.write(self.frame.prefix)
        self._write(buffer, self._schema.one, row)
        return buffer.getvalue()

    def _refused(self, row: Mapping[str, Any], error: Exception | None = None) -> WireError:
        why = self._values.why(row) or self._why(row, error)
        return WireError(f"the values do not follow the schema of the results: {why}")

    def _why(self, row: Mapping[str, Any], error: Exception | None) -> str:
        from fastavro.validation import ValidationError, validate

        try:
            validate(row, self._schema.one)
        except ValidationError as found:
            return "; ".join(str(one) for one in found.errors)
        except Exception as found:  # noqa: BLE001 - our logical types raise errors with a reason
            return str(found)
        return f"{type(error).__name__}: {error}"


_CODECS: Final[Mapping[str, str]] = {"JSON": "json-schema", "PROTOBUF": "protobuf"}


def _own(text: str, decimals: avroschema.Decimals) -> AvroSchema:
    """A schema of the service file. It must contain all types that it names."""
    try:
        return avroschema.parsed(text, {}, decimals)
    except WireError as error:
        raise DefinitionError(str(error)) from None


def _registered(registered: Registered, decimals: avroschema.Decimals) -> AvroSchema:
    if registered.kind != "AVRO":
        raise WireError(f"the schema is {registered.kind}, not AVRO; use the codec {_CODECS.get(registered.kind)}")
    others = {name: one.text for name, one in registered.references.items()}
    return avroschema.parsed(registered.text, others, decimals)


def _record_name(text: str) -> str:
    schema = json.loads(text)
    space, name = schema.get("namespace", ""), schema["name"]
    return f"{space}.{name}" if space and "." not in name else str(name)


def _compact(text: str) -> str:
    return json.dumps(json.loads(text), separators=(",", ":"))


def _long(number: int) -> bytes:
    """A number from 0 as Avro writes it."""
    made, rest = bytearray(), number << 1
    while rest > 0x7F:
        made.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*made, rest])


def _no_record(error: Exception) -> WireError:
    # fastavro's own text for it names an object in memory.
    why = "it ends too soon" if isinstance(error, EOFError) else f"{type(error).__name__}: {error}"
    return WireError(f"the payload does not follow its schema: {why}")


def _too_large(size: int, most: int) -> WireError:
    return WireError(
        f"the payload has {size} bytes, more than {most}; raise max_bytes of the codec if such records are expected"
    )
