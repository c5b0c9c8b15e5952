"""Layouts: map entries whose bytes are all constant but for one run of them, the value.

Entries of one key whose values have one type, dtype and shape differ in the value's own bytes only. Who knows the rest
can read and write a whole column of them with a comparison and a copy, without a parser. A layout is never assumed: it
is learned from an entry that protobuf read, and proved by changing the value's bytes and reading the entry again.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from pipelines.values.ndarray import MAX_RANK, NDArrayType, from_buffer, width
from pipelines.values.valuetype import ValueType
from pipelines.wire.protobuf import value_of
from protos import data_pb2 as pb

Block = npt.NDArray[np.uint8]
"""The bytes of N values of equal width: `uint8 (N, width)`."""
Mask = npt.NDArray[np.bool_]

MAX_FRAME: Final = 1024
"""Bytes around a value that are worth remembering; a longer frame is that of no ordinary entry."""

PART_BYTES: Final = 1 << 16
"""Bytes to put together at a time: a large buffer comes from the system page by page, which costs more than copying."""

LONGEST_VARINT: Final = 10
"""Bytes of the longest int64 in protobuf, that of a negative one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The bytes before and after the value, and what the value is."""

    prefix: bytes
    suffix: bytes
    width: int
    """Bytes between `prefix` and `suffix`."""
    type: ValueType
    element: NDArrayType | None = None
    """Element type of an array; `None` for other values."""
    shape: tuple[int, ...] = ()
    dtype: np.dtype[Any] | None = None
    """The dtype that an array of this element type has in memory."""

    @property
    def size(self) -> int:
        """Bytes of a whole entry."""
        return len(self.prefix) + self.width + len(self.suffix)

    def read(self, entries: Sequence[bytes]) -> tuple[npt.NDArray[Any], Mask | None]:
        """The values of entries of `size` bytes each, and which of them have this layout (`None`: all).

        Arrays come as one array `(N, *shape)`, numbers and booleans as `(N,)`; strings are read by `text`. What
        stands where the mask is false means nothing.
        """
        block, fits = self._block(entries)
        if self.type is ValueType.NDARRAY:
            return self._arrays(block), fits
        values, valid = _READERS[self.type](block)
        return values, valid if fits is None else valid & fits

    def text(self, entry: bytes) -> str | None:
        """The string of an entry; `None` if it has not this layout."""
        if self.type is not ValueType.STRING or len(entry) != self.size:
            return None
        if not entry.startswith(self.prefix) or not entry.endswith(self.suffix):
            return None
        try:
            return entry[len(self.prefix) : len(self.prefix) + self.width].decode()
        except UnicodeDecodeError:
            return None

    def write(self, block: Block) -> list[bytes]:
        """The entries with these values' bytes."""
        start, stop = len(self.prefix), len(self.prefix) + self.width
        rows = np.empty((len(block), self.size), np.uint8)
        rows[:, :start] = np.frombuffer(self.prefix, np.uint8)
        rows[:, start:stop] = block
        if self.suffix:
            rows[:, stop:] = np.frombuffer(self.suffix, np.uint8)
        entries: list[Any] = rows.reshape(-1).view(np.dtype((np.void, self.size))).tolist()
        return entries

    def _block(self, entries: Sequence[bytes]) -> tuple[Block, Mask | None]:
        prefix, suffix = self.prefix, self.suffix
        start, stop = len(prefix), len(prefix) + self.width
        block = np.empty((len(entries), self.width), np.uint8)
        fits: Mask | None = None
        step = max(1, PART_BYTES // self.size)
        for first in range(0, len(entries), step):
            part = entries[first : first + step]
            rows = np.frombuffer(b"".join(part), np.uint8).reshape(len(part), self.size)
            block[first : first + step] = rows[:, start:stop]
            alike = rows[:, :start].tobytes() == prefix * len(part)
            if alike and (not suffix or rows[:, stop:].tobytes() == suffix * len(part)):
                continue
            if fits is None:
                fits = np.ones(len(entries), np.bool_)
            fits[first : first + step] = [entry.startswith(prefix) and entry.endswith(suffix) for entry in part]
        return block, fits

    def _arrays(self, block: Block) -> npt.NDArray[Any]:
        assert self.element is not None
        assert self.dtype is not None
        shape = (len(block), *self.shape)
        needed = math.prod(self.shape) * width(self.element)
        if needed == 0 or self.element in (NDArrayType.BOOL, NDArrayType.BFLOAT16):
            return from_buffer(block[:, :needed].tobytes(), shape, self.element)
        if needed < self.width:
            block = np.ascontiguousarray(block[:, :needed])
        array = block.reshape(-1).view(self.dtype).reshape(shape)
        return array if sys.byteorder == "little" else array.byteswap()


def learn(key: str, entry: bytes) -> Layout | None:
    """The layout of this entry, which `value_of` has read as one of `key`; `None` if it cannot be told.

    There are layouts of arrays, strings, doubles, int64 and booleans.
    """
    scheme = _scheme(key, entry)
    found = None if scheme is None else _value_bytes(scheme)
    if scheme is None or found is None or len(entry) - len(found[0]) > MAX_FRAME:
        return None
    raw, other = found
    start = _start(key, entry, scheme, raw, other)
    if start is None:
        return None
    prefix, suffix, value_type = entry[:start], entry[start + len(raw) :], ValueType(scheme.type)
    if value_type is not ValueType.NDARRAY:
        return Layout(prefix, suffix, len(raw), value_type)
    value = value_of(scheme)
    if value.ndim >= MAX_RANK:
        return None
    return Layout(prefix, suffix, len(raw), value_type, NDArrayType(scheme.ndValue.type), value.shape, value.dtype)


def varint(number: int) -> bytes:
    """An int64 as protobuf writes it."""
    rest = number & 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _scheme(key: str, entry: bytes) -> pb.DataScheme | None:
    try:
        message = pb.DataMap.FromString(entry)
    except DecodeError:
        return None
    if len(message.mapItems) != 1 or key not in message.mapItems or message.metaData:
        return None
    return message.mapItems[key]


def _value_bytes(scheme: pb.DataScheme) -> tuple[bytes, bytes] | None:
    """The value's bytes as they stand in its entry, and others of equal length that differ in each place."""
    value_type = int(scheme.type)
    if value_type == ValueType.NDARRAY and len(scheme.ndValue.array) == 1:
        raw = scheme.ndValue.array[0]
        return raw, raw.translate(_COMPLEMENT)
    if value_type == ValueType.STRING:
        raw = scheme.sValue.encode()
        return raw, raw.translate(_LETTERS)
    if value_type == ValueType.DOUBLE:
        raw = struct.pack("<d", scheme.doubleValue)
        return raw, raw.translate(_LOW_BIT)
    if value_type == ValueType.INT64:
        raw = varint(scheme.iValue)
        # One byte is proof enough: it shows where the varint begins, and its own bytes say where it ends.
        return raw, raw[:1].translate(_LOW_BIT) + raw[1:]
    if value_type == ValueType.BOOLEAN:
        return (b"\x01", b"\x00") if scheme.boolValue else (b"\x00", b"\x01")
    return None


def _start(key: str, entry: bytes, scheme: pb.DataScheme, raw: bytes, other: bytes) -> int | None:
    """Where the value's bytes stand, proved by putting `other` there."""
    if not raw:
        # Nothing varies: an entry of this layout is the very same entry.
        return len(entry)
    changed = pb.DataScheme()
    changed.CopyFrom(scheme)
    _put(changed, other)
    stop = len(entry)
    for _ in range(_TRIES):
        start = entry.rfind(raw, 0, stop)
        if start < 0:
            return None
        if _scheme(key, entry[:start] + other + entry[start + len(raw) :]) == changed:
            return start
        stop = start + len(raw) - 1
    return None


def _put(scheme: pb.DataScheme, raw: bytes) -> None:
    value_type = int(scheme.type)
    if value_type == ValueType.NDARRAY:
        scheme.ndValue.array[0] = raw
    elif value_type == ValueType.STRING:
        scheme.sValue = raw.decode()
    elif value_type == ValueType.DOUBLE:
        (scheme.doubleValue,) = struct.unpack("<d", raw)
    elif value_type == ValueType.INT64:
        scheme.iValue ^= 1
    else:
        scheme.boolValue = raw != b"\x00"


def _doubles(block: Block) -> tuple[npt.NDArray[Any], Mask]:
    numbers = block.reshape(-1).view("<f8").astype(np.float64, copy=False)
    return numbers, np.ones(len(block), np.bool_)


def _booleans(block: Block) -> tuple[npt.NDArray[Any], Mask]:
    numbers = block[:, 0]
    return numbers != 0, numbers <= 1


def _integers(block: Block) -> tuple[npt.NDArray[Any], Mask]:
    digits = block.shape[1]
    numbers = np.zeros(len(block), np.uint64)
    valid = block[:, -1] <= (1 if digits == LONGEST_VARINT else 0x7F)
    for digit in range(digits):
        numbers |= (block[:, digit] & 0x7F).astype(np.uint64) << np.uint64(7 * digit)
        if digit < digits - 1:
            valid &= block[:, digit] > 0x7F
    return numbers.view(np.int64), valid


_READERS: dict[ValueType, Callable[[Block], tuple[npt.NDArray[Any], Mask]]] = {
    ValueType.DOUBLE: _doubles,
    ValueType.INT64: _integers,
    ValueType.BOOLEAN: _booleans,
}
# How often a value's bytes may stand in the entry by chance before it is given up.
_TRIES = 8
_COMPLEMENT = bytes(255 - byte for byte in range(256))
_LETTERS = bytes(ord("y") if byte == ord("x") else ord("x") for byte in range(256))
_LOW_BIT = bytes(byte ^ 1 for byte in range(256))
