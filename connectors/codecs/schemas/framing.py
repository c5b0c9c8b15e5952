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

_BY_ID, _BY_GUID = 0, 1
_ID: Final = struct.Struct(">BI")
_GUID_SIZE: Final = 17
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
        begin = f"begins with the byte {raw[0]}" if raw else "is empty"
        raise WireError(
            f"the payload {begin}, and not with 0 and the id of a schema: it was not written through a registry; "
            "leave registry out, and give the codec its schema"
        )
    return Framed(schema, rest, None if header is None else payload)


class Frame(NamedTuple):
    """How written messages name their schema: by bytes before the payload, or by a header."""

    prefix: bytes
    header: Header | None = None

    def headers(self, count: int) -> Sequence[Sequence[Header]] | None:
        """The headers of so many messages."""
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
