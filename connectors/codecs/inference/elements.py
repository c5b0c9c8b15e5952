"""The elements of BYTES tensors: each a length of 4 bytes, little-endian, and so many bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from pipelines.errors import WireError

_LENGTH = struct.Struct("<I")


def packed(elements: Iterable[bytes]) -> bytes:
    """The elements one after the other, each behind its length."""
    parts: list[bytes] = []
    for element in elements:
        parts += (_LENGTH.pack(len(element)), element)
    return b"".join(parts)


def unpacked(buffer: bytes | memoryview, count: int, named: str) -> list[bytes]:
    """The `count` elements that `buffer` holds, and nothing else. Raises `WireError`, which begins with `named`."""
    size, at = len(buffer), 0
    if count * 4 > size:
        raise WireError(f"{named} has {count} elements by its shape, and {size} bytes are too few for their lengths")
    elements: list[bytes] = []
    for number in range(count):
        if at + 4 > size:
            raise WireError(f"{named} has {count} elements by its shape, and its bytes hold {number}")
        (length,) = _LENGTH.unpack_from(buffer, at)
        at += 4
        if length > size - at:
            raise WireError(f"{named}: element {number} has {length} bytes by its length, and {size - at} are left")
        elements.append(bytes(buffer[at : at + length]))
        at += length
    if at < size:
        raise WireError(f"{named} has {count} elements by its shape, and {size - at} bytes more than these")
    return elements


def as_texts(elements: Sequence[bytes]) -> list[str] | None:
    """The elements as strings, if all are UTF-8; else `None`."""
    try:
        return [element.decode() for element in elements]
    except UnicodeDecodeError:
        return None


def as_bytes(elements: Sequence[str | bytes], named: str) -> list[bytes]:
    """The elements as bytes, strings in UTF-8. Raises `WireError`, which begins with `named`."""
    try:
        return [element.encode() if isinstance(element, str) else bytes(element) for element in elements]
    except UnicodeEncodeError as error:
        raise WireError(f"{named} has a text that cannot be written as UTF-8: {error}") from None
