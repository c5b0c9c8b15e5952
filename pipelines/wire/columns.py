"""Many ProtoData messages to columns, and columns to messages: the two ways to do it, and the choice between them.

`protodata` reads and writes message by message with the protobuf library; `compiled_read` and `compiled_write` use the
compiled extension where it was built. Both give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pipelines.data.batch import Batch
from pipelines.hotpath import choose
from pipelines.wire.compiled_read import CompiledReader
from pipelines.wire.compiled_write import write_columns
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.protobuf import FloatLists
from pipelines.wire.protodata import ReadColumns, ReadOptions, WrittenColumns, read_messages, write_messages

ColumnsReader = Callable[[Sequence[Any], frozenset[str]], ReadColumns]
"""Reads messages into columns and decodes the columns of the keys in the set."""
ColumnsWriter = Callable[[Batch], WrittenColumns]
"""Writes a message for each row of a batch."""


def columns_reader(limits: Limits = DEFAULT_LIMITS, *, float_lists: FloatLists = "exact") -> ColumnsReader:
    """`decode_columns` with these options, as a function of the messages and the wanted keys."""
    options = ReadOptions(limits, float_lists)
    native = choose().native
    return partial(read_messages, options=options) if native is None else CompiledReader(native, options)


def decode_columns(
    values: Sequence[Any],
    wanted: frozenset[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    *,
    float_lists: FloatLists = "exact",
) -> ReadColumns:
    """The columns of many ProtoData messages: `bytes`, or `None` for a tombstone, which is passed over.

    Keys that are `wanted` are decoded and checked. The entries of all other keys are checked to be well-formed protobuf
    and stay undecoded (`WireColumn`). A message fails if `pipelines.wire.protobuf.decode` refuses it, but not for the
    value of a key that is not wanted: the error comes when the column is decoded. The compiled way gives the same
    columns, but strings are a `SpansColumn` there, and undecoded entries are `Spans`, if `values` are `Spans`.
    """
    return columns_reader(limits, float_lists=float_lists)(values, wanted or frozenset())


def columns_writer() -> ColumnsWriter:
    """`encode_columns` as a function of the batch."""
    native = choose().native
    return write_messages if native is None else partial(write_columns, native)


def encode_columns(batch: Batch) -> WrittenColumns:
    """One ProtoData message for each row of the batch, with all its columns and its metadata.

    A reader finds the same values in it as in the message that `pipelines.wire.protobuf.encode` makes of the row.
    Entries that were never decoded are the bytes that came in. Raises `MissingPackageError` for a value that needs a
    package. The compiled way writes the same bytes, as `Spans`.
    """
    return columns_writer()(batch)
