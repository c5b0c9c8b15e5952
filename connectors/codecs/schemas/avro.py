"""`avro`: payloads are Avro records, of a schema registry or of a schema that both sides know."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from types import ModuleType
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig, PayloadFields
from connectors.codecs.plainrows import AS_OBJECTS, decoded_columns
from connectors.codecs.rows import payload_bytes
from connectors.codecs.schemas import avroschema
from connectors.codecs.schemas.avroschema import AvroSchema, PayloadSchema
from connectors.codecs.schemas.avrotypes import why_not_read
from connectors.codecs.schemas.avrovalues import AvroValues, unwritable
from connectors.codecs.schemas.compiledavro import AvroPart, CompiledAvroReader, joined_parts
from connectors.codecs.schemas.compiledavrowriter import CompiledAvroWriter
from connectors.codecs.schemas.config import REGISTRY_PACKAGES, RegistryConfig
from connectors.codecs.schemas.derived import derived_schema
from connectors.codecs.schemas.framing import Frame, framed, schema_headers, without_schemas
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
from pipelines.wire.plainvalues import plain_rows, read_rows

_log = logging.getLogger(__name__)

_AVRO: Final = Package("fastavro", "avro")


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
    value_key: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Key of the value of a payload that is no record, but a number, a text or a list (`"long"`, `["null", "string"]`). By default such payloads are errors, and such a schema cannot be used."""  # noqa: E501
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

    def of_values(self, key: str) -> Self:
        """As `CodecConfig.of_values`: payloads that are no records have their value under `key`."""
        return self if self.value_key is not None else self.model_copy(update={"value_key": key})

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
                first, *others = avroschema.payload_schema(*texts, self.decimals, self.value_key).branches
                if first is None or others:
                    return None
                schema = first
        extra = set() if self.type_key is None else {self.type_key}
        return replace(schema.fields, names=schema.fields.names | extra)

    def _texts_of_payloads(self, topic: str | None) -> tuple[str, Mapping[str, str]] | None:
        """The schema of payloads and those that it refers to, as far as they are known."""
        if self.registry is None:
            return None if self.schema_ is None else (schema_text(self.schema_), {})
        if topic is None:
            return None
        registry = SchemaRegistry(self.registry)
        latest = registry.latest(registry.subject(topic, self.record_name))
        return None if latest is None else _avro_texts(latest)

    def written_fields(self, *, ask: bool = False) -> PayloadFields | None:
        """Those of the schema of results, which with `ask` may be that of the subject."""
        if self.schema_ is not None:
            with _definition_errors():
                return avroschema.record_schema(schema_text(self.schema_), {}, self.decimals).fields
        if not ask or self.registry is None:
            return None
        registry = SchemaRegistry(self.registry)
        latest = registry.latest(registry.subject(self.sink_topic, self.record_name))
        return None if latest is None else avroschema.record_schema(*_avro_texts(latest), self.decimals).fields


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
                self._given = self._payload_schema(self._text, {})
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
        wanted = wanted or frozenset()
        headers = None if self._registry is None else schema_headers(records)
        parts: list[AvroPart] = []
        left: Iterable[int] = range(len(records))
        if self._compiled is not None:
            parts, left = self._compiled.read(records.values, headers, wanted, self._schema_of)
        rows, wrong = self._read_each(records.values, left, headers)
        if rows or not parts:
            names = list(dict.fromkeys(chain.from_iterable(rows.values()))) if parts else []
            read = read_rows(list(rows.values()), wanted)
            parts.append(AvroPart(read, np.fromiter(rows, np.int64, len(rows)), names))
        part = joined_parts(parts, wanted)
        whole = len(part.positions) == len(records)
        numbers: RowNumbers = row_range(first, len(records)) if whole else part.positions + first
        failed: dict[int, Exception] = {first + row: error for row, error in wrong.items()}
        decoded = decoded_columns(records, first, part.read, numbers, failed)
        return decoded if self._registry is None else without_schemas(decoded, records, first)

    def encode(self, batch: Batch) -> Encoded:
        """A record for each row, by the schema of the results."""
        failed: dict[int, Exception] = {}
        if not batch.size:
            return Encoded([], failed)
        self._writer = self._writer or self._made_writer(batch, failed)
        if self._writer is None:
            return Encoded([None] * batch.size, failed)
        values = self._writer.written(batch, failed)
        return Encoded(values, failed, self._writer.frame.headers(batch.size))

    def _read_each(
        self, payloads: Sequence[Any], rows: Iterable[int], headers: Sequence[bytes | None] | None
    ) -> tuple[dict[int, dict[str, Any]], dict[int, WireError]]:
        """The records of the payloads at these positions, and the errors of others, by position."""
        records: dict[int, dict[str, Any]] = {}
        failed: dict[int, WireError] = {}
        for row in rows:
            payload = payloads[row]
            if payload is None:
                continue
            try:
                records[row] = self._read(payload, None if headers is None else headers[row])
            except WireError as error:
                failed[row] = error
        return records, failed

    def _read(self, payload: Any, header: bytes | None) -> dict[str, Any]:
        """The record, which is empty for null. Raises `WireError`."""
        raw = payload_bytes(payload, "avro")
        if len(raw) > self._config.max_bytes:
            raise _too_large(len(raw), self._config.max_bytes)
        schema, begin = self._schema_of(raw, header)
        text = io.BytesIO(raw[begin:])
        values: dict[str, Any] = {} if schema is None else self._record(text, schema)
        left = len(raw) - begin - text.tell()
        if left:
            raise WireError(f"{left} bytes follow the record: it has another schema")
        if self._config.type_key is not None:
            values[self._config.type_key] = "null" if schema is None else schema.name
        return values

    def _record(self, text: io.BytesIO, schema: AvroSchema) -> dict[str, Any]:
        reader = self._reader
        try:
            if reader is None:
                record: dict[str, Any] = self._read_one(text, schema.parsed)
                return record
            record = self._read_one(text, schema.parsed, reader.parsed)
        except Exception as error:  # noqa: BLE001 - fastavro raises many kinds for bytes that are no record
            raise _no_record(error, schema, reader) from None
        # In the order of the reader's fields; fastavro has that of the payload.
        return {key: record[key] for key in reader.names}

    def _schema_of(self, raw: bytes, header: bytes | None) -> tuple[AvroSchema | None, int]:
        """The schema of a payload with this header or none, and where its record begins; no schema is null."""
        if self._registry is None:
            assert self._given is not None
            return self._given.of(raw, 0)
        of, rest, whole = framed(raw, header)
        return self._registry.parsed(of, self._parsed).of(raw, 0 if whole is not None else len(raw) - len(rest))

    def _parsed(self, registered: Registered) -> PayloadSchema:
        return self._payload_schema(*_avro_texts(registered))

    def _payload_schema(self, text: str, references: Mapping[str, str]) -> PayloadSchema:
        config = self._config
        return self._checked(avroschema.payload_schema(text, references, config.decimals, config.value_key))

    def _checked(self, schema: PayloadSchema) -> PayloadSchema:
        key = self._config.type_key
        for branch in schema.branches:
            if branch is not None and key in (self._reader or branch).names:
                raise WireError(
                    f'the record {branch.name} has a field "{key}", which type_key takes; choose another key'
                )
        return schema

    def _result_schema(self, text: str) -> AvroSchema | WireError:
        """The schema of results; the error of a schema that only payloads can have."""
        try:
            schema = avroschema.record_schema(text, {}, self._config.decimals)
            AvroValues(schema)
        except WireError as error:
            return error
        return schema

    def _made_writer(self, batch: Batch, failed: dict[int, Exception]) -> _Writer | None:
        """The writer of results, made when the first of them are known. `None` if a schema has to be derived from
        them, and none of them can be written; `failed` gets the errors."""
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
        rows = plain_rows(batch, AS_OBJECTS, failed)
        good = [row for at, row in enumerate(rows) if at not in failed]
        if not good:
            return None
        try:
            text = derived_schema(good, self._config.record_name)
        except WireError as error:
            raise ConnectorError(str(error)) from None
        _log.info("the schema of results, as the first ones are, is registered as %s: %s", subject, _compact(text))
        registered = self._registry.written(subject, "AVRO", _compact(text))
        schema = avroschema.record_schema(text, {}, self._config.decimals)
        return _Writer(schema, self._registry.frame(registered), self._native)


class _Writer:
    """Writes rows by one schema."""

    def __init__(self, schema: AvroSchema, frame: Frame, native: ModuleType | None) -> None:
        import fastavro

        self.frame = frame
        self._write: Callable[..., None] = fastavro.schemaless_writer
        self._schema = schema.parsed
        self._values = AvroValues(schema)
        self._compiled = None if native is None else CompiledAvroWriter(native, schema, frame.prefix)

    def written(self, batch: Batch, failed: dict[int, Exception]) -> Sequence[bytes | None]:
        """The payload of each row. `failed` gets the errors of the rows that the schema cannot hold."""
        spans = None if self._compiled is None else self._compiled.written(batch)
        if spans is not None:
            return spans
        rows = self._values.rows(batch, failed)
        values: list[bytes | None] = [None] * len(rows)
        for at, row in enumerate(rows):
            if at in failed:
                continue
            buffer = io.BytesIO()
            buffer.write(self.frame.prefix)
            try:
                self._write(buffer, self._schema, row)
            except Exception as error:  # noqa: BLE001 - fastavro raises many kinds for values that are none of the schema
                failed[at] = unwritable(f"{type(error).__name__}: {error}")
            else:
                values[at] = buffer.getvalue()
        return values


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
    return registered.text, {name: reference.text for name, reference in registered.references.items()}


def _record_name(text: str) -> str:
    schema = json.loads(text)
    space, name = schema.get("namespace", ""), schema["name"]
    return f"{space}.{name}" if space and "." not in name else str(name)


def _compact(text: str) -> str:
    return json.dumps(json.loads(text), separators=(",", ":"))


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
