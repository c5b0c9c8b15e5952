"""ProtoData messages to columns and back, message by message: protobuf parses each message and writes each value.

This is the simple way, which runs everywhere and says what is right. `compiled_read` and `compiled_write` do the same
faster, and leave to it what they do not understand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Rows
from pipelines.data.data import Data, is_reserved, reserved
from pipelines.data.entries import Entries
from pipelines.data.sparsecolumn import SparseColumn, by_key
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, MissingPackageError, RowsFailed, WireError, without_traceback
from pipelines.values.ndarray import NDArrayType, dtype_of
from pipelines.values.valuetype import ValueType
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.protobuf import (
    UNKNOWN,
    FloatLists,
    decode,
    encode,
    encode_entry,
    metadata_of,
    parsed_message,
    value_of,
)
from pipelines.wire.varint import varint
from protos import data_pb2 as pb

_LONGEST_KEY: Final = 256
"""Characters of a key up to which what is computed from it is kept: keys come from clients, and may be long."""

Failures: TypeAlias = dict[int, Exception]
"""Row to the error of its value. The writer of a column adds the errors of rows that it cannot write."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How messages are read: see `pipelines.wire.protobuf.decode`."""

    limits: Limits = DEFAULT_LIMITS
    float_lists: FloatLists = "exact"

    @property
    def safe_bytes(self) -> int:
        """A message of at most so many bytes cannot exceed `max_bytes` or `max_elements`: an element takes a byte."""
        return min(self.limits.max_bytes, self.limits.max_elements)


class ReadColumns(NamedTuple):
    """The result of reading N messages."""

    columns: dict[str, Column]
    """Key to its column, which has a row for each of `rows`."""
    rows: Rows
    """Positions of the messages that were read, `int64`, rising."""
    metadata: list[Data | None] | None
    """The metadata of each of `rows`; `None` if none has any."""
    failed: dict[int, WireError]
    """Position to the error of a message that cannot be read. A tombstone (`None`) is neither here nor in `rows`."""


class WrittenColumns(NamedTuple):
    """The result of writing N rows."""

    messages: Sequence[bytes | None]
    """The message of each row; `None` for a row that is in `failed`."""
    failed: dict[int, Exception]
    """Position to the error of a row that cannot be written, mostly a `WireError`."""


@dataclass(frozen=True, slots=True)
class EntryDecoder:
    """Decodes a `WireColumn` of one key. Decoders of the same key and options are equal."""

    key: str
    options: ReadOptions

    def __call__(self, entries: Entries) -> Column:
        """The column of these entries. Raises `RowsFailed` naming the rows that cannot be decoded."""
        column, failed, unsound = read_entries(self.key, entries, self.options)
        if failed or unsound:
            broken = {row: WireError.unreadable(self.key, "its entry is broken") for row in unsound}
            raise RowsFailed({**failed, **broken})
        return column


def read_messages(
    values: Iterable[Any],
    wanted: frozenset[str],
    options: ReadOptions,
    decoder: Callable[[str, ReadOptions], EntryDecoder] = EntryDecoder,
) -> ReadColumns:
    """The columns of these messages; see `pipelines.wire.columns.decode_columns`.

    `decoder` makes the decoder of a key that is not wanted.
    """
    read = _MessageReader(wanted, options)
    rows: list[dict[str, Any]] = []
    positions: list[int] = []
    metadata: list[Data | None] = []
    failed: dict[int, WireError] = {}
    for position, payload in enumerate(values):
        if payload is None:
            continue
        try:
            cells, about = read(payload)
        except WireError as error:
            failed[position] = without_traceback(error)
            continue
        rows.append(cells)
        positions.append(position)
        metadata.append(about)
    columns = {
        key: _column(len(rows), places, cells, None if key in wanted else decoder(key, options))
        for key, places, cells in by_key(rows, MISSING)
    }
    return ReadColumns(columns, np.array(positions, np.int64), metadata if any(metadata) else None, failed)


class _MessageReader:
    """Reads the messages of a batch, one by one."""

    def __init__(self, wanted: frozenset[str], options: ReadOptions) -> None:
        self._wanted = wanted
        self._options = options
        self._short = min(options.safe_bytes, options.limits.max_keys)
        """Bytes of a message that cannot exceed a limit."""
        self._known: dict[bytes, str] = {}

    def __call__(self, payload: Any) -> tuple[dict[str, Any], Data | None]:
        """The values of the wanted keys of a message, the entries of all others, and its metadata.

        Raises `WireError` for a message that cannot be read.
        """
        options = self._options
        if type(payload) is not bytes or len(payload) > self._short:
            payload = _checked(payload, options)
        parsed = parsed_message(payload)
        cells: dict[str, Any] | None = _entries(payload, self._known)
        if cells is None:
            # Written in an unusual way: protobuf writes it anew, without the fields that this version does not know.
            parsed.DiscardUnknownFields()
            cells = _entries(parsed.SerializeToString(deterministic=True), self._known) or {}
        wanted, items = self._wanted, parsed.mapItems
        for key in cells:
            if key in wanted:
                try:
                    cells[key] = _value(items[key], options)
                except (WireError, DataError) as error:
                    raise WireError.unreadable(key, error) from None
        if not parsed.metaData:
            return cells, None
        return cells, metadata_of(parsed, options.limits, float_lists=options.float_lists)


def _checked(payload: Any, options: ReadOptions) -> bytes:
    """A payload as `bytes`. Raises `WireError` if it is of another type or exceeds a limit."""
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise WireError(f"a ProtoData message is bytes, not {type(payload).__name__}; choose the codec that fits")
    message = bytes(payload)
    options.limits.check_fields(message)
    if len(message) > options.safe_bytes:
        # It may be within the limits all the same: its elements have to be counted.
        decode(message, options.limits, float_lists=options.float_lists)
    return message


def _entries(message: bytes, known: dict[bytes, str]) -> dict[str, bytes] | None:
    """Each key of a valid message and its map entry, with tag and length, in the order of the message.

    `None` unless each entry is a key and its value and nothing else, and no key is there twice: only protobuf knows
    what such a message means. `known` has the keys of earlier messages by their bytes in an entry. Raises `WireError`
    for a reserved key.
    """
    entries: dict[str, bytes] = {}
    at, end = 0, len(message)
    while at < end:
        # Nearly all lengths take one byte, which is read in place: this loop is most of what passing through costs.
        size, start = message[at + 1], at + 2
        if size > 0x7F:
            size, start = varint(message, at + 1)
        stop = start + size
        if message[at] == _ENTRY:
            if size < 4:
                return None
            length, begin = message[start + 1], start + 2
            if length > 0x7F:
                length, begin = varint(message, start + 1)
            value = begin + length + 1
            head = message[start:value]
            key = known.get(head)
            if key is None:
                if head[0] != _KEY or head[-1] != _VALUE:
                    return None
                key = head[begin - start : -1].decode()
                if is_reserved(key):
                    raise WireError(reserved(key))
                known[head] = key
            length = message[value]
            value += 1
            if length > 0x7F:
                length, value = varint(message, value - 1)
            if value + length != stop or key in entries:
                return None
            entries[key] = message[at:stop]
        elif message[at] != _METADATA:
            return None
        at = stop
    return entries


def _value(scheme: pb.DataScheme, options: ReadOptions) -> Any:
    value = value_of(scheme, options.limits, float_lists=options.float_lists)
    return MISSING if value is UNKNOWN else value


def _column(size: int, places: list[int] | None, cells: list[Any], decoder: EntryDecoder | None) -> Column:
    """The column of a key, whose cells stand at these places of `size` rows, or of which there is one a row.

    The cells are entries for `decoder`, or values where there is none.
    """
    if decoder is None:
        if places is not None:
            spread: list[Any] = [MISSING] * size
            for place, cell in zip(places, cells, strict=True):
                spread[place] = cell
            cells = spread
        return Column.of(cells)
    if places is not None:
        return SparseColumn(size, places, WireColumn(cells, decoder))
    return WireColumn([None if cell is MISSING else cell for cell in cells], decoder)


class ReadValues(NamedTuple):
    """The result of reading N entries of one key."""

    column: Column
    """N rows; the key is missing where there was no entry, or none that could be read."""
    failed: dict[int, WireError]
    """Row to the error of its value."""
    unsound: list[int]
    """Rows whose entry is broken, or of another key."""


def read_entries(key: str, entries: Iterable[bytes | None], options: ReadOptions) -> ReadValues:
    """The column of the entries of one key, `None` for a row that lacks it.

    Values of a type that this version does not know are missing, as in `pipelines.wire.protobuf.decode`.
    """
    values: list[Any] = []
    failed: dict[int, WireError] = {}
    unsound: list[int] = []
    for row, entry in enumerate(entries):
        value: Any = MISSING
        if entry is not None:
            try:
                items = pb.DataMap.FromString(entry).mapItems
                if key in items:
                    value = _value(items[key], options)
                else:
                    unsound.append(row)
            except DecodeError:
                unsound.append(row)
            except (WireError, DataError) as error:
                failed[row] = WireError.unreadable(key, error)
        values.append(value)
    return ReadValues(Column.of(values), failed, unsound)


def write_messages(batch: Batch) -> WrittenColumns:
    """The message of each row; see `pipelines.wire.columns.encode_columns`."""
    failed: Failures = {}
    common, rare = batch.common_and_rare()
    parts = [entries_of(key, column, failed) for key, column in common.items()]
    if rare:
        parts.append(rare_entries(rare, batch.size, failed))
    if batch.metadata is not None:
        parts.append(metadata_entries(batch.metadata, failed))
    messages: list[bytes | None] = list(map(b"".join, zip(*parts, strict=True))) if parts else [b""] * batch.size
    for row in failed:
        messages[row] = None
    return WrittenColumns(messages, failed)


def rare_entries(columns: Mapping[str, SparseColumn], size: int, failed: Failures) -> list[bytes]:
    """The entries of all these keys that each of `size` rows has, joined."""
    entries: dict[int, list[bytes]] = {}
    for key, column in columns.items():
        kept = undecoded_entries(key, column.column)
        if kept is not None:
            cells = list(zip(column.rows, kept, strict=True))
        else:
            cells = [(row, _entry(key, value, row, failed)) for row, value in column.cells(failed)]
        for row, entry in cells:
            entries.setdefault(row, []).append(entry or b"")
    return [b"".join(entries[row]) if row in entries else b"" for row in range(size)]


def metadata_entries(metadata: Sequence[Data | None], failed: Failures) -> list[bytes]:
    """The metadata of each row as entries of its message."""
    return [
        b"" if data is None else _written(partial(encode, Data.trusted({}, data)), row, failed)
        for row, data in enumerate(metadata)
    ]


def entries_of(key: str, column: Column, failed: Failures) -> list[bytes]:
    """The entry of each row; `b""` for rows without one."""
    kept = undecoded_entries(key, column)
    if kept is not None:
        return [entry or b"" for entry in kept]
    if isinstance(column, DenseColumn) and (frame := frame_of(key, column)) is not None:
        before, after, _ = frame
        entries = [before + value.tobytes() + after for value in column.storage]
        if column.mask is not None:
            for row in np.flatnonzero(~column.mask).tolist():
                entries[row] = b""
        return entries
    entries = [b""] * len(column)
    for row, value in column.cells(failed):
        entries[row] = _entry(key, value, row, failed)
    return entries


def frame_of(key: str, column: DenseColumn) -> tuple[bytes, bytes, int] | None:
    """The bytes before and after each value of a dense column in its entry, and the bytes of the value.

    `None` for values that are not on the wire as they are in memory, and such as cannot be written.
    """
    array = column.storage
    if column.type is None or column.type is ValueType.INT64 or array.dtype not in _DTYPES:
        return None
    frame = _frame if len(key) <= _LONGEST_KEY else _frame.__wrapped__
    return frame(key, column.type, array.dtype, array.shape[1:])


@lru_cache(maxsize=1024)
def _frame(key: str, type: ValueType, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[bytes, bytes, int] | None:
    width = math.prod(shape) * dtype.itemsize
    try:
        if type is ValueType.NDARRAY:
            # protobuf writes fields by their numbers: of an NDArray its bytes are the last, and so is the NDArray of
            # the value, as its type is 0, which is not written.
            return (encode_entry(key, np.zeros(shape, dtype))[:-width], b"", width) if width else None
        # Behind a number its type follows, in two bytes.
        entry = encode_entry(key, dtype.type(0).item())
        return entry[: -width - 2], entry[-2:], width
    except (WireError, DataError):
        return None


def undecoded_entries(key: str, column: Column) -> Entries | None:
    """The entries of a column that was never decoded, to be written as they are; `None` if they are not of this key."""
    if isinstance(column, WireColumn) and isinstance(column.decoder, EntryDecoder) and column.decoder.key == key:
        return column.entries
    return None


def _entry(key: str, value: Any, row: int, failed: Failures) -> bytes:
    return _written(partial(encode_entry, key, value), row, failed)


def _written(write: Callable[[], bytes], row: int, failed: Failures) -> bytes:
    try:
        return write()
    except MissingPackageError:
        raise
    except (WireError, DataError) as error:
        failed.setdefault(row, without_traceback(error))
        return b""


_ENTRY: Final = 0x0A
"""The tag of an entry of `DataMap.mapItems`."""
_METADATA: Final = 0x12
"""The tag of an entry of `DataMap.metaData`."""
_KEY: Final = 0x0A
_VALUE: Final = 0x12
# Arrays of any other dtype have other bytes on the wire than in memory.
_DTYPES: Final = frozenset(dtype for element in NDArrayType if (dtype := dtype_of(element)) is not None)
