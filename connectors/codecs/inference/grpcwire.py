"""Protobuf's wire form, as far as messages of the Open Inference Protocol need it: fields, numbers, lists of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from pipelines.errors import WireError

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
_GROUP: Final = 3
_END: Final = 4
FIXED32: Final = 5
_MOST_GROUPS: Final = 100
_CUT: Final = "the message ends in the middle of a field"


def fields(buffer: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each field: an integer, or a view of the bytes. Raises `WireError`."""
    at, size = 0, len(buffer)
    while at < size:
        tag, at = varint(buffer, at)
        number, kind = tag >> 3, tag & 7
        if number == 0 or number > 0x1FFFFFFF:
            raise WireError(f"the message has a field with the number {number}")
        if kind == LENGTH:
            length, at = varint(buffer, at)
            end = at + length
            if end > size:
                raise WireError(_CUT)
            yield number, kind, buffer[at:end]
            at = end
        elif kind == VARINT:
            value, at = varint(buffer, at)
            yield number, kind, value
        elif kind in (FIXED64, FIXED32):
            end = at + (8 if kind == FIXED64 else 4)
            if end > size:
                raise WireError(_CUT)
            yield number, kind, buffer[at:end]
            at = end
        elif kind == _GROUP:
            at = _behind_group(buffer, at, number)
        else:
            raise WireError(f"the message has a field of the wire type {kind}")


def varint(buffer: memoryview, at: int) -> tuple[int, int]:
    """The number at `at`, 64 bits without sign, and the place behind it. Raises `WireError`."""
    value = shift = 0
    try:
        while True:
            byte = buffer[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFFFFFFFFFF, at
            shift += 7
            if shift > 63:
                raise WireError("the message has a number of more than 64 bits")
    except IndexError:
        raise WireError(_CUT) from None


def signed(value: int) -> int:
    """The int64 that these 64 bits are."""
    return value - (1 << 64) if value >> 63 else value


def text(value: object, what: str) -> str:
    """A string. Raises `WireError` if it is not UTF-8."""
    if not isinstance(value, memoryview):
        raise WireError(f"{what} is no text")
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError:
        raise WireError(f"{what} is not UTF-8") from None


def integers(kind: int, value: Any) -> list[int]:
    """Numbers of a repeated field of 64 bits without sign, one or packed."""
    if kind == VARINT:
        return [value]
    if kind != LENGTH:
        raise WireError("the message has numbers of another wire type")
    numbers: list[int] = []
    at = 0
    while at < len(value):
        number, at = varint(value, at)
        numbers.append(number)
    return numbers


def floats(kind: int, value: Any, width: int) -> bytes:
    """The bytes of numbers of a repeated float (`width` 4) or double (8) field, one or packed."""
    if kind == VARINT or kind == (FIXED64 if width == 4 else FIXED32) or len(value) % width:
        raise WireError("the message has numbers of another wire type")
    return bytes(value)


class Writer:
    """Writes a message."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def length(self, number: int, value: Any) -> None:
        """A text, bytes or a message."""
        data = value.encode() if isinstance(value, str) else value
        self._parts += (written(number << 3 | LENGTH), written(len(data)), data)

    def varint(self, number: int, value: int) -> None:
        """An integer or a boolean."""
        self._parts += (written(number << 3), written(value & 0xFFFFFFFFFFFFFFFF))

    def number(self, value: int) -> None:
        """An element of a packed list of integers."""
        self._parts.append(written(value & 0xFFFFFFFFFFFFFFFF))

    def double(self, number: int, value: float) -> None:
        """A float of 64 bits."""
        self._parts += (written(number << 3 | FIXED64), struct.pack("<d", value))

    def bytes(self) -> bytes:
        """The message."""
        return b"".join(self._parts)


def written(value: int) -> bytes:
    """A number as a varint; 64 bits without sign."""
    if value < 0x80:
        return bytes((value,))
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _behind_group(buffer: memoryview, at: int, number: int) -> int:
    """The place behind a group, which no field of ours is: an old form of nested messages."""
    inside = [number]
    size = len(buffer)
    while inside:
        tag, at = varint(buffer, at)
        kind = tag & 7
        if kind == VARINT:
            _, at = varint(buffer, at)
        elif kind == LENGTH:
            length, at = varint(buffer, at)
            at += length
        elif kind in (FIXED64, FIXED32):
            at += 8 if kind == FIXED64 else 4
        elif kind == _GROUP and len(inside) < _MOST_GROUPS:
            inside.append(tag >> 3)
        elif kind == _END and inside[-1] == tag >> 3:
            inside.pop()
        else:
            raise WireError(f"the message has a field of the wire type {kind}")
        if at > size:
            raise WireError(_CUT)
    return at
