"""The data representations of the standards (chapter 1.5): integers, strings, binary data, inside one packet."""

from __future__ import annotations

from typing import Final

from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode

MOST: Final = 268_435_455
"""The largest variable byte integer: four bytes."""
LONGEST: Final = 65_535
"""Bytes of the longest string or binary data."""


def malformed(message: str) -> ProtocolError:
    """The error for a packet that cannot be read."""
    return ProtocolError(ReasonCode.MALFORMED_PACKET, message)


class Fields:
    """Reads the fields of one packet one after the other. Every read raises `ProtocolError` for a missing or malformed
    field.

    `name` names the packet in messages; bytes outside `[start, stop)` are never read.
    """

    __slots__ = ("at", "buffer", "name", "stop")

    def __init__(self, buffer: memoryview, start: int, stop: int, name: str) -> None:
        self.buffer = buffer
        self.at = start
        self.stop = stop
        self.name = name

    @property
    def left(self) -> int:
        """The number of bytes that were not read yet."""
        return self.stop - self.at

    def take(self, count: int, what: str) -> memoryview:
        """The next `count` bytes."""
        start = self.at
        if self.stop - start < count:
            raise malformed(f"{self.name}: it ends inside its {what}")
        self.at = start + count
        return self.buffer[start : start + count]

    def byte(self, what: str) -> int:
        """One byte."""
        return self.take(1, what)[0]

    def short(self, what: str) -> int:
        """A two byte integer."""
        return int.from_bytes(self.take(2, what), "big")

    def long(self, what: str) -> int:
        """A four byte integer."""
        return int.from_bytes(self.take(4, what), "big")

    def varint(self, what: str) -> int:
        """A variable byte integer, which must be in the shortest form (MQTT-1.5.5-1)."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte(what)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if shift and not byte:
                    raise malformed(f"{self.name}: its {what} is longer than its value needs")
                return value
        raise malformed(f"{self.name}: its {what} has more than four bytes")

    def binary(self, what: str) -> bytes:
        """Binary data: its length and the bytes."""
        return bytes(self.take(self.short(what), what))

    def text(self, what: str) -> str:
        """A UTF-8 string: no surrogates, no U+0000."""
        return text(self.binary(what), f"{self.name}: its {what}")

    def end(self) -> None:
        """Raise `ProtocolError` if bytes are left."""
        if self.left:
            raise malformed(f"{self.name}: {self.left} bytes too many")


def text(raw: bytes, what: str) -> str:
    """UTF-8 that MQTT allows, as `str`. Raises `ProtocolError` with a text that begins with `what`."""
    try:
        string = raw.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"{what} is not UTF-8 ({error.reason} at byte {error.start})") from None
    if "\0" in string:
        raise malformed(f"{what} holds a null character (U+0000)")
    return string


def written_varint(value: int) -> bytes:
    """A variable byte integer. Raises `ValueError` for a number that is too large or negative."""
    if not 0 <= value <= MOST:
        raise ValueError(f"{value} cannot be written in four bytes of MQTT: it must be at most {MOST}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def written_binary(raw: bytes, what: str) -> bytes:
    """Binary data behind its length. Raises `ValueError` if it is too long."""
    if len(raw) > LONGEST:
        raise ValueError(f"{what} has {len(raw)} bytes: MQTT takes at most {LONGEST}")
    return len(raw).to_bytes(2, "big") + raw


def written_text(value: str, what: str) -> bytes:
    """A UTF-8 string behind its length. Raises `ValueError` for one that MQTT cannot carry."""
    if "\0" in value:
        raise ValueError(f"{what} holds a null character (U+0000), which MQTT does not allow: {value[:80]!r}")
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds half a surrogate pair, which is not valid UTF-8: {value[:80]!r}") from None
    return written_binary(raw, what)
