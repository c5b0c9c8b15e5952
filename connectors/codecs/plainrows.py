"""Blocks and batches by way of dictionaries of plain values, one for each record: for formats that a library parses
into these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np

from connectors.codec import Decoded, Encoded, RecordsOrigin
from connectors.codecs.rows import read_each
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn
from pipelines.data.data import check_key
from pipelines.data.rowrange import RowNumbers
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import RowsFailed, WireError
from pipelines.values import ValueType
from pipelines.wire.limits import Limits
from pipelines.wire.plainvalues import (
    RULES,
    PlainDecoder,
    PlainForm,
    PlainRules,
    ReadRows,
    plain_rows,
    read_rows,
    read_rows_alike,
)

AS_OBJECTS: Final = PlainForm(bytes_as_text=False, shortest=False)
"""The form of plain values in binary formats: bytes are bytes, and floats have all their digits."""


def decode_plain(
    records: Records,
    first: int,
    wanted: frozenset[str] | None,
    read: Callable[[int, Any], dict[str, Any]],
    rules: PlainRules = RULES,
) -> Decoded:
    """Decode each payload by `read(row, payload)`. A payload for which it raises, a `WireError` as a rule, fails.

    Keys that are `wanted` are checked now. Others are checked when they are asked for; until then they are the values
    that were read.
    """
    found, failed = read_each(records, first, read)
    numbers = [first + position for position in found]
    return decoded_rows(records, first, wanted, list(found.values()), numbers, failed, rules)


def decoded_rows(
    records: Records,
    first: int,
    wanted: frozenset[str] | None,
    rows: list[dict[str, Any]],
    numbers: list[int],
    failed: dict[int, Exception],
    rules: PlainRules = RULES,
    names: Sequence[str] | None = None,
) -> Decoded:
    """A batch of these rows, which have these numbers. `failed` holds the errors of other rows, and gets those of rows
    whose values are wrong.

    `names` are the keys of every row, if all have the same.
    """
    found = read_rows_of(rows, wanted or frozenset(), rules, names)
    return decoded_columns(records, first, found, np.array(numbers, np.int64), failed)


def read_rows_of(
    rows: list[dict[str, Any]], wanted: frozenset[str], rules: PlainRules, names: Sequence[str] | None
) -> ReadRows:
    """The columns of these rows; `names` are the keys of every row, if all have the same."""
    if names is None or not rows:
        return read_rows(rows, wanted, rules)
    return read_rows_alike(rows, names, wanted, rules)


def decoded_columns(
    records: Records, first: int, found: ReadRows, numbers: RowNumbers, failed: dict[int, Exception]
) -> Decoded:
    """A batch of these columns, whose rows have these numbers. `failed` gets the errors of the rows among them."""
    batch = Batch(found.columns, len(numbers), rows=numbers, origin=RecordsOrigin(records, first))
    if found.failed:
        failed.update((int(numbers[at]), error) for at, error in found.failed.items())
        batch = batch.take(np.array([at for at in range(len(numbers)) if at not in found.failed], np.int64))
    return Decoded(batch, failed)


def alike_rows(
    batch: Batch, more: Mapping[str, Any], form: PlainForm = AS_OBJECTS
) -> tuple[Sequence[str], list[dict[str, Any]]] | None:
    """The keys of a batch whose rows all have them, and the plain values of each row; `None` for another batch.

    `more` is put into each row. Values are as `plain_rows` gives them, of columns of which whole lists are there: those
    of numbers, arrays, texts and bytes, and those that no step has read.
    """
    if not batch.columns:
        return None
    names, columns = list(batch.columns), []
    for column in batch.columns.values():
        if column.mask is not None:
            return None
        if isinstance(column, DenseColumn):
            columns.append(form.array(column.storage))
        elif isinstance(column, WireColumn) and isinstance(column.decoder, PlainDecoder):
            columns.append(column.entries)
        elif column.type in _WHOLE:
            try:
                columns.append(column.values())
            except RowsFailed:
                return None
        else:
            return None
    # The dictionaries are made without running Python code for each row.
    keys = repeat((*names, *more))
    return names, list(map(dict, map(zip, keys, zip(*columns, *map(repeat, more.values()), strict=False))))


_WHOLE: Final = frozenset({ValueType.STRING, ValueType.BYTES})


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


def checked_keys(found: Mapping[Any, Any], limits: Limits) -> None:
    """Raise `WireError` unless these are keys that a record can have."""
    limits.check_keys(len(found))
    for key in found:
        if not isinstance(key, str):
            raise WireError(f"a key is a text, not {str(key)[:60]!r}")
        if key.startswith("@"):
            check_key(key)
