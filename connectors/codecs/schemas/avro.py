"""`avro`: payloads are Avro records, of a schema registry or of a schema that both sides know."""

from __future__ import annotations

import io
import json
import logging
import secrets
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, model_validator

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig, PayloadFields
from connectors.codecs.onevalue import with_scalars
from connectors.codecs.plainrows import AS_OBJECTS, alike_rows, decoded_columns, decoded_rows, read_rows_of
from connectors.codecs.rows import payload_bytes
from connectors.codecs.schemas import avroschema
from connectors.codecs.schemas.avroschema import GUARD, GUARD_SIZE, AvroSchema, PayloadSchema
from connectors.codecs.schemas.avrotypes import why_not_read
from connectors.codecs.schemas.avrovalues import AvroValues
from connectors.codecs.schemas.compiledavro import AvroPart, CompiledAvroReader, joined_parts
from connectors.codecs.schemas.compiledavrowriter import CompiledAvroWriter
from connectors.codecs.schemas.config import REGISTRY_PACKAGES, RegistryConfig
from connectors.codecs.schemas.derived import derived_schema
from connectors.codecs.schemas.framing import ID_SIZE, Frame, framed, schema_headers, without_schemas
from connectors.codecs.schemas.registry import Registered, SchemaRegistry
from connectors.codecs.schemas.schemafile import schema_text
from connectors.localpath import LocalPath
from connectors.records import Records
from connectors.units import Size
from pipelines.data.batch import Batch
from pipelines.data.rowrange import RowNumbers, row_range
from pipelines.errors import ConnectorError, DefinitionError, MissingPackageError, WireError
from pipelines.hotpath import HotPathReport, choose
from pipelines.plugins.requirements import Package, Requires, all_of
from pipelines.wire.plainvalues import RULES, plain_rows

_log = logging.getLogger(__name__)

_AVRO: Final = Package("fastavro", "avro")
_MANY: Final = 8
"""Records from which on they are read together."""


class AvroConfig(CodecConfig):
    """Avro records: with a schema registry, or by a schema in a file. Times are milliseconds, decimals numbers or texts, null is absence."""  # noqa: E501

    built_by: ClassVar[str] = "connectors.codecs.schemas.avro:Avro"

    type: Literal["avro"] = "avro"
    """The type of codec."""
    registry: RegistryConfig | None = None
    """The schema registry, `{url: http://localhost:8081}`; without one payloads are bare records of `schema`."""
    schema_: LocalPath | dict[str, Any] | None = Field(default=None, alias="schema")
    """The schema that results are written by, and without a registry also the schema of payloads that are read: a file, `readings.avsc`, or the schema itself. With a registry it may be left out: then it is the latest one of the subject, or, with `auto_register`, derived from the first results where there is none."""  # noqa: E501
    reader_schema: LocalPath | dict[str, Any] | None = None
    """The schema that payloads are read as, by Avro's rules: fields that this schema lacks are skipped, and fields that a payload lacks have its defaults."""  # noqa: E501
    type_key: str | None = None
    """Key under which a record gets the name of its type, such as `com.shop.Order`: to tell the records of a topic with several types apart."""  # noqa: E501
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

    def read_fields(self, topic: str | None = None) -> PayloadFields | None:
        """Those of the reader's schema, or without a registry of the schema; with a topic, of its latest schema."""
        with _definition_errors():
            if self.reader_schema is not None:
                schema = avroschema.reader_schema(schema_text(self.reader_schema), self.decimals)
            else:
                texts = self._texts_of_payloads(topic)
                if texts is None:
                    return None
                first, *others = avroschema.payload_schema(*texts, self.decimals).branches
                if first is None or others:
                    return None
                schema = first
        own = set() if self.type_key is None else {self.type_key}
        return replace(schema.fields, names=schema.fields.names | own)

    def _texts_of_payloads(self, topic: str | None) -> tuple[str, Mapping[str, str]] | None:
        """The schema of payloads and those that it refers to, as far as they are known."""
        if self.registry is None:
            return None if self.schema_ is None else (schema_text(self.schema_), {})
        if topic is None:
            return None
        registry = SchemaRegistry(self.registry)
        found = registry.latest(registry.subject(topic, self.record_name))
        return None if found is None else _avro_texts(found)

    def written_fields(self, *, ask: bool = False) -> PayloadFields | None:
        """Those of the schema of results, which with `ask` may be that of the subject."""
        if self.schema_ is not None:
            with _definition_errors():
                return avroschema.record_schema(schema_text(self.schema_), {}, self.decimals).fields
        if not ask or self.registry is None:
            return None
        registry = SchemaRegistry(self.registry)
        found = registry.latest(registry.subject(self.sink_topic, self.record_name))
        return None if found is None else avroschema.record_schema(*_avro_texts(found), self.decimals).fields


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
        self._text = None if config.schema_ is None else schema_text(config.schema_)
        self._given: PayloadSchema | None = None
        self._results: AvroSchema | WireError | None = None
        self._reader: AvroSchema | None = None
        with _definition_errors():
            if config.reader_schema is not None:
                self._reader = avroschema.reader_schema(schema_text(config.reader_schema), config.decimals)
            if self._text is not None:
                self._given = self._checked(avroschema.payload_schema(self._text, {}, config.decimals))
                self._results = self._result_schema(self._text)
        if isinstance(self._results, WireError) and (config.sink_topic is not None or self._registry is not None):
            raise DefinitionError(str(self._results))
        self._writer: _Writer | None = None
        self._native, self._hot_path, _ = choose()
        self._compiled = (
            None
            if self._native is None
            else CompiledAvroReader(self._native, self._reader, config.max_bytes, config.type_key)
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
            return decoded_rows(records, first, wanted, rows, numbers, {}, names=self._names(schema))
        rows, places, wrong = self._read_each(enumerate(records.values), payloads)
        numbers, failed = [first + row for row in places], {first + row: error for row, error in wrong.items()}
        names = self._names_of(rows)
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
                names = self._names_of(rows)
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
        if payloads.headers is not None and payloads.headers.count(None) < len(values):
            return None
        try:
            schema, begin = self._schema_of(values[0], None)
        except WireError:
            return None
        before = values[0][:begin]
        if schema is None or not all(value.startswith(before) for value in values):
            return None
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
        if [row.pop(GUARD) for row in rows].count(guard) != len(rows):
            return None
        if self._config.type_key is not None:
            for row in rows:
                row[self._config.type_key] = schema.name
        return rows, schema

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
            except WireError as error:
                failed[row] = error
            else:
                numbers.append(row)
        return rows, numbers, failed

    def _read(self, payload: Any, row: int, payloads: _Payloads) -> dict[str, Any]:
        """The record, which is empty for null. Raises `WireError`."""
        raw = payload_bytes(payload, "avro")
        size = len(raw)
        if size > payloads.most:
            raise _too_large(size, payloads.most)
        header = None if payloads.headers is None else payloads.headers[row]
        known = payloads.schemas.get(raw[:ID_SIZE]) if header is None and self._registry is not None else None
        schema, begin = (known, ID_SIZE) if known is not None else self._schema_of(raw, header)
        if begin == ID_SIZE and schema is not None and header is None and self._registry is not None:
            payloads.schemas[raw[:ID_SIZE]] = schema
        text = io.BytesIO(raw)
        text.seek(begin)
        found: dict[str, Any] = {}
        if schema is not None:
            try:
                found = self._read_one(text, schema.one, None if self._reader is None else self._reader.one)
            except Exception as error:  # noqa: BLE001 - fastavro raises many kinds for bytes that are no record
                raise _no_record(error, schema, self._reader) from None
        if text.tell() != size:
            raise WireError(f"{size - text.tell()} bytes follow the record: it has another schema")
        if self._config.type_key is not None:
            found[self._config.type_key] = "null" if schema is None else schema.name
        return found

    def _schema_of(self, raw: bytes, header: bytes | None) -> tuple[AvroSchema | None, int]:
        """The schema of a payload with this header or none, and where its record begins; no schema is null."""
        if self._registry is None:
            assert self._given is not None
            return self._given.of(raw, 0)
        of, rest, whole = framed(raw, header)
        return self._registry.parsed(of, self._parsed).of(raw, 0 if whole is not None else len(raw) - len(rest))

    def _parsed(self, registered: Registered) -> PayloadSchema:
        return self._checked(avroschema.payload_schema(*_avro_texts(registered), self._config.decimals))

    def _checked(self, schema: PayloadSchema) -> PayloadSchema:
        key = self._config.type_key
        for one in schema.branches:
            if one is not None and key in (self._reader or one).names:
                raise WireError(f'the record {one.name} has a field "{key}", which type_key takes; choose another key')
        return schema

    def _names(self, schema: AvroSchema) -> tuple[str, ...]:
        """The keys of each record of this schema."""
        names = (self._reader or schema).names
        return names if self._config.type_key is None else (*names, self._config.type_key)

    def _names_of(self, rows: Sequence[dict[str, Any]]) -> tuple[str, ...] | None:
        """The keys of each of these records, if all have the same for certain."""
        if self._reader is None:
            return None
        names = self._names(self._reader)
        return names if all(len(row) == len(names) for row in rows) else None

    def _result_schema(self, text: str) -> AvroSchema | WireError:
        """The schema of results; the error of a schema that only payloads can have."""
        try:
            schema = avroschema.record_schema(text, {}, self._config.decimals)
            AvroValues(schema)
        except WireError as error:
            return error
        return schema

    def _writer_for(self, rows: Sequence[dict[str, Any]], failed: Container[int]) -> _Writer | None:
        """The writer of results, made when the first results are known. `None` if none of these can be written."""
        if self._writer is None:
            good = [row for at, row in enumerate(rows) if at not in failed]
            self._writer = self._made_writer(good) if good else None
        return self._writer

    def _made_writer(self, rows: list[dict[str, Any]]) -> _Writer:
        schema, text = self._results, self._text
        if isinstance(schema, WireError):
            raise ConnectorError(f"results cannot be written by the schema of the codec: {schema}")
        if self._registry is None:
            assert schema is not None
            return _Writer(schema, Frame(b""), self._native)
        if text is not None and schema is not None:
            registered = self._registry.written(
                self._registry.subject(self._config.sink_topic, _record_name(text)), "AVRO", text
            )
            return _Writer(schema, self._registry.frame(registered), self._native)
        subject = self._registry.subject(self._config.sink_topic, self._config.record_name)
        latest = self._registry.latest(subject)
        if latest is not None:
            try:
                schema = avroschema.record_schema(*_avro_texts(latest), self._config.decimals)
                return _Writer(schema, self._registry.frame(latest), self._native)
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
        schema = avroschema.record_schema(text, {}, self._config.decimals)
        return _Writer(schema, self._registry.frame(registered), self._native)


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
        self._write: Callable[..., None] = fastavro.schemaless_writer
        self._schema = schema.bare()
        self._values = AvroValues(schema)
        self._names = frozenset(schema.names)
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
        if not self._names.issuperset(batch.columns):
            return None
        lacking = self._values.lacking(batch.columns)
        guard, prefix = secrets.token_bytes(GUARD_SIZE), self.frame.prefix
        alike = None if lacking is None else alike_rows(batch, {**lacking, GUARD: guard})
        if alike is None:
            return None
        names, rows = alike
        for name in names:
            given = [row[name] for row in rows]
            values = self._values.column(name, given)
            if values is None:
                return None
            if values is not given:
                for row, value in zip(rows, values, strict=True):
                    row[name] = value
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
        """The payload of a row. Raises `WireError` for one that the schema cannot hold."""
        buffer = io.BytesIO()
        buffer.write(self.frame.prefix)
        try:
            self._write(buffer, self._schema.one, self._values.row(row))
        except WireError as error:
            raise WireError(f"the values do not follow the schema of the results: {error}") from None
        except Exception as error:  # noqa: BLE001 - fastavro raises many kinds for values that are none of the schema
            raise WireError(
                f"the values do not follow the schema of the results: {type(error).__name__}: {error}"
            ) from None
        return buffer.getvalue()


_CODECS: Final[Mapping[str, str]] = {"JSON": "json-schema", "PROTOBUF": "protobuf"}


@contextmanager
def _definition_errors() -> Iterator[None]:
    """An error of a schema is one of the service file that has it."""
    try:
        yield
    except WireError as error:
        raise DefinitionError(str(error)) from None


def _avro_texts(registered: Registered) -> tuple[str, Mapping[str, str]]:
    """The text of a schema, and those that it refers to. Raises `WireError` if it is no schema of Avro."""
    if registered.kind != "AVRO":
        raise WireError(f"the schema is {registered.kind}, not AVRO; use the codec {_CODECS.get(registered.kind)}")
    return registered.text, {name: one.text for name, one in registered.references.items()}


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


def _no_record(error: Exception, schema: AvroSchema, reader: AvroSchema | None) -> WireError:
    if type(error).__name__ == "SchemaResolutionError" and reader is not None:
        # fastavro's own text has both schemas, as Python writes them.
        why = why_not_read(schema, reader)
        if why is not None:
            return WireError(f"the payload cannot be read by reader_schema: {why}")
    # fastavro's own text for it names an object in memory.
    why = "it ends too soon" if isinstance(error, EOFError) else f"{type(error).__name__}: {str(error)[:300]}"
    return WireError(f"the payload does not follow its schema: {why}")


def _too_large(size: int, most: int) -> WireError:
    return WireError(
        f"the payload has {size} bytes, more than {most}; raise max_bytes of the codec if such records are expected"
    )
