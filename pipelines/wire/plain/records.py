"""One message cut into its map entries, without a parser."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

from google.protobuf.message import DecodeError

from pipelines.data.data import Data
from pipelines.errors import WireError
from pipelines.wire.columns import ReadOptions
from pipelines.wire.protobuf import decode
from pipelines.wire.varint import varint
from protos import data_pb2 as pb

Record = list[bytes]
"""The entries of one message, tag and length included; the last is `METADATA` if the message has metadata."""

METADATA: Final = b""
"""Stands in a `Record` for all the metadata of the message."""

PART_BYTES: Final = 1 << 16
"""Bytes of entries to join at a time. More costs more: the system hands out large memory page by page."""

_ENTRY, _METADATA_ENTRY, _KEY = 0x0A, 0x12, 0x0A
# The longest entries whose lengths take one byte, two, three and four.
_LONGEST_ENTRIES = tuple(1 + bytes_of_length + (1 << 7 * bytes_of_length) - 1 for bytes_of_length in range(1, 5))


def cut(message: bytes) -> Record | None:
    """The entries of a message; `None` if it is broken, or has anything but entries in the usual form.

    The bytes inside an entry are not looked at: it may be broken, or of another key than it seems to be.
    """
    entries: Record = []
    has_metadata = False
    at, end = 0, len(message)
    # Much of the cost of decoding is in this loop, so lengths of one and two bytes are read in place.
    try:
        while at < end:
            size = message[at + 1]
            if size < 0x80:
                stop = at + 2 + size
            elif message[at + 2] < 0x80:
                stop = at + 3 + size - 0x80 + (message[at + 2] << 7)
            else:
                size, start = varint(message, at + 1, 5)
                stop = start + size
            if message[at] == _ENTRY:
                entries.append(message[at:stop])
            elif message[at] == _METADATA_ENTRY:
                has_metadata = True
            else:
                return None
            at = stop
    except IndexError:
        return None
    if at != end:
        return None
    if has_metadata:
        entries.append(METADATA)
    return entries


def raw_key(entry: bytes) -> bytes:
    """The key as an entry begins with it, with tag and length. Where that is broken, anything that is no key.

    It may not be the key of the entry: an entry may be broken, or have a second key, which counts.
    """
    try:
        start = 2
        while entry[start - 1] > 0x7F:
            start += 1
        size = entry[start + 1]
        if size < 0x80:
            return entry[start : start + 2 + size]
        size, end = varint(entry, start + 1, 5)
        return entry[start : end + size]
    except IndexError:
        return b"\0" if entry else METADATA


def all_begin_with(raw: bytes, entries: Sequence[bytes]) -> bool:
    """Whether the key of all these entries is this raw key. Also `False` where their lengths are of different sizes."""
    starts = {2 + bisect_left(_LONGEST_ENTRIES, length) for length in set(map(len, entries))}
    return len(starts) == 1 and all(map(bytes.startswith, entries, repeat(raw), repeat(starts.pop())))


def key_of(raw: bytes) -> str | None:
    """The key in a raw key; `None` for bytes that are no key.

    Also `None` where the length takes more bytes than it needs: so there is one raw key for each key.
    """
    try:
        size, start = varint(raw, 1, 5)
        minimal = start == 2 or raw[start - 1] > 0
        return raw[start:].decode() if raw[0] == _KEY and minimal and start + size == len(raw) else None
    except (IndexError, UnicodeDecodeError):
        return None


def checked_record(message: Any, options: ReadOptions) -> Record:
    """The entries of any message, also of an unusual one. Raises `WireError` if it is none, or exceeds a limit."""
    if not isinstance(message, (bytes, bytearray, memoryview)):
        raise WireError(f"a ProtoData message is bytes, not {type(message).__name__}; choose the codec that fits")
    message = bytes(message)
    options.limits.check_fields(message)
    if len(message) > options.safe_bytes:
        # It may be within the limits all the same: its elements have to be counted.
        decode(message, options.limits, float_lists=options.float_lists)
    record = cut(message)
    return rewritten(message) if record is None else record


def rewritten(message: bytes) -> Record:
    """The entries of a message as protobuf writes it, without the fields that this version does not know.

    Raises `WireError` if protobuf cannot read it.
    """
    parsed = parsed_message(message)
    parsed.DiscardUnknownFields()
    record = cut(parsed.SerializeToString(deterministic=True))
    assert record is not None
    return record


def parsed_message(message: bytes) -> pb.DataMap:
    """A message as protobuf reads it. Raises `WireError`."""
    try:
        return pb.DataMap.FromString(message)
    except DecodeError as error:
        raise WireError(
            f"Error converting bytes array to data: the {len(message)} bytes are no ProtoData message ({error})"
        ) from None


def metadata_of(message: bytes, options: ReadOptions) -> Data | None:
    """The metadata of a message. Raises `WireError`."""
    parsed = parsed_message(message)
    parsed.ClearField("mapItems")
    return decode(parsed.SerializeToString(), options.limits, float_lists=options.float_lists).metadata
