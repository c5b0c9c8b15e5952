"""Messages cut into their map entries, all at once and without a parser."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, compress, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from pipelines.data.data import Data
from pipelines.data.spans import Ints, Spans
from pipelines.errors import WireError
from pipelines.wire.columns import ReadOptions
from pipelines.wire.nomessage import no_message
from pipelines.wire.plain.windows import begin_with
from pipelines.wire.protobuf import decode
from pipelines.wire.varint import varint
from protos import data_pb2 as pb

_ENTRY, _METADATA_ENTRY, _KEY = 0x0A, 0x12, 0x0A
_PADDING = bytes(8)
"""Behind the last message, so that reading a tag and a length never ends outside the buffer."""
FEW: Final = 64
"""Below this number of messages or entries a loop costs less than calls of numpy."""
_GUESSES: Final = 8
"""How many keys are looked for at one place of the messages before their entries are sorted in a loop."""


class Entries(NamedTuple):
    """The map entries with one key.

    The bytes inside an entry are not checked: it may be broken, or have another key than it seems to.
    """

    rows: Ints
    """The message of each entry, rising, `int64 (N,)`."""
    cells: list[bytes] | Spans
    """The entries with tag and length: a list where they are few."""


class Cut(NamedTuple):
    """The result of cutting messages."""

    entries: dict[bytes, Entries]
    """The entries of each raw key, which is a key as it stands in an entry, with tag and length."""
    with_metadata: list[int]
    """Messages with metadata, whose entries are not among these."""
    odd: set[int]
    """Messages that are broken, or have anything but entries in the usual form, each with a key of its own."""

    def without(self, left_out: set[int], size: int) -> Cut:
        """The same of the other ones of `size` messages, which are numbered anew. Those left out were all odd ones."""
        kept = np.ones(size, np.bool_)
        kept[list(left_out)] = False
        numbers = kept.cumsum() - 1
        entries: dict[bytes, Entries] = {}
        for raw, (rows, cells) in self.entries.items():
            here = kept[rows]
            if here.any():
                left = cells.take(here.nonzero()[0]) if isinstance(cells, Spans) else [*compress(cells, here)]
                entries[raw] = Entries(numbers[rows[here]], left)
        return Cut(entries, numbers[[row for row in self.with_metadata if kept[row]]].tolist(), set())


def cut(messages: Sequence[bytes]) -> Cut:
    """The entries of these messages."""
    joined = b"".join([*messages, _PADDING])
    found = _Found(joined, defaultdict(list), defaultdict(list), [], set())
    if len(messages) < FEW:
        edges = list(accumulate(map(len, messages), initial=0))
        found.one_by_one(range(len(messages)), edges[:-1], edges[1:])
    else:
        found.place_by_place(np.fromiter(map(len, messages), np.int64, len(messages)))
    return Cut(found.by_key(), sorted(set(found.with_metadata)), found.odd)


class _Found(NamedTuple):
    """The entries found so far in the joined messages."""

    joined: bytes
    places: dict[bytes, list[tuple[Ints, Ints, Ints]]]
    """Raw key to where its entries at one place of the messages begin, their messages, and where they end; then those
    at another place, ...
    """
    single: dict[bytes, list[tuple[int, int, int]]]
    """Raw key to its entries that were found one by one, likewise."""
    with_metadata: list[int]
    odd: set[int]

    def place_by_place(self, lengths: Ints) -> None:
        """Cut messages of these lengths: the first entries of all, the second entries of all, ..."""
        buffer = np.frombuffer(self.joined, np.uint8)
        ends = lengths.cumsum()
        rows = np.flatnonzero(lengths)
        at, ends = (ends - lengths)[rows], ends[rows]
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
                self._sort(rows, at, keys, stops)
            else:
                metadata = (tags == _METADATA_ENTRY) & (stops <= ends)
                other = ~(entry | metadata)
                self._sort(rows[entry], at[entry], keys[entry], stops[entry])
                self.with_metadata.extend(rows[metadata].tolist())
                self.odd.update(rows[other].tolist())
                stops[other] = ends[other]
            more = stops < ends
            rows, at, ends = rows[more], stops[more], ends[more]
        self.one_by_one(rows.tolist(), at.tolist(), ends.tolist())

    def _sort(self, rows: Ints, starts: Ints, keys: Ints, stops: Ints) -> None:
        """Sort entries at one place of their messages by their keys, which begin at `keys`.

        As a rule all have the same key: the first one's is looked for in all at once, then that of the first of the
        rest, ...
        """
        for _ in range(_GUESSES):
            if len(rows) < FEW:
                break
            raw = _raw_key(self.joined, int(keys[0]), int(stops[0]))
            same = begin_with(self.joined, keys, stops, raw)
            same[0] = True  # A broken key may be longer than its entry.
            if same.all():
                self.places[raw].append((starts, rows, stops))
                return
            self.places[raw].append((starts[same], rows[same], stops[same]))
            rows, starts, keys, stops = (part[~same] for part in (rows, starts, keys, stops))
        for row, start, key, stop in zip(*(part.tolist() for part in (rows, starts, keys, stops)), strict=True):
            self.single[_raw_key(self.joined, key, stop)].append((start, row, stop))

    def one_by_one(self, rows: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> None:
        """Cut the rest of these messages, from `starts` to `ends`."""
        joined, single = self.joined, self.single
        for row, start, end in zip(rows, starts, ends, strict=True):
            at = start
            while at < end:
                tag, size, key = joined[at], joined[at + 1], at + 2
                stop = key + size
                # Small batches cost little else than this loop, so lengths of one byte are read in place.
                if size > 0x7F:
                    size, key, stop = _length(joined, at + 1)
                if stop > end or not ((tag == _ENTRY and size >= 2) or tag == _METADATA_ENTRY):
                    self.odd.add(row)
                    break
                if tag == _METADATA_ENTRY:
                    self.with_metadata.append(row)
                else:
                    short = joined[key + 1] < 0x80
                    raw = joined[key : min(key + 2 + joined[key + 1], stop)] if short else _raw_key(joined, key, stop)
                    single[raw].append((at, row, stop))
                at = stop

    def by_key(self) -> dict[bytes, Entries]:
        """All entries of each raw key. A message that has a key twice is odd: protobuf knows which entry counts."""
        entries = {}
        buffer = np.frombuffer(self.joined, np.uint8)
        for raw, parts in self.places.items():
            if raw in self.single:
                parts.append(tuple(np.array(self.single.pop(raw)).T))
            starts, rows, stops = parts[0]
            if len(parts) > 1:
                every = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
                starts, rows, stops = (column[every[0].argsort()] for column in every)
                self.odd.update(rows[1:][rows[1:] == rows[:-1]].tolist())
            entries[raw] = Entries(rows, Spans(buffer, starts, stops - starts))
        for raw, single in self.single.items():
            single.sort()
            listed = [row for _, row, _ in single]
            self.odd.update(row for row, following in pairwise(listed) if row == following)
            entries[raw] = Entries(np.array(listed, np.int64), [self.joined[start:stop] for start, _, stop in single])
        return entries


def _raw_key(joined: bytes, start: int, stop: int) -> bytes:
    return joined[start : min(_length(joined, start + 1)[2], stop)]


def _length(joined: bytes, at: int) -> tuple[int, int, int]:
    """The length at this place, and where the bytes of this length begin and end."""
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
    except DecodeError:
        raise no_message(message) from None


def metadata_of(message: bytes, options: ReadOptions) -> Data | None:
    """The metadata of a message. Raises `WireError`."""
    parsed = parsed_message(message)
    parsed.ClearField("mapItems")
    return decode(parsed.SerializeToString(), options.limits, float_lists=options.float_lists).metadata
