"""Blocks and batches a row at a time, for codecs that have no other way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from connectors.codec import Decoded, Encoded, RecordsOrigin
from connectors.records import Ints, Records
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.data.data import Data, is_reserved
from pipelines.data.sparsecolumn import columns_of
from pipelines.errors import WireError

T = TypeVar("T")

MOST_KEYS: Final = 50
"""The most keys that the error of a record names."""


def payload_bytes(payload: object, codec: str) -> bytes:
    """The payload as `bytes`; `WireError` for anything else: some connectors deliver objects."""
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    raise WireError(
        f"the {codec} codec reads bytes, but the payload is of type {type(payload).__name__}; "
        "choose the codec that fits the source"
    )


def read_each(records: Records, first: int, read: Callable[[int, Any], T]) -> tuple[dict[int, T], dict[int, Exception]]:
    """Read each record that has a payload by `read(position, payload)`; one for which it raises fails alone.

    Returns:
        The results by position in the block, and the errors by row number.
    """
    rows: dict[int, T] = {}
    failed: dict[int, Exception] = {}
    for position, payload in enumerate(records.values):
        if payload is None:
            continue
        try:
            rows[position] = read(position, payload)
        except Exception as error:  # noqa: BLE001 - any exception fails this record alone
            failed[first + position] = error
    return rows, failed


def row_numbers(positions: Collection[int], first: int) -> Ints:
    """The row numbers of the records at these positions, `int64 (N,)`."""
    return np.fromiter(positions, np.int64, len(positions)) + first


def decode_rows(records: Records, first: int, read: Callable[[Any], Data]) -> Decoded:
    """Each payload by itself; one for which `read` raises, a `WireError` as a rule, cannot be decoded."""
    rows, failed = read_each(records, first, lambda _, payload: read(payload))
    batch = Batch.of(list(rows.values()))
    return Decoded(batch.numbered(row_numbers(rows, first), RecordsOrigin(records, first)), failed)


def decode_mappings(records: Records, first: int, read: Callable[[int, Any], Mapping[str, Any]]) -> Decoded:
    """As `decode_rows`, where `read(position, payload)` gives the values of a record, as a `Data` holds them."""
    rows, failed = read_each(records, first, read)
    columns, origin = columns_of(list(rows.values())), RecordsOrigin(records, first)
    return Decoded(Batch(columns, len(rows), rows=row_numbers(rows, first), origin=origin), failed)


def decoded_column(
    records: Records, first: int, key: str, column: Column, rows: list[int], failed: dict[int, Exception]
) -> Decoded:
    """A batch of one key whose values came from the rows at these positions; `failed` is by position too."""
    numbers = np.array(rows, np.int64) + first
    batch = Batch({key: column} if rows else {}, len(rows), rows=numbers, origin=RecordsOrigin(records, first))
    return Decoded(batch, {first + row: error for row, error in failed.items()})


def encode_rows(batch: Batch, write: Callable[[Data], bytes]) -> Encoded:
    """Each row by itself; one for which `write` raises, a `WireError` as a rule, cannot be encoded."""
    failed = reserved_keys(batch)
    values: list[bytes | None] = [None] * batch.size
    for row, entries in enumerate(batch.row_values(failed)):
        if row in failed:
            continue
        metadata = None if batch.metadata is None else batch.metadata[row]
        try:
            values[row] = write(Data.trusted(entries, metadata))
        except Exception as error:  # noqa: BLE001 - as above
            failed[row] = error
    return Encoded(values, failed)


def reserved_keys(batch: Batch) -> dict[int, Exception]:
    """The errors of rows with a key that no `Data` can have, for codecs that cannot write it."""
    return {
        row: WireError(f'the key "{key}" cannot be written, as the form has a use of its own for it; drop: [{key}]')
        for key, column in batch.columns.items()
        if is_reserved(key)
        for row in column.positions()
    }


def only_column(batch: Batch, key: str) -> Column | None:
    """The column of `key`, or the only column of the batch; `None` if there is neither."""
    columns = batch.columns
    if key in columns:
        return columns[key]
    return next(iter(columns.values())) if len(columns) == 1 else None


def encode_values(batch: Batch, key: str, codec: str, write: Callable[[Any, str], bytes]) -> Encoded:
    """The value of `key` of each row, or its only value; `write` is given the value and its key."""
    failed: dict[int, Exception] = {}
    messages: list[bytes | None] = [None] * batch.size
    for row, (value_key, value) in _values(batch, key, codec, failed).items():
        try:
            messages[row] = write(value, value_key)
        except Exception as error:  # noqa: BLE001 - as above
            failed[row] = error
    return Encoded(messages, failed)


def _values(batch: Batch, key: str, codec: str, failed: dict[int, Exception]) -> dict[int, tuple[str, Any]]:
    """Position to the key and the value that is written."""
    values = {row: (key, value) for row, value in batch.column(key).cells(failed)} if key in batch else {}
    others: dict[int, list[str]] = {row: [] for row in range(batch.size) if row not in values and row not in failed}
    if not others:
        return values
    for other, column in batch.columns.items():
        for row in column.positions():
            if row in others:
                others[row].append(other)
    rows_of: dict[str, list[int]] = {}
    for row, keys in others.items():
        if len(keys) == 1 and keys != [key]:
            rows_of.setdefault(keys[0], []).append(row)
        else:
            failed[row] = _no_value(key, keys, codec)
    for other, rows in rows_of.items():
        wrong: dict[int, Exception] = {}
        values_of_rows = dict(batch.column(other).take(np.array(rows, np.int64)).cells(wrong))
        for place, row in enumerate(rows):
            if place in values_of_rows:
                values[row] = (other, values_of_rows[place])
            else:
                failed[row] = wrong.get(place) or _no_value(key, [], codec)
    return values


def _no_value(key: str, keys: Sequence[str], codec: str) -> WireError:
    named = ", ".join(sorted(keys)[:MOST_KEYS]) + (", ..." if len(keys) > MOST_KEYS else "")
    return WireError(
        f'the {codec} codec writes one value, that of "{key}", but the result has {named or "no values"}; '
        "name it in the sink (keys: [NAME]) or in the codec (key: NAME)"
    )
