"""Blocks and batches by way of dictionaries of plain values, one for each record: for formats that a library parses
into these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from connectors.codec import Decoded, Encoded, RecordsOrigin
from connectors.codecs.rows import read_each, row_numbers
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.data.data import check_key
from pipelines.data.rowrange import RowNumbers
from pipelines.errors import WireError
from pipelines.wire.limits import Limits
from pipelines.wire.plainvalues import (
    PLAIN_DECODERS,
    PlainDecoder,
    PlainForm,
    ReadRows,
    plain_rows,
    read_rows,
)

AS_OBJECTS: Final = PlainForm(bytes_as_text=False, shortest=False)
"""The form of plain values in binary formats: bytes are bytes, and floats have all their digits."""


def decode_plain(
    records: Records,
    first: int,
    wanted: frozenset[str] | None,
    read: Callable[[int, Any], dict[str, Any]],
    decoders: Mapping[str, PlainDecoder] = PLAIN_DECODERS,
) -> Decoded:
    """Decode each payload by `read(row, payload)`. A payload for which it raises, a `WireError` as a rule, fails.

    Keys that are `wanted` are checked now. Others are checked when they are asked for; until then they are the values
    that were read.
    """
    rows, failed = read_each(records, first, read)
    cells = read_rows(list(rows.values()), wanted or frozenset(), decoders)
    return decoded_columns(records, first, cells, row_numbers(rows, first), failed)


def decode_several(
    records: Records,
    first: int,
    wanted: frozenset[str] | None,
    read: Callable[[int, Any], list[dict[str, Any]]],
    decoders: Mapping[str, PlainDecoder] = PLAIN_DECODERS,
) -> Decoded:
    """As `decode_plain`, where `read` gives the rows of a payload: none, or several, which fail together."""
    payloads, failed = read_each(records, first, read)
    numbers = np.repeat(row_numbers(payloads, first), [len(rows) for rows in payloads.values()])
    cells = read_rows([row for rows in payloads.values() for row in rows], wanted or frozenset(), decoders)
    return decoded_columns(records, first, cells, numbers, failed)


def decoded_columns(
    records: Records, first: int, read: ReadRows, numbers: RowNumbers, failed: dict[int, Exception]
) -> Decoded:
    """A batch of these columns, whose rows have these numbers. `failed` gets the errors of the rows among them."""
    batch = Batch(read.columns, len(numbers), rows=numbers, origin=RecordsOrigin(records, first))
    if read.failed:
        failed.update((int(numbers[at]), error) for at, error in read.failed.items())
        wrong = [numbers[at] for at in read.failed]
        batch = batch.take(np.flatnonzero(~np.isin(numbers, wrong)))
    return Decoded(batch, failed)


def encode_plain(batch: Batch, write: Callable[[dict[str, Any]], bytes], form: PlainForm = AS_OBJECTS) -> Encoded:
    """Encode the plain values of each row by `write`. A row for which it raises fails."""
    failed: dict[int, Exception] = {}
    values: list[bytes | None] = [None] * batch.size
    for at, row in enumerate(plain_rows(batch, form, failed)):
        if at in failed:
            continue
        try:
            values[at] = write(row)
        except Exception as error:  # noqa: BLE001 - as above
            failed[at] = error
    return Encoded(values, failed)


def checked_keys(mapping: Mapping[Any, Any], limits: Limits) -> None:
    """Raise `WireError` unless these are keys that a record can have."""
    limits.check_keys(len(mapping))
    for key in mapping:
        if not isinstance(key, str):
            raise WireError(f"a key is a text, not {str(key)[:60]!r}")
        if key.startswith("@"):
            check_key(key)
