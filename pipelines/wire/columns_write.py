"""Columns to ProtoData messages, many at a time.

The entries of a column are made together: what is constant in them is written once (`pipelines.wire.layouts`), what was
never decoded goes out as it came in, and everything else is left to `pipelines.wire.protobuf.encode_entry`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, WireColumn
from pipelines.data.data import Data
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.errors import DataError, MissingPackageError, RowsFailed, WireError
from pipelines.hotpath import HotPath, compiled
from pipelines.values.ndarray import to_buffer
from pipelines.values.valuetype import ValueType
from pipelines.wire.columns_read import EntryDecoder
from pipelines.wire.entries import bare
from pipelines.wire.layouts import LONGEST_VARINT, PART_BYTES, Block, Layout, learn
from pipelines.wire.protobuf import encode, encode_entry

Writer = Callable[[int, int], Sequence[bytes]]
"""Gives the entries of the rows from the first position up to the second: `b""` where a row has none."""


class WrittenColumns(NamedTuple):
    """What became of N rows."""

    messages: Sequence[bytes | None]
    """The message of each row; `None` where `failed` says why there is none."""
    failed: dict[int, Exception]
    """Position to what is wrong with the row, mostly a `WireError`."""


ColumnsWriter = Callable[[Batch], WrittenColumns]
"""Writes a message for each row of a batch."""


def columns_writer(hot_path: HotPath = "auto") -> ColumnsWriter:
    """What `encode_columns` does, with the hot path chosen beforehand."""
    native = compiled(hot_path)
    if native is None:
        return encode_in_python
    # It needs this module for what it leaves to protobuf.
    from pipelines.wire.compiled_write import write_columns

    return partial(write_columns, native)


def encode_columns(batch: Batch, *, hot_path: HotPath = "auto") -> WrittenColumns:
    """One ProtoData message for each row of the batch, with all its columns and its metadata.

    Read again, a message gives what `pipelines.wire.protobuf.encode` would have made of the row. Entries that were
    never decoded are the very bytes that came in. Raises `MissingPackageError` for a value that needs a package. The
    compiled hot path writes the same bytes, and gives them as `Spans`.
    """
    return columns_writer(hot_path)(batch)


def encode_in_python(batch: Batch) -> WrittenColumns:
    """`encode_columns` without the compiled hot path."""
    failed: dict[int, Exception] = {}
    common, rare = divided(batch)
    writers = [entry_writer(key, column, failed) for key, column in common.items()]
    if rare:
        entries = rare_entries(rare, batch.size, failed)
        writers.append(lambda start, stop: entries[start:stop])
    if batch.metadata is not None:
        writers.append(metadata_writer(batch.metadata, failed))
    if not writers:
        return WrittenColumns([b""] * batch.size, failed)
    messages: list[bytes | None] = []
    step = _rows_at_a_time(batch)
    for start in range(0, batch.size, step):
        stop = min(start + step, batch.size)
        messages.extend(map(b"".join, zip(*[writer(start, stop) for writer in writers], strict=True)))
    for position in failed:
        messages[position] = None
    return WrittenColumns(messages, failed)


def divided(batch: Batch) -> tuple[dict[str, Column], dict[str, SparseColumn]]:
    """The columns of keys that many rows have, and those of rare ones, whose entries come last in a message."""
    rare = {key: column for key, column in batch.columns.items() if isinstance(column, SparseColumn)}
    return {key: column for key, column in batch.columns.items() if key not in rare}, rare


def rare_entries(columns: Mapping[str, SparseColumn], size: int, failed: dict[int, Exception]) -> list[bytes]:
    """The entries of all these keys that each row has, one after the other; as many as there are rows.

    Rows with a value that cannot be written are put into `failed`.
    """
    entries: dict[int, list[bytes]] = {}
    for key, column in columns.items():
        own = column.column
        cells = (
            zip(column.rows, own.entries, strict=True)
            if isinstance(own, WireColumn) and keeps_entries(key, own)
            else _written(key, column, failed)
        )
        for row, entry in cells:
            entries.setdefault(row, []).append(entry or b"")
    return [b"".join(entries[row]) if row in entries else b"" for row in range(size)]


def _written(key: str, column: SparseColumn, failed: dict[int, Exception]) -> Iterator[tuple[int, bytes]]:
    for row, value in column.cells(failed):
        yield row, _entry(key, value, row, failed)


def _rows_at_a_time(batch: Batch) -> int:
    widths = [
        column.storage.nbytes // max(len(column), 1)
        for column in batch.columns.values()
        if isinstance(column, DenseColumn)
    ]
    return max(_FEWEST_ROWS, PART_BYTES // max(1, *widths, 1))


def keeps_entries(key: str, column: WireColumn) -> bool:
    """Whether the column's entries are such as this module writes under `key`."""
    return isinstance(column.decoder, EntryDecoder) and column.decoder.key == key


def entry_writer(key: str, column: Column, failed: dict[int, Exception]) -> Writer:
    """What writes the entries of a column. Rows whose value cannot be written are put into `failed`."""
    if isinstance(column, WireColumn) and keeps_entries(key, column):
        return _untouched(column)
    if isinstance(column, DenseColumn):
        writer = _integers(key, column) if column.type is ValueType.INT64 else _dense(key, column)
        if writer is not None:
            return writer
    return _one_by_one(key, _values(column, failed), failed)


def _untouched(column: WireColumn) -> Writer:
    entries: Any = column.entries
    if column.mask is None:
        return lambda start, stop: entries[start:stop]
    return lambda start, stop: [entry or b"" for entry in entries[start:stop]]


def _dense(key: str, column: DenseColumn) -> Writer | None:
    array, present = column.storage, column.mask
    assert column.type is not None
    layout = entry_layout(key, column.type, array.dtype, array.shape[1:])
    if layout is None:
        return None

    def write(start: int, stop: int) -> list[bytes]:
        buffer = np.frombuffer(to_buffer(array[start:stop]), np.uint8)
        return _gaps(layout.write(buffer.reshape(stop - start, layout.width)), present, start)

    return write


def _integers(key: str, column: DenseColumn) -> Writer | None:
    learned = [_integer_layout(key, digits) for digits in range(1, LONGEST_VARINT + 1)]
    layouts = [layout for layout in learned if layout is not None]
    if len(layouts) < LONGEST_VARINT:
        return None

    def write(start: int, stop: int) -> list[bytes]:
        numbers = column.storage[start:stop].view(np.uint64)
        digits = 1 + np.searchsorted(_DIGIT_ENDS, numbers, side="right")
        entries = [b""] * len(numbers)
        for count in np.unique(digits).tolist():
            rows = np.flatnonzero(digits == count)
            written = layouts[count - 1].write(_varints(numbers[rows], count))
            if len(rows) == len(entries):
                entries = written
                break
            for row, entry in zip(rows.tolist(), written, strict=True):
                entries[row] = entry
        return _gaps(entries, column.mask, start)

    return write


def _varints(numbers: npt.NDArray[np.uint64], digits: int) -> Block:
    block = np.empty((len(numbers), digits), np.uint8)
    for digit in range(digits):
        block[:, digit] = (numbers >> np.uint64(7 * digit)) & np.uint64(0x7F)
    block[:, :-1] |= 0x80
    return block


def _gaps(entries: list[bytes], present: Mask | None, start: int) -> list[bytes]:
    if present is not None:
        for row in np.flatnonzero(~present[start : start + len(entries)]).tolist():
            entries[row] = b""
    return entries


def _one_by_one(key: str, values: Sequence[Any], failed: dict[int, Exception]) -> Writer:
    def write(start: int, stop: int) -> list[bytes]:
        entries = []
        for row in range(start, stop):
            value = values[row]
            # Most of what comes here are short texts.
            entry = _text_entry(key, value) if type(value) is str else None
            entries.append(_entry(key, value, row, failed) if entry is None else entry)
        return entries

    return write


def _entry(key: str, value: Any, row: int, failed: dict[int, Exception]) -> bytes:
    return b"" if value is MISSING else _caught(lambda: encode_entry(key, value), row, failed)


def _text_entry(key: str, text: str) -> bytes | None:
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        return None
    layout = _text_layout(key, len(raw)) if len(raw) <= _SHORT_TEXT else None
    return None if layout is None else layout.prefix + raw + layout.suffix


def metadata_writer(metadata: Sequence[Data | None], failed: dict[int, Exception]) -> Writer:
    """What writes the metadata of the rows, as `entry_writer` does a column."""

    def entries_of(data: Data | None, row: int) -> bytes:
        return b"" if data is None else _caught(lambda: encode(Data.trusted({}, data)), row, failed)

    return lambda start, stop: [entries_of(metadata[row], row) for row in range(start, stop)]


def _caught(write: Callable[[], bytes], row: int, failed: dict[int, Exception]) -> bytes:
    try:
        return write()
    except MissingPackageError:
        raise
    except (WireError, DataError) as error:
        failed.setdefault(row, bare(error))
        return b""


def _values(column: Column, failed: dict[int, Exception]) -> list[Any]:
    try:
        return column.values()
    except RowsFailed as error:
        failed.update(error.failures)
        return [MISSING if row in error.failures else column[row] for row in range(len(column))]


@lru_cache(maxsize=1024)
def entry_layout(key: str, type: ValueType, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Layout | None:
    """The layout of entries of such values; `None` if they have none."""
    zeros = np.zeros(shape, dtype)
    return _learned(key, zeros if type is ValueType.NDARRAY else zeros.item())


@lru_cache(maxsize=1024)
def _integer_layout(key: str, digits: int) -> Layout | None:
    return _learned(key, -1 if digits == LONGEST_VARINT else 1 << 7 * (digits - 1))


@lru_cache(maxsize=4096)
def _text_layout(key: str, size: int) -> Layout | None:
    return _learned(key, "x" * size)


def _learned(key: str, value: Any) -> Layout | None:
    try:
        return learn(key, encode_entry(key, value))
    except (WireError, DataError):
        # The rows will say so themselves.
        return None


# A uint64 below the i-th of these takes at most i + 1 bytes.
_DIGIT_ENDS = np.array([1 << 7 * digits for digits in range(1, LONGEST_VARINT)], np.uint64)
# Below this, what a part costs whatever its size outweighs what small buffers save.
_FEWEST_ROWS = 64
# Bytes of strings that a column may have many of; for each length there is a layout to keep.
_SHORT_TEXT = 256
