"""How a record says which schema its payload follows: Confluent's framing, in the payload or in a header."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from connectors.codec import Decoded, RecordsOrigin
from connectors.records import Header, Records
from pipelines.errors import WireError

HEADER: Final = "__value_schema_id"
"""The header that names the schema, spelt as Confluent's clients expect it."""
KEY_HEADER: Final = "__key_schema_id"
"""The same for the record's key."""

_BY_ID, _BY_GUID = 0, 1
_ID: Final = struct.Struct(">BI")
_GUID_SIZE: Final = 17
_LONG_ID_SIZE: Final = 9
_FILE: Final = b"Obj\1"
_SINGLE_OBJECT: Final = b"\xc3\1"
_GLUE: Final = b"\3"
_GLUE_COMPRESSIONS: Final = (0, 5)
_GLUE_SIZE: Final = 18
ID_SIZE: Final = _ID.size
"""Bytes of a frame that names a schema by its id."""

SchemaRef = int | UUID
"""A schema of a registry: its id, or its GUID."""


class Framed(NamedTuple):
    """The parts of a framed payload."""

    schema: SchemaRef
    rest: bytes
    """The bytes after the schema's id: in a header only message indexes, else those and the payload."""
    payload: bytes | None
    """The payload, if a header holds the frame; `None`: the payload is in `rest`."""


def framed(payload: bytes, header: bytes | None) -> Framed:
    """The schema of a payload, whose record has this header or none. Raises `WireError` if neither names a schema."""
    raw = payload if header is None else header
    if len(raw) >= _ID.size and raw[0] == _BY_ID:
        schema: SchemaRef = int.from_bytes(raw[1 : _ID.size], "big")
        rest = raw[_ID.size :]
    elif len(raw) >= _GUID_SIZE and raw[0] == _BY_GUID:
        schema = UUID(bytes=raw[1:_GUID_SIZE])
        rest = raw[_GUID_SIZE:]
    elif header is not None:
        raise WireError(f"the header {HEADER} names no schema")
    else:
        raise WireError(_not_framed(raw))
    if schema == 0:
        raise WireError(_no_id(raw))
    return Framed(schema, rest, None if header is None else payload)


def foreign_form(payload: bytes) -> str | None:
    """Describe a framing other than Confluent's, with advice; `None` for any other payload."""
    if payload.startswith(_FILE):
        return "a whole Avro file: send its records one by one, as serializers for Kafka do"
    if payload.startswith(_SINGLE_OBJECT):
        return (
            "Avro's single-object encoding (C3 01 and the fingerprint of a schema), which no registry is asked for: "
            "write the records by a serializer with a registry, or without the first 10 bytes for a codec with schema "
            "and without registry"
        )
    if len(payload) >= _GLUE_SIZE and payload[:1] == _GLUE and payload[1] in _GLUE_COMPRESSIONS:
        return (
            f"AWS Glue's (schema version {UUID(bytes=payload[2:_GLUE_SIZE])}), which is not read here: let the "
            "producer use a serializer for Confluent's registries"
        )
    return None


def _not_framed(raw: bytes) -> str:
    form = foreign_form(raw)
    if form is not None:
        return f"the payload has another form than that of Confluent's registries: {form}"
    begin = f"begins with the byte {raw[0]}" if raw else "is empty"
    advice = "leave registry out, and give the codec its schema"
    if raw[:1] in (b"{", b"["):
        advice = "it looks like JSON; use the codec json, or the registry's serializer at the producer"
    return (
        f"the payload {begin}, and not with 0 and the id of a schema: it was not written through a registry; {advice}"
    )


def _no_id(raw: bytes) -> str:
    message = "the payload names the schema 0, and ids of schemas begin at 1"
    if len(raw) < _LONG_ID_SIZE:
        return message
    number = int.from_bytes(raw[1:_LONG_ID_SIZE], "big")
    return (
        f"{message}: the id seems to have 8 bytes ({number}), as Apicurio's serializers write it; let them write 4 "
        "(apicurio.registry.id-handler: io.apicurio.registry.serde.Legacy4ByteIdHandler, or "
        "apicurio.registry.as-confluent: true)"
    )


class Frame(NamedTuple):
    """How written messages name their schema: by bytes before the payload, or by a header."""

    prefix: bytes
    header: Header | None = None

    def headers(self, count: int) -> Sequence[Sequence[Header]] | None:
        """The headers of this many messages."""
        return None if self.header is None else [(self.header,)] * count


def without_schemas(decoded: Decoded, records: Records, first: int) -> Decoded:
    """The same without the headers that name schemas: results have others."""
    column = records.header_column()
    if column is None or not any(_named(row or ()) for row in column):
        return decoded
    bare = RecordsOrigin(records.without_headers((HEADER,)), first)
    return Decoded(decoded.batch.with_origin(bare), decoded.failed)


def by_id(schema_id: int) -> bytes:
    """The frame before a payload that names a schema by its id."""
    return _ID.pack(_BY_ID, schema_id)


def by_guid(guid: str) -> bytes:
    """The value of the header that names a schema by its GUID."""
    return bytes([_BY_GUID]) + UUID(guid).bytes


def schema_headers(records: Records) -> Sequence[bytes | None]:
    """The header of each record that names its schema, `None` where there is none."""
    column = records.header_column()
    if column is None:
        return [None] * len(records)
    return [_named(row or ()) for row in column]


def _named(headers: Sequence[Header]) -> bytes | None:
    return next((value for name, value in headers if name == HEADER and value is not None), None)
