"""Many ProtoData messages to columns, and columns to messages: the two ways to do it, and the choice between them.

`protodata` reads and writes message by message with the protobuf library; `compiled_read` and `compiled_write` use the
compiled extension where it was built. Both give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, Rows
from pipelines.data.data import Data
from pipelines.data.entries import Entries
from pipelines.data.spans import Spans
from pipelines.errors import WireError
from pipelines.hotpath import HotPath, compiled
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.protobuf import FloatLists

if TYPE_CHECKING:
    from pipelines.wire.compiled_read import CompiledReader


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


ColumnsReader = Callable[[Sequence[Any], frozenset[str]], ReadColumns]
"""Reads messages into columns and decodes the columns of the keys in the set."""
ColumnsWriter = Callable[[Batch], WrittenColumns]
"""Writes a message for each row of a batch."""


@dataclass(frozen=True, slots=True)
class EntryDecoder:
    """Decodes a `WireColumn` of one key. Decoders of the same key and options are equal."""

    key: str
    options: ReadOptions

    def __call__(self, entries: Entries) -> Column:
        """The column of these entries. Raises `RowsFailed` naming the rows that cannot be decoded."""
        from pipelines.wire.protodata import decoded

        if isinstance(entries, Spans):
            native = compiled()
            column = None if native is None else _compiled_reader(native, self.options).column(self.key, entries)
            if column is not None:
                return column
        return decoded(self.key, entries, self.options)


def columns_reader(
    limits: Limits = DEFAULT_LIMITS, *, float_lists: FloatLists = "exact", hot_path: HotPath = "auto"
) -> ColumnsReader:
    """`decode_columns` with these options, as a function of the messages and the wanted keys."""
    options = ReadOptions(limits, float_lists)
    native = compiled(hot_path)
    if native is not None:
        return _compiled_reader(native, options)
    # Both ways need the types of this module, so they are imported late.
    from pipelines.wire.protodata import read_messages

    return partial(read_messages, options=options)


def decode_columns(
    values: Sequence[Any],
    wanted: frozenset[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    *,
    float_lists: FloatLists = "exact",
    hot_path: HotPath = "auto",
) -> ReadColumns:
    """The columns of many ProtoData messages: `bytes`, or `None` for a tombstone, which is passed over.

    Keys that are `wanted` are decoded and checked. The entries of all other keys are checked to be well-formed protobuf
    and stay undecoded (`WireColumn`). A message fails if `pipelines.wire.protobuf.decode` refuses it, but not for the
    value of a key that is not wanted: the error comes when the column is decoded. The compiled way gives the same
    columns, but strings are a `SpansColumn` there, and undecoded entries are `Spans`, if `values` are `Spans`.
    """
    return columns_reader(limits, float_lists=float_lists, hot_path=hot_path)(values, wanted or frozenset())


def columns_writer(hot_path: HotPath = "auto") -> ColumnsWriter:
    """`encode_columns` as a function of the batch."""
    native = compiled(hot_path)
    if native is not None:
        from pipelines.wire.compiled_write import write_columns

        return partial(write_columns, native)
    from pipelines.wire.protodata import write_messages

    return write_messages


def encode_columns(batch: Batch, *, hot_path: HotPath = "auto") -> WrittenColumns:
    """One ProtoData message for each row of the batch, with all its columns and its metadata.

    A reader finds the same values in it as in the message that `pipelines.wire.protobuf.encode` makes of the row.
    Entries that were never decoded are the bytes that came in. Raises `MissingPackageError` for a value that needs a
    package. The compiled way writes the same bytes, as `Spans`.
    """
    return columns_writer(hot_path)(batch)


@lru_cache(maxsize=64)
def _compiled_reader(native: Any, options: ReadOptions) -> CompiledReader:
    from pipelines.wire.compiled_read import CompiledReader

    return CompiledReader(native, options)
