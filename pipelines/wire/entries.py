"""Messages taken apart: whose map entry stands where, without a look at the values.

A `DataMap` is its map entries one after the other, each framed by a tag and a length. So the entries of many messages
can be told apart by their frames alone, an entry taken out is a message of its own, and entries put one after the
other are one again. Messages that are framed in any other legal way are first brought into this one by protobuf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError

from pipelines.data.data import Data
from pipelines.errors import WireError
from pipelines.wire.limits import DEFAULT_LIMITS, Limits, has_more_fields
from pipelines.wire.protobuf import FloatLists, decode
from protos import data_pb2 as pb


class FewEntries(dict[int, bytes]):
    """The entries of a key that few rows have, by row; `None` for every other row."""

    def __missing__(self, row: int) -> None:
        return None


Cells = dict[str, list[bytes | None] | FewEntries]
"""Key to its entries, tag and length included: a list has one for each row, `None` where a row lacks the key."""

ENTRY: Final = 0x0A
"""Tag of an entry of `DataMap.mapItems`."""
METADATA: Final = 0x12
"""Tag of an entry of `DataMap.metaData`."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a reader of messages was told: see `pipelines.wire.protobuf.decode`."""

    limits: Limits = DEFAULT_LIMITS
    float_lists: FloatLists = "exact"

    @property
    def surely(self) -> int:
        """Bytes of a message that is within the limits for certain: each element takes a byte at least."""
        return min(self.limits.max_bytes, self.limits.max_elements)


@dataclass(slots=True)
class Frames:
    """The plainly framed messages of a block, cut into their entries."""

    rows: list[int] = field(default_factory=list)
    """Positions of the messages."""
    entries: list[bytes] = field(default_factory=list)
    """Entries of all these messages, in order."""
    ends: list[int] = field(default_factory=list)
    """`entries[:ends[i]]` are those of the messages up to and including `rows[i]`."""
    metadata: dict[int, list[bytes]] = field(default_factory=dict)
    """Position to the message's metadata entries, for messages that have any."""
    odd: list[int] = field(default_factory=list)
    """Positions of the messages that are framed otherwise, broken or too long."""


def cut(values: Sequence[Any], longest: int, most: int) -> Frames:
    """Cut messages into entries. `None` among them is passed over.

    What is no `bytes`, longer than `longest` or of more than `most` entries is odd.
    """
    frames = Frames()
    rows, ends, entries = frames.rows, frames.ends, frames.entries
    if not set(map(type, values)) <= {bytes, type(None)}:
        values = [value if value is None or type(value) is bytes else _ODD for value in values]
    # An entry takes two bytes at least, so that shorter messages have no more.
    long = 2 * most
    # Half of what decoding costs is this loop, so lengths of two bytes are read in place.
    for row, message in enumerate(values):
        if message is None:
            continue
        at, end = 0, len(message)
        if end > long and has_more_fields(message, most):
            frames.odd.append(row)
            continue
        try:
            while at < end:
                size = message[at + 1]
                if size < 0x80:
                    stop = at + size + 2
                elif message[at + 2] < 0x80:
                    stop = at + size + message[at + 2] * 0x80 - 0x7D
                else:
                    stop = _long_stop(message, at)
                if message[at] == ENTRY:
                    entries.append(message[at:stop])
                elif message[at] == METADATA:
                    frames.metadata.setdefault(row, []).append(message[at:stop])
                else:
                    break
                at = stop
        except IndexError:
            at = -1
        if at == end <= longest:
            rows.append(row)
            ends.append(len(entries))
        else:
            del entries[ends[-1] if ends else 0 :]
            frames.metadata.pop(row, None)
            frames.odd.append(row)
    return frames


def by_place(frames: Frames) -> Cells | None:
    """The entries by key, if all messages have the keys of the first, in its order: this is a guess.

    Only their number and a few samples are looked at; who uses the entries has to find out whether they are of that
    key. `None` if the guess is wrong already, or the first message is odd.
    """
    total = len(frames.ends)
    count = frames.ends[0] if total else 0
    if count == 0 or frames.ends != list(range(count, count * total + 1, count)):
        return None
    keys = [key_of(entry) for entry in frames.entries[:count]]
    # In a small batch a wrong guess costs less than samples. The step is odd because producers may take turns.
    for row in range(1, total, total // _SAMPLES | 1) if total > _FEW else ():
        if [key_of(entry) for entry in frames.entries[row * count : (row + 1) * count]] != keys:
            return None
    texts = [text for key in keys if (text := _text(key)) is not None]
    if len(set(texts)) < count:
        return None
    return {key: list(frames.entries[place::count]) for place, key in enumerate(texts)}


def by_key(frames: Frames) -> tuple[Cells, list[int]]:
    """The entries by the key that each begins with.

    Also the indices of `frames.rows` that are odd after all: without a key, or with one twice.
    """
    total = len(frames.rows)
    found: dict[bytes | None, Any] = {}
    odd = []
    start = 0
    for index, end in enumerate(frames.ends):
        for entry in frames.entries[start:end]:
            key = key_of(entry)
            column = found.get(key)
            if column is None:
                # A list is quicker, but there may be as many keys as entries.
                column = found[key] = [None] * total if len(found) < _LISTS else FewEntries()
            elif column[index] is not None:
                odd.append(index)
            column[index] = entry
        start = end
    cells: Cells = {}
    for key, column in found.items():
        text = _text(key)
        if text is None:
            odd.extend(entry_rows(column))
        else:
            cells[text] = column
    return cells, odd


def entry_rows(entries: list[bytes | None] | FewEntries) -> Sequence[int]:
    """The rows that have an entry, rising."""
    if isinstance(entries, FewEntries):
        return list(entries)
    if None not in entries:
        return range(len(entries))
    return [row for row, entry in enumerate(entries) if entry is not None]


def key_of(entry: bytes) -> bytes | None:
    """The key that a plainly framed entry begins with, in UTF-8; `None` if it begins with anything else.

    What is broken may seem to have any key, and a second key may follow that replaces the first.
    """
    try:
        start = 2
        while entry[start - 1] > 0x7F:
            start += 1
        if entry[start] != _KEY:
            return None
        size = entry[start + 1]
        if size < 0x80:
            return entry[start + 2 : start + 2 + size]
        stop, start = _long_stop(entry, start), start + 2
        while entry[start - 1] > 0x7F:
            start += 1
        return entry[start:stop]
    except IndexError:
        return None


def plain(payload: Any, options: ReadOptions) -> bytes:
    """An odd message as protobuf understands it, framed plainly. Raises `WireError` if it is none."""
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise WireError(f"a ProtoData message is bytes, not {type(payload).__name__}; choose the codec that fits")
    payload = bytes(payload)
    options.limits.check_fields(payload)
    if len(payload) > options.surely:
        # It may be within the limits all the same; that is found out by reading all of it.
        decode(payload, options.limits, float_lists=options.float_lists)
    try:
        message = pb.DataMap.FromString(payload)
    except DecodeError as error:
        raise not_a_message(payload, error) from None
    # Of what this version does not know nothing is lost that it could read, and all else is framed plainly then.
    message.DiscardUnknownFields()
    return message.SerializeToString()


def bare(error: BaseException) -> Any:
    """The error without the frames that it and its causes passed, to be kept.

    They would keep the whole batch alive, and in a circle: until the garbage collector comes.
    """
    if error.__cause__ is not None:
        bare(error.__cause__)
    error.__context__ = None
    return error.with_traceback(None)


def metadata_of(entries: Sequence[bytes], message: Any, options: ReadOptions) -> Data | None:
    """The metadata of `message`, whose entries of `DataMap.metaData` these are. Raises `WireError`."""
    try:
        return decode(b"".join(entries), options.limits, float_lists=options.float_lists).metadata
    except WireError:
        # Where they are no protobuf the whole message is none, and that is what to say.
        plain(message, options)
        raise


def not_a_message(payload: bytes, error: Exception) -> WireError:
    """What to raise for bytes that protobuf refuses."""
    return WireError(
        f"Error converting bytes array to data: the {len(payload)} bytes are no ProtoData message ({error})"
    )


def _long_stop(message: bytes, at: int) -> int:
    """Where the field at `at` ends, whose length takes two to four bytes. `IndexError` if it takes more."""
    size = message[at + 1] & 0x7F
    for more in range(1, 4):
        byte = message[at + 1 + more]
        size |= (byte & 0x7F) << 7 * more
        if byte < 0x80:
            return at + 2 + more + size
    raise IndexError


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


# No message begins with the tag 0.
_ODD = b"\0"
_KEY = 0x0A
_LISTS = 64
_SAMPLES = 4
_FEW = 32
