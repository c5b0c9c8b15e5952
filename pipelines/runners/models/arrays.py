"""Which values of a batch are the arrays that a step reads: by key, or the only array of each record."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.errors import DataError, RowsFailed, ValueNotFoundError, nearest
from pipelines.runners.images.onlykey import only_key
from pipelines.values import ValueType

MOST_KEYS: Final = 50
"""Maximum number of keys that the error of a record names."""

_LOOKED_AT: Final = 1000
"""Maximum number of a batch's keys that are searched for these: it may have tens of thousands."""


def array_column(batch: Batch, key: str | None) -> Column:
    """The decoded column of `key`, or of the only NDARRAY of each record if `key` is `None`.

    Raises `RowsFailed` for rows that lack the key, or have no array or several. The values under a given key may be
    of any type, a list of numbers for example.
    """
    if key is None:
        return _inferred(batch)
    if key not in batch:
        raise lacking(key, batch, range(batch.size))
    column = batch[key]
    if column.mask is not None:
        raise_for(column, key, batch)
    return column


def array_named(key: str | None) -> str:
    """The name in errors of the array of `key`, or of the only array."""
    return "the only array" if key is None else f'the array "{key}"'


def raise_for(column: Column, key: str, batch: Batch) -> None:
    """Raise `RowsFailed` if `column` lacks a value in some rows."""
    rows = [position for position, value in enumerate(column.values()) if value is MISSING]
    if rows:
        raise lacking(key, batch, rows)


def lacking(key: str, batch: Batch, rows: Iterable[int]) -> RowsFailed:
    """The failure of the rows at these positions, which lack `key`."""
    return RowsFailed({row: missing(key, batch, row) for row in rows})


def missing(key: str, batch: Batch, row: int) -> Exception:
    """The error of the row at this position, which lacks `key`: it names the keys that this row has."""
    return ValueNotFoundError(f'Value not found for key "{key}"{keys_there(key, batch, row)}')


def keys_there(key: str, batch: Batch, row: int) -> str:
    """The end of an error about the row at this position, which lacks `key`: the nearest key that it has, and all."""
    has = [other for other, column in itertools.islice(batch.columns.items(), _LOOKED_AT) if _is_in(column, row)]
    more = len(has) > MOST_KEYS or len(batch.columns) > _LOOKED_AT
    return _among_keys(key, tuple(has[:MOST_KEYS]), more)


def _is_in(column: Column, row: int) -> bool:
    if isinstance(column, SparseColumn):
        return row in column.rows
    return column.mask is None or bool(column.mask[row])


@lru_cache(maxsize=64)
def _among_keys(key: str, others: tuple[str, ...], more: bool) -> str:
    # Most rows of a batch have the same keys, and finding the nearest one takes long.
    there = f"; there are {', '.join(others)}{', ...' if more else ''}" if others else "; the record is empty"
    return nearest(key, others) + there


def everyone(batch: Batch, error: Exception) -> RowsFailed:
    """All rows fail with `error`."""
    return RowsFailed(dict.fromkeys(range(batch.size), error))


def only_array(batch: Batch) -> Column | None:
    """The column that is the only NDARRAY of every record; `None` if it cannot be found by column, or there is none."""
    columns: list[Column] = []
    for column in batch.columns.values():
        if isinstance(column, SparseColumn):
            if _has_arrays(column):
                return None
            continue
        column = column.settled()
        if column.type is ValueType.NDARRAY and column.mask is None:
            columns.append(column)
        elif column.type is ValueType.NDARRAY or column.type is None:
            return None
    return columns[0] if len(columns) == 1 else None


def only_array_of(values: Mapping[str, Any]) -> Any:
    """The value of the only key that holds an NDARRAY. Raises `DataError` if there is none or more than one."""
    return values[only_key(array_keys(values), "NDArray")]


def array_keys(values: Mapping[str, Any]) -> list[str]:
    """The keys that hold an NDARRAY."""
    return [key for key, value in values.items() if isinstance(value, np.ndarray)]


def _inferred(batch: Batch) -> Column:
    column = only_array(batch)
    if column is not None:
        return column
    arrays: list[Any] = []
    failures: dict[int, Exception] = {}
    for row, values in enumerate(batch.all_values()):
        try:
            arrays.append(only_array_of(values))
        except DataError as error:
            failures.setdefault(row, error)
    if failures:
        raise RowsFailed(failures)
    return Column.of(arrays)


def _has_arrays(column: SparseColumn) -> bool:
    return any(isinstance(value, np.ndarray) for _, value in column.all_cells())
