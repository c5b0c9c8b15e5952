"""The codec `cloudevents`: it reads and writes the attributes of events, and another codec their data."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from connectors.codec import Decoded, Encoded, RecordsOrigin
from connectors.codecs.cloudevents.config import CloudEventsConfig
from connectors.codecs.cloudevents.events import (
    OPTIONAL,
    REQUIRED,
    STRUCTURED,
    VERSION,
    Attribute,
    Event,
    binary,
    is_attribute,
    is_json,
    milliseconds,
    structured,
    timestamp,
)
from connectors.codecs.cloudevents.texts import text_of
from connectors.codecs.described import CONTENT_TYPE, header_texts, media_type
from connectors.codecs.registry import codec_of
from connectors.codecs.rows import payload_bytes, read_each
from connectors.codecs.wrapping import Wrapper
from connectors.records import Header, Records
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.data.data import RecordContext
from pipelines.errors import WireError
from pipelines.values import type_of

_PREFIXES: Final = ("ce_", "ce-")
_TYPES: Final[Mapping[str, str]] = {
    "json": "application/json",
    "konduit-json": "application/json",
    "text": "text/plain; charset=utf-8",
    "protodata": "application/x-protobuf",
    "sparkplug": "application/x-protobuf",
    "protobuf": "application/x-protobuf",
    "json-schema": "application/json",
    "avro": "application/vnd.apache.avro+binary",
    "csv": "text/csv; charset=utf-8",
    "msgpack": "application/vnd.msgpack",
}
"""The media types of codecs' payloads, by codec; for all other codecs it is `application/octet-stream`."""
_WRITTEN: Final[Mapping[str, str | None]] = {
    "source": "/{record.source}",
    "type": "result",
    "time": "{record.timestamp}",
}


class CloudEvents(Wrapper):
    """Events in either mode, row by row. An event without data is a row with its attributes only.

    codec = CloudEventsConfig(attributes={"source": "device"}, write={"type": "com.example.score"}).build()
    """

    def __init__(self, config: CloudEventsConfig | None = None) -> None:
        self._config = config or CloudEventsConfig()
        super().__init__(codec_of(self._config.codec, self._config.sink_topic))
        self._content_type = self._config.content_type or _TYPES.get(
            self._config.wrapped.type, "application/octet-stream"
        )
        written = {**_WRITTEN, **self._config.write}
        self._texts = {name: text_of(text) for name, text in written.items() if text is not None}
        self._keys = {key for text in self._texts.values() for key in text.keys}

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """The data, decoded by the inner codec, with attributes as values. Headers that were attributes are removed
        from the records."""
        headers = header_texts(records)
        events, failed = read_each(records, first, lambda row, payload: self._event(payload, headers[row]))
        data = [None if row not in events else events[row].data for row in range(len(records))]
        inside = self._inside.decode(records.with_values(data), wanted, first)
        bare = [first + row for row, event in events.items() if event.data is None]
        batch = _with_rows(inside.batch, bare)
        rows = (batch.rows - first).tolist()
        columns = {
            key: Column.of([_value(events[row].attributes, name) for row in rows])
            for name, key in self._config.attributes.items()
        }
        inner = inside.batch.origin
        origin = inner if isinstance(inner, RecordsOrigin) else RecordsOrigin(records, first)
        origin = origin.of_payloads(records, _EventHeaders(self._config.prefix))
        decoded = batch.with_columns(columns) if rows else batch
        return Decoded(decoded.with_origin(origin), failed | dict(inside.failed))

    def encode(self, batch: Batch) -> Encoded:
        """An event for each row; its data are the payload that the inner codec writes."""
        inside = self._inside.encode(batch)
        failed: dict[int, Exception] = dict(inside.failed)
        values: list[bytes | None] = [None] * batch.size
        headers: list[Sequence[Header]] = [()] * batch.size
        rows = self._values(batch, failed)
        ids: dict[str, int] = {}
        for at, data in enumerate(inside.values):
            if data is None or at in failed:
                continue
            try:
                attributes = self._attributes(rows[at], batch, at, ids)
                if self._config.mode == "structured":
                    values[at] = self._document(attributes, data)
                    headers[at] = [(CONTENT_TYPE, STRUCTURED.encode())]
                else:
                    inner = () if inside.headers is None else inside.headers[at]
                    values[at], headers[at] = data, [*inner, *self._headers(attributes)]
            except Exception as error:  # noqa: BLE001 - as above
                failed[at] = error
        return Encoded(values, failed, headers)

    def _event(self, payload: object, headers: Mapping[str, str]) -> Event:
        raw = payload_bytes(payload, "cloudevents")
        if len(raw) > self._config.max_bytes:
            raise WireError(
                f"the payload has {len(raw)} bytes, more than {self._config.max_bytes}; "
                "raise max_bytes of the codec if such events are expected"
            )
        content_type = headers.get(CONTENT_TYPE)
        kind = media_type(content_type)
        if kind.startswith("application/cloudevents"):
            if kind != STRUCTURED:
                raise WireError(f"events as {kind[:60]} cannot be read, only {STRUCTURED} and binary mode")
            return structured(raw)
        for prefix in _PREFIXES if self._config.prefix else ("",):
            if f"{prefix}specversion" in headers:
                attributes = {
                    name.removeprefix(prefix): value
                    for name, value in headers.items()
                    if name.startswith(prefix) and (prefix or is_attribute(name))
                }
                return binary(attributes, content_type, raw)
        return structured(raw)

    def _values(self, batch: Batch, failed: dict[int, Exception]) -> list[dict[str, Any]]:
        """The values of each row from which attributes are made."""
        rows: list[dict[str, Any]] = [{} for _ in range(batch.size)]
        for key in self._keys & batch.columns.keys():
            for row, value in batch.column(key).cells(failed):
                rows[row][key] = value
        return rows

    def _attributes(
        self, values: Mapping[str, Any], batch: Batch, at: int, ids: dict[str, int]
    ) -> dict[str, Attribute]:
        records = _records(batch, at)
        record = records[0] if records else None
        made: dict[str, Attribute] = {"specversion": VERSION}
        if record is None and "source" not in self._config.write:
            made["source"] = "/"
        if "id" not in self._texts:
            made["id"] = _derived_id(records, ids)
        for name, text in self._texts.items():
            value = text.made(values, record)
            if name == "time" and isinstance(value, int) and not isinstance(value, bool):
                value = timestamp(value)
            if value is None or value == "":
                if name in REQUIRED and name not in made:
                    raise WireError(f"the {name} of the event cannot be made: {_named(self._config.write.get(name))}")
                continue
            if not isinstance(value, (str, bool, int)):
                raise WireError(f"the {name} of the event cannot be of type {type_of(value).name}")
            made[name] = _attribute(name, value)
        if "time" in made:
            milliseconds(made["time"])
        made["datacontenttype"] = self._content_type
        return made

    def _document(self, attributes: Mapping[str, Attribute], data: bytes) -> bytes:
        name, text = self._as_text(data)
        head = json.dumps(attributes, ensure_ascii=False, separators=(",", ":"))
        return f'{head[:-1]},"{name}":{text}}}'.encode()

    def _as_text(self, data: bytes) -> tuple[str, str]:
        """The member of an event that holds the data, and its JSON."""
        try:
            if is_json(self._content_type):
                text = data.decode()
                json.loads(text)
                # Data of null would mean that the event has no data.
                if text.strip() != "null":
                    return "data", text
            elif media_type(self._content_type).startswith("text/"):
                return "data", json.dumps(data.decode(), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
        return "data_base64", f'"{base64.b64encode(data).decode()}"'

    def _headers(self, attributes: Mapping[str, Attribute]) -> list[Header]:
        return [
            (CONTENT_TYPE if name == "datacontenttype" else f"{self._config.prefix}{name}", _header(value))
            for name, value in attributes.items()
        ]


class _EventHeaders:
    """The names of the headers that hold attributes of an event."""

    def __init__(self, prefix: str) -> None:
        self._bare = frozenset((*REQUIRED, *OPTIONAL)) if not prefix else frozenset()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name == CONTENT_TYPE or name.startswith(_PREFIXES) or name in self._bare)


def _with_rows(batch: Batch, rows: list[int]) -> Batch:
    """The batch with rows of these numbers that have no values, all in order."""
    if not rows:
        return batch
    joined = Batch.concat([batch, Batch({}, len(rows), rows=np.array(rows, np.int64))])
    return joined.take(np.argsort(joined.rows, kind="stable"))


def _value(attributes: Mapping[str, Attribute], name: str) -> Any:
    value = attributes.get(name, MISSING)
    return milliseconds(value) if name == "time" and isinstance(value, str) else value


def _records(batch: Batch, at: int) -> list[RecordContext]:
    """The records that a row came from: the first, and if there are more the last."""
    if batch.origin is None:
        return []
    parents = batch.parents(at).tolist()
    records = [batch.origin.record(number) for number in dict.fromkeys((*parents[:1], *parents[-1:]))]
    return [record for record in records if record is not None]


def _derived_id(records: Sequence[RecordContext], ids: dict[str, int]) -> str:
    """The id of an event by the records that it came from: the same whenever they are tried again."""
    if not records:
        return str(uuid.uuid4())
    event_id = "..".join(f"{record.topic}/{record.partition}/{record.offset}" for record in records)
    # A record may have several results.
    ids[event_id] = ids.get(event_id, 0) + 1
    return event_id if ids[event_id] == 1 else f"{event_id}#{ids[event_id]}"


def _attribute(name: str, value: Attribute) -> Attribute:
    """The value as an attribute: those of the specification are texts, and integers have 32 bits."""
    extension = name not in REQUIRED and name not in OPTIONAL
    if extension and (isinstance(value, (str, bool)) or -(1 << 31) <= value < 1 << 31):
        return value
    return _plain(value)


def _plain(value: Attribute) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _named(text: str | None) -> str:
    return "it came from no record" if text is None else f"a value that {text!r} names is missing or empty"


def _header(value: Attribute) -> bytes:
    return _plain(value).encode()
