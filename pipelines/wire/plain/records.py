"""Messages cut into their map entries, all at once and without a parser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from pipelines.data.data import Data
from pipelines.data.spans import Ints
from pipelines.errors import WireError
from pipelines.wire.columns import ReadOptions
from pipelines.wire.plain.windows import begin_with
from pipelines.wire.protobuf import decode
from pipelines.wire.varint import varint
from protos import data_pb2 as pb

_ENTRY, _METADATA_ENTRY, _KEY = 0x0A, 0x12, 0x0A
_PADDING = bytes(8)
"""Behind the last message, so that reading a tag and a length never ends outside the buffer."""
FEW: Final = 32
"""What is done for so few messages or entries costs less in a loop than in calls of numpy."""
_GUESSES: Final = 8
"""How many keys are looked for at one place of the messages before their entries are sorted in a loop."""


class Entries(NamedTuple):
    """The map entries of some messages, by their places in the joined messages.

    The bytes inside an entry are not looked at: it may be broken, or of another key than it seems to be.
    """

    joined: bytes
    rows: Ints
    """The message of each entry, `int64 (E,)`."""
    starts: Ints
    """Where each entry begins, with its tag and length."""
    keys: Ints
    """Where its key begins, with tag and length."""
    stops: Ints
    """Where it ends, at least two bytes behind the beginning of its key."""

    def by_key(self) -> Iterator[tuple[bytes, Ints]]:
        """Each raw key, with tag and length, and the numbers of its entries in the order of their messages.

        As a rule most messages have the same key at the same place: the
        first entry's key is looked for in all entries of that place at once, then that of the first of the rest, ...
        """
        found: dict[bytes, list[Any]] = {}
        for left in self._by_place():
            for _ in range(_GUESSES):
                if len(left) < FEW:
                    break
                raw = _raw_key(self.joined, int(self.keys[left[0]]), int(self.stops[left[0]]))
                same = begin_with(self.joined, self.keys[left], self.stops[left], raw)
                same[0] = True  # A broken key may be longer than its entry.
                found.setdefault(raw, []).append(left[same])
                left = left[~same]
            loop = zip(left.tolist(), self.keys[left].tolist(), self.stops[left].tolist(), strict=True)
            for entry, start, stop in loop:
                found.setdefault(_raw_key(self.joined, start, stop), []).append(entry)
        for raw, parts in found.items():
            if len(parts) > 1:
                # Entries of one key may have been found at several places of the messages, and in a loop.
                numbers = np.concatenate([np.atleast_1d(part) for part in parts])
                yield raw, numbers[np.argsort(self.starts[numbers])]
            else:
                yield raw, np.atleast_1d(parts[0])

    def _by_place(self) -> list[Ints]:
        """The entries that come first in their messages, those that come second, ..."""
        every = np.arange(len(self.rows))
        (ends,) = (self.rows[1:] <= self.rows[:-1]).nonzero()
        if len(ends) * FEW > len(every):
            return [every]
        return [every[start:end] for start, end in pairwise([0, *(ends + 1).tolist(), len(every)])]


class Cut(NamedTuple):
    """The result of cutting messages."""

    size: int
    """How many messages there are."""
    entries: Entries
    with_metadata: list[int]
    """Messages with metadata, whose entries are not among these."""
    odd: list[int]
    """Messages that are broken, or have anything but entries in the usual form."""


def cut(messages: Sequence[bytes]) -> Cut:
    """The entries of these messages: first those at the first place of all messages, then those at the second, ..."""
    joined = b"".join([*messages, _PADDING])
    buffer = np.frombuffer(joined, np.uint8)
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    ends = lengths.cumsum()
    rows = np.flatnonzero(lengths)
    at, ends = (ends - lengths)[rows], ends[rows]
    found: list[tuple[Ints, ...]] = []
    with_metadata, odd = [], []
    while len(rows) >= FEW:
        tags, keys, sizes = buffer[at], at + 2, buffer[at + 1].astype(np.int64)
        for shift in (7, 14, 21, 28):
            # Bit `shift` of these is the sign that their length has another byte, not a part of it.
            (longer,) = (sizes >> shift).nonzero()
            if not len(longer):
                break
            sizes[longer] += (buffer[keys[longer]].astype(np.int64) - 1) << shift
            keys[longer] += 1
        stops = keys + sizes
        entry = (tags == _ENTRY) & (stops <= ends) & (sizes >= 2)
        if entry.all():
            found.append((rows, at, keys, stops))
        else:
            metadata = (tags == _METADATA_ENTRY) & (stops <= ends)
            found.append((rows[entry], at[entry], keys[entry], stops[entry]))
            with_metadata += rows[metadata].tolist()
            odd += rows[~(entry | metadata)].tolist()
            stops[~(entry | metadata)] = ends[~(entry | metadata)]
        more = stops < ends
        rows, at, ends = rows[more], stops[more], ends[more]
    rest: list[tuple[int, int, int, int]] = []
    for row, start, end in zip(rows.tolist(), at.tolist(), ends.tolist(), strict=True):
        while start < end:
            tag, size, key, stop = joined[start], *_length(joined, start + 1)
            if stop > end or not ((tag == _ENTRY and size >= 2) or tag == _METADATA_ENTRY):
                odd.append(row)
                break
            if tag == _ENTRY:
                rest.append((row, start, key, stop))
            else:
                with_metadata.append(row)
            start = stop
    found.append((*np.array(rest, np.int64).reshape(-1, 4).T,))
    columns = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    return Cut(len(messages), Entries(joined, *columns), sorted(set(with_metadata)), odd)


def _raw_key(joined: bytes, start: int, stop: int) -> bytes:
    return joined[start : min(_length(joined, start + 1)[2], stop)]


def _length(joined: bytes, at: int) -> tuple[int, int, int]:
    """The length that stands at this place, and where what is so long begins and ends."""
    size = joined[at]
    if size < 0x80:
        return size, at + 1, at + 1 + size
    try:
        size, start = varint(joined, at, 5)
    except IndexError:
        return 0, at, len(joined) + 1
    return size, start, start + size


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


def checked_message(message: Any, options: ReadOptions) -> bytes:
    """A message of any type or size. Raises `WireError` if it is no bytes, or exceeds a limit."""
    if not isinstance(message, (bytes, bytearray, memoryview)):
        raise WireError(f"a ProtoData message is bytes, not {type(message).__name__}; choose the codec that fits")
    payload = bytes(message)
    options.limits.check_fields(payload)
    if len(payload) > options.safe_bytes:
        # It may be within the limits all the same: its elements have to be counted.
        decode(payload, options.limits, float_lists=options.float_lists)
    return payload


def rewritten(message: bytes) -> bytes:
    """A message as protobuf writes it, without the fields that this version does not know.

    Raises `WireError` if protobuf cannot read it.
    """
    parsed = parsed_message(message)
    parsed.DiscardUnknownFields()
    written: bytes = parsed.SerializeToString(deterministic=True)
    return written


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
