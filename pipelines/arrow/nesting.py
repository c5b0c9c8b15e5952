"""Arrow's lists as columns: of numbers they become arrays, of other values LISTs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from pipelines.arrow.buffers import Array, integers_of, present_of, splits_of
from pipelines.arrow.library import pa
from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, RaggedColumn, Rows
from pipelines.errors import DataError
from pipelines.values import ValueType

Leaf = Callable[[Any], Array | None]
"""The numbers of an Arrow array, `(N,)`; `None` if it has other values."""
Inner = Callable[[Any], Column]
"""The column of an Arrow array of any other values, in which nulls are missing."""


_FIXED: Final = pa.list_(pa.int64(), 1).id
_OPEN: Final = frozenset(kind(pa.int64()).id for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view))


def is_list(kind: Any) -> bool:
    """Whether the Arrow type is one of lists, of a fixed size or not."""
    return kind.id == _FIXED or kind.id in _OPEN


def is_fixed_list(kind: Any) -> bool:
    """Whether the Arrow type is one of lists of one size."""
    return bool(kind.id == _FIXED)


def is_open_list(kind: Any) -> bool:
    """Whether the Arrow type is one of lists whose sizes differ."""
    return kind.id in _OPEN


def lists_column(array: Any, leaf: Leaf, inner: Inner) -> tuple[Column, Mask | None]:
    """The column of an Arrow array of lists, and which rows have a null inside of their list; `None`: no row.

    Lists of one size, nested ones too, are a dense column of arrays. Lists of any sizes are a ragged one if what is in
    them is of one shape. A row whose nested lists are of several sizes has no array: it is a LIST of lists.
    """
    present = present_of(array)
    shape: list[int] = []
    nulls: Mask | None = None
    content = array
    while is_fixed_list(content.type):
        size = content.type.list_size
        content = content_of_size(content, size)
        shape.append(size)
        nulls = _with_nulls(nulls, content, len(array))
    if nulls is not None and present is not None:
        # What is below a null means nothing.
        nulls = nulls & present
    if not is_list(content.type):
        numbers = leaf(content)
        if numbers is not None:
            return DenseColumn(numbers.reshape(len(array), *shape), present=present), _any(nulls)
    if shape:
        splits = np.arange(len(array) + 1, dtype=np.int64) * shape[0]
        return _lists(content_of_size(array, shape[0]), splits, present, leaf, inner)
    return _lists(*_content(array), present, leaf, inner)


def content_of_size(array: Any, size: int) -> Any:
    """What the lists of the array are parts of, `size` values each, also those that are null."""
    content = array.values.slice(array.offset * size, len(array) * size)
    if len(content) != len(array) * size:
        raise DataError("the Arrow array is damaged: it has too few values for its lists")
    return content


def _with_nulls(nulls: Mask | None, content: Any, rows: int) -> Mask | None:
    present = present_of(content)
    if present is None or not rows:
        return nulls
    here = np.asarray((~present).reshape(rows, -1).any(axis=1))
    return here if nulls is None else nulls | here


def _any(nulls: Mask | None) -> Mask | None:
    return nulls if nulls is not None and nulls.any() else None


def _content(array: Any) -> tuple[Any, Rows]:
    """What the lists of the array are parts of, and where each begins and ends in it, from 0."""
    types = pa.types
    if types.is_list_view(array.type) or types.is_large_list_view(array.type):
        # Views may overlap, leave gaps and lie in any order.
        bits = 64 if types.is_large_list_view(array.type) else 32
        starts, sizes = (integers_of(array, bits, place).astype(np.int64) for place in (1, 2))
        present = present_of(array)
        if present is not None:
            sizes = np.where(present, sizes, 0)
        if (sizes < 0).any() or ((starts < 0) | (starts + sizes > len(array.values)))[sizes > 0].any():
            raise DataError("the Arrow array is damaged: lists lie outside of its values")
        splits = np.append(0, np.cumsum(sizes))
        places = np.repeat(starts - splits[:-1], sizes) + np.arange(splits[-1])
        return array.values.take(pa.array(places)), splits
    splits = splits_of(array)
    if splits[-1] > len(array.values):
        raise DataError("the Arrow array is damaged: lists lie outside of its values")
    first = int(splits[0])
    return array.values.slice(first, int(splits[-1]) - first), splits - first


def _lists(content: Any, splits: Rows, present: Mask | None, leaf: Leaf, inner: Inner) -> tuple[Column, Mask | None]:
    """The column of rows of which row i has `content[splits[i]:splits[i + 1]]`."""
    nulls: Mask | None = None
    if is_list(content.type):
        column, below = lists_column(content, leaf, inner)
        nulls = None if below is None else _rows_with(below, splits)
    else:
        numbers = leaf(content)
        column = inner(content) if numbers is None else DenseColumn(numbers, present=present_of(content))
    if column.mask is not None:
        without = _rows_with(~column.mask, splits)
        nulls = without if nulls is None else nulls | without
    if nulls is not None and present is not None:
        nulls = nulls & present
    if column.type is ValueType.NDARRAY and isinstance(column, DenseColumn):
        counts = np.diff(splits)
        if present is None and len(counts) and (counts == counts[0]).all():
            shape = (len(counts), int(counts[0]), *column.storage.shape[1:])
            return DenseColumn(column.storage.reshape(shape)), _any(nulls)
        return RaggedColumn(column.storage, splits, present), _any(nulls)
    values = column.values()
    there = np.ones(len(splits) - 1, np.bool_) if present is None else present
    cells = zip(splits[:-1].tolist(), splits[1:].tolist(), there.tolist(), strict=True)
    return Column.of([_list(values[start:end]) if has else MISSING for start, end, has in cells]), _any(nulls)


def _list(values: list[Any]) -> Any:
    """The value of a row: an array if all that is in it are arrays of one shape, else a list."""
    if not values or not all(isinstance(value, np.ndarray) for value in values):
        return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
    if len({value.shape for value in values}) == 1:
        return np.stack(values)
    return [value.tolist() for value in values]


def _rows_with(which: Mask, splits: Rows) -> Mask:
    """Which rows have a value among those that `which` names."""
    before = np.append(0, np.cumsum(which))
    rows: Mask = before[splits[1:]] > before[splits[:-1]]
    return rows
