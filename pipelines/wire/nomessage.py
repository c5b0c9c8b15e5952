"""The error of bytes that are no ProtoData message, which names the format that they look like."""

from __future__ import annotations

from typing import Final

from pipelines.errors import WireError
from pipelines.values.imageheader import sniff

_COMPRESSED: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_SHOWN: Final = 8
"""Bytes of a payload that are shown."""


def no_message(payload: bytes) -> WireError:
    """The error of these bytes. It begins as Konduit Serving's does."""
    return WireError(
        f"Error converting bytes array to data: the {len(payload)} bytes are no ProtoData message (Konduit's protobuf "
        f"form of a record, which the codec protodata reads); {_looks(payload)}"
    )


def _looks(payload: bytes) -> str:
    first = payload.lstrip()[:1]
    if first in (b"{", b"["):
        return "they begin like JSON, which the codecs json and konduit-json read"
    if payload[0] == 0 and len(payload) > 5:
        schema = int.from_bytes(payload[1:5], "big")
        return (
            f"they begin like those of a schema registry (schema id {schema}), which the codecs avro, json-schema and "
            "protobuf read with registry: {url: ...}"
        )
    for magic, name in _COMPRESSED.items():
        if payload.startswith(magic):
            return f"they begin like {name}, which the codec compressed reads: {{type: compressed, codec: NAME}}"
    if (picture := sniff(payload)) is not None:
        return f"they begin like a picture ({picture}), which the codec image reads"
    if payload[0] & 0xF0 == 0x80 or payload[0] in (0xDE, 0xDF):
        return "they begin like a map of MessagePack, which the codec msgpack reads"
    try:
        text = payload[:60].decode()
    except UnicodeDecodeError:
        text = "\0"
    if text.isprintable():
        return f"they are the text {text[:40]!r}, which the codecs csv and text read"
    return (
        f"they begin with {payload[:_SHOWN].hex(' ')}: they are broken, cut short, or of another form, such as a "
        "message of your own, which the codec protobuf reads"
    )
