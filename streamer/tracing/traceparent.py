"""The header `traceparent` of W3C Trace Context: which trace a record belongs to, and whether it is sampled.

Our own reader, as it reads the header of every record: OpenTelemetry's takes four times as long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from connectors.records import Header

TRACEPARENT: Final = "traceparent"
"""The name of the header."""
SAMPLED: Final = 0x01
"""The flag of a record whose spans are recorded."""
_KNOWN_FLAGS: Final = 0x03
_FORMAT: Final = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceContext(NamedTuple):
    """The span that a record comes from."""

    trace: int
    span: int
    flags: int = SAMPLED

    @property
    def is_sampled(self) -> bool:
        """Whether the spans of this trace are recorded."""
        return bool(self.flags & SAMPLED)

    def header(self) -> bytes:
        """The value of the header, in version 00."""
        return b"00-%032x-%016x-%02x" % (self.trace, self.span, self.flags & _KNOWN_FLAGS)


def read(value: bytes | None) -> TraceContext | None:
    """The context that the value of a header says; `None` for one that is not valid.

    Of later versions, which may be longer, what version 00 has is read, as the standard demands.
    """
    match = None if value is None else _FORMAT.fullmatch(value)
    if match is None or (match[5] is not None and match[1] == b"00"):
        return None
    return TraceContext(int(match[2], 16), int(match[3], 16), int(match[4], 16))


def values_of(headers: Sequence[Header] | None) -> list[bytes | None]:
    """The values of all headers of a record that are named `traceparent`, in any case of letters."""
    return [value for name, value in headers or () if len(name) == 11 and name.lower() == TRACEPARENT]


def replaced(headers: Sequence[Header] | None, context: TraceContext) -> list[Header]:
    """The headers of a record with this context; all others stay as they are."""
    others = [header for header in headers or () if header[0].lower() != TRACEPARENT]
    return [*others, (TRACEPARENT, context.header())]
