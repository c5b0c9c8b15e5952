"""Blocks and batches a row at a time, for codecs that have no other way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from connectors.codec import Decoded, Encoded, RecordsOrigin
from connectors.records import Records
from pipelines.batch import Batch
from pipelines.columns import MISSING, Column
from pipelines.data import Data
from pipelines.errors import RowsFailed, WireError


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


def decode_rows(records: Records, first: int, read: Callable[[Any], Data]) -> Decoded:
    """Each payload by itself; one for which `read` raises, a `WireError` as a rule, cannot be decoded."""
    found: list[Data] = []
    rows: list[int] = []
    failed: dict[int, Exception] = {}
    for row, payload in enumerate(records.values):
        if payload is None:
            continue
        try:
            found.append(read(payload))
        except Exception as error:  # noqa: BLE001 - whatever is raised belongs to this record
            failed[first + row] = error
        else:
            rows.append(first + row)
    numbers = np.array(rows, np.int64)
    return Decoded(Batch.of(found).numbered(numbers, RecordsOrigin.of(records, first, numbers)), failed)


def decoded_column(
    records: Records, first: int, key: str, column: Column, rows: list[int], failed: dict[int, Exception]
) -> Decoded:
    """A batch of one key whose values came from the rows at these positions; `failed` is by position too."""
    numbers = np.array(rows, np.int64) + first
    origin = RecordsOrigin.of(records, first, numbers)
    batch = Batch({key: column} if rows else {}, len(rows), rows=numbers, origin=origin)
    return Decoded(batch, {first + row: error for row, error in failed.items()})


def encode_rows(batch: Batch, write: Callable[[Data], bytes]) -> Encoded:
    """Each row by itself; one for which `write` raises, a `WireError` as a rule, cannot be encoded."""
    failed: dict[int, Exception] = {}
    columns = {key: _values(column, failed) for key, column in batch.columns.items()}
    values: list[bytes | None] = [None] * batch.size
    for row in range(batch.size):
        if row in failed:
            continue
        entries = {key: column[row] for key, column in columns.items() if column[row] is not MISSING}
        metadata = None if batch.metadata is None else batch.metadata[row]
        try:
            values[row] = write(Data.trusted(entries, metadata))
        except Exception as error:  # noqa: BLE001 - as above
            failed[row] = error
    return Encoded(values, failed)


def only_column(batch: Batch, key: str, codec: str) -> tuple[str, Column]:
    """The column of `key`, or the batch's one and only, and its key. Raises `WireError` if there is none."""
    if key in batch:
        return key, batch.column(key)
    keys = batch.keys()
    if len(keys) == 1:
        return keys[0], batch.column(keys[0])
    raise WireError(
        f'the {codec} codec writes one value, that of "{key}", but the result has '
        f"{', '.join(sorted(keys)) or 'no values'}; name it in the sink (keys: [NAME]) or in the codec (key: NAME)"
    )


def encode_values(batch: Batch, key: str, codec: str, write: Callable[[Any, str], bytes]) -> Encoded:
    """The value of `key` (or the only one) of each row by itself; `write` is given the value and its key."""
    failed: dict[int, Exception] = {}
    messages: list[bytes | None] = [None] * batch.size
    try:
        key, column = only_column(batch, key, codec)
    except WireError as error:
        return Encoded(messages, dict.fromkeys(range(batch.size), error))
    for row, value in enumerate(_values(column, failed)):
        if row in failed:
            continue
        try:
            if value is MISSING:
                raise WireError(f'the {codec} codec writes the value of "{key}", but the result has none')
            messages[row] = write(value, key)
        except Exception as error:  # noqa: BLE001 - as above
            failed[row] = error
    return Encoded(messages, failed)


def _values(column: Column, failed: dict[int, Exception]) -> list[Any]:
    try:
        return column.values()
    except RowsFailed as error:
        failed.update(error.failures)
        return [MISSING if row in error.failures else column[row] for row in range(len(column))]
