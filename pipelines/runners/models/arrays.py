"""Which values of a batch are the arrays that a step reads: by key, or the only array of each record."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.errors import DataError, RowsFailed, ValueNotFoundError, nearest
from pipelines.runners.images.onlyone import only_key
from pipelines.values import ValueType, type_of

MOST_KEYS: Final = 50
"""Keys that the error of a record names at most."""


def array_column(batch: Batch, key: str | None) -> Column:
    """The decoded column of `key`, or of the only NDARRAY of each record if `key` is none.

    Raises `RowsFailed` for rows that lack the key, or have no array or several. The values under a given key may be
    of any type, a list of numbers for example.
    """
    if key is None:
        return _inferred(batch)
    if key not in batch:
        raise everyone(batch, missing(key, batch))
    column = batch[key]
    if column.mask is not None:
        raise_for(column, key, batch)
    return column


def raise_for(column: Column, key: str, batch: Batch) -> None:
    """Raise `RowsFailed` if `column` lacks a value in some rows."""
    lacking = [position for position, value in enumerate(column.values()) if value is MISSING]
    if lacking:
        raise RowsFailed(dict.fromkeys(lacking, missing(key, batch)))


def missing(key: str, batch: Batch) -> Exception:
    """The error of a record that lacks `key`."""
    others = [other for other in itertools.islice(batch.columns, MOST_KEYS + 1) if other != key][:MOST_KEYS]
    more = ", ..." if len(batch.columns) > MOST_KEYS + 1 else ""
    has = f"; there are {', '.join(others)}{more}" if others else "; the record is empty"
    return ValueNotFoundError(f'Value not found for key "{key}"{nearest(key, others)}{has}')


def everyone(batch: Batch, error: Exception) -> RowsFailed:
    """All rows fail with `error`."""
    return RowsFailed(dict.fromkeys(range(batch.size), error))


def only_array(batch: Batch) -> Column | None:
    """The column that is the only NDARRAY of every record; `None` if columns do not tell or there is none."""
    found: list[Column] = []
    for column in batch.columns.values():
        if isinstance(column, SparseColumn):
            if _has_arrays(column):
                return None
            continue
        column = column.decoded()
        if column.type is ValueType.NDARRAY and column.mask is None:
            found.append(column)
        elif column.type is ValueType.NDARRAY or column.type is None:
            return None
    return found[0] if len(found) == 1 else None


def only_array_of(values: Mapping[str, Any]) -> Any:
    """The value of the only key that holds an NDARRAY. Raises `DataError` if there is none or more than one."""
    keys = [key for key, value in values.items() if type_of(value) is ValueType.NDARRAY]
    return values[only_key(keys, "NDArray")]


def _inferred(batch: Batch) -> Column:
    column = only_array(batch)
    if column is not None:
        return column
    found: list[Any] = []
    failures: dict[int, Exception] = {}
    for row, values in enumerate(batch.row_values(failures)):
        try:
            found.append(only_array_of(values))
        except DataError as error:
            failures.setdefault(row, error)
    if failures:
        raise RowsFailed(failures)
    return Column.of(found)


def _has_arrays(column: SparseColumn) -> bool:
    failures: dict[int, Exception] = {}
    found = any(isinstance(value, np.ndarray) for _, value in column.cells(failures))
    if failures:
        raise RowsFailed(failures)
    return found
