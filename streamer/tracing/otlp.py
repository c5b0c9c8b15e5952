"""Spans as bytes, in OpenTelemetry's protocol: `opentelemetry/proto/trace/v1/trace.proto` of OTLP 1, as protobuf.

Our own writer of the few fields that there are: making objects of OpenTelemetry's packages, and writing those, takes
ten times as long. What a function gives is a field of the message around it, with its tag and size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

from streamer.tracing.traceparent import SAMPLED, TraceContext

INTERNAL: Final = b"\x30\x01"
"""The kind of a span of work within a service."""
SERVER: Final = b"\x30\x02"
"""The kind of a request's span."""
CONSUMER: Final = b"\x30\x05"
"""The kind of the span of a record of a bus."""
_IDS: Final = struct.Struct("<2s16s2s8s")
_PARENT: Final = struct.Struct("<2s8s")
_TIMES: Final = struct.Struct("<cQcQ")
_LINK: Final = struct.Struct("<2s2s16s2s8scI")
_FLAGS: Final = struct.Struct("<2sI")
_KNOWN: Final = 0x100
"""The flag that says that the next one means something."""
_REMOTE: Final = 0x200
"""The flag of a context that came from another process."""
_ERROR: Final = b"\x18\x02"


def request(resource: bytes, scope: bytes, spans: Iterable[bytes]) -> bytes:
    """The whole message: these spans, whose they are, and what made them."""
    return _sized(b"\x0a", resource + _sized(b"\x12", scope + b"".join(spans)))


def resource_of(attributes: Mapping[str, Any]) -> bytes:
    """What spans are about, such as a service and its process."""
    return _sized(b"\x0a", b"".join(_keyed(b"\x0a", key, value) for key, value in attributes.items()))


def scope_of(name: str, version: str) -> bytes:
    """What makes the spans."""
    return _sized(b"\x0a", _sized(b"\x0a", name.encode()) + _sized(b"\x12", version.encode()))


def span(
    context: TraceContext,
    parent: TraceContext | None,
    head: bytes,
    began: int,
    ended: int,
    rest: bytes,
    *,
    from_afar: bool = False,
) -> bytes:
    """A span.

    Args:
        context: Its own ids.
        parent: The span around it; `None`: its trace begins with it.
        head: Its `name` and kind.
        began: When it began, in nanoseconds since 1970.
        ended: When it ended, as `began`.
        rest: Its attributes, links and status, in this order.
        from_afar: Whether its parent is a span of another process.
    """
    flags = SAMPLED | _KNOWN | _REMOTE if from_afar else SAMPLED | _KNOWN
    content = b"".join(
        (
            _IDS.pack(b"\x0a\x10", context.trace.to_bytes(16, "big"), b"\x12\x08", context.span.to_bytes(8, "big")),
            b"" if parent is None else _PARENT.pack(b"\x22\x08", parent.span.to_bytes(8, "big")),
            head,
            _TIMES.pack(b"\x39", began, b"\x41", ended),
            rest,
            _FLAGS.pack(b"\x85\x01", flags),
        )
    )
    return _sized(b"\x12", content)


def name(text: str) -> bytes:
    """The name of a span."""
    return _sized(b"\x2a", _utf8(text))


def attribute(key: str, value: str | int) -> bytes:
    """An attribute of a span."""
    return _keyed(b"\x4a", key, value)


def link(context: TraceContext, *, from_afar: bool = False) -> bytes:
    """A link of a span to another; `from_afar`: of another process."""
    flags = SAMPLED | _KNOWN | _REMOTE if from_afar else SAMPLED | _KNOWN
    trace, of_trace = context.trace.to_bytes(16, "big"), context.span.to_bytes(8, "big")
    return _LINK.pack(b"\x6a\x21", b"\x0a\x10", trace, b"\x12\x08", of_trace, b"\x35", flags)


def error(text: str) -> bytes:
    """The status of a span that has failed, and why."""
    return _sized(b"\x7a", _sized(b"\x12", _utf8(text)) + _ERROR)


def _keyed(tag: bytes, key: str, value: Any) -> bytes:
    return _sized(tag, _sized(b"\x0a", _utf8(key)) + _sized(b"\x12", _value(value)))


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x18" + _varint(value & 0xFFFFFFFFFFFFFFFF)
    if isinstance(value, float):
        return b"\x21" + struct.pack("<d", value)
    if isinstance(value, (list, tuple)):
        return _sized(b"\x2a", b"".join(_sized(b"\x0a", _value(each)) for each in value))
    return _sized(b"\x0a", _utf8(str(value)))


def _utf8(text: str) -> bytes:
    return text.encode(errors="replace")


def _sized(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _SMALL[number]
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


_SMALL: Final = [bytes((number,)) for number in range(0x80)]
