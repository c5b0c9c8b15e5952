"""Protobuf's variable-length integers: seven bits a byte, the lowest first; the last byte is below 128."""

from __future__ import annotations


def varint(message: bytes, at: int, most: int = 10) -> tuple[int, int]:
    """The number at `at`, and where it ends. Raises `IndexError` if it does not end within `most` bytes."""
    number = 0
    for shift in range(0, 7 * most, 7):
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IndexError
