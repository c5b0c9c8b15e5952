"""Columns of blocks: plain sequences, `Spans` and `Headers`, whose rows are taken and joined without row objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from connectors.headers import Headers
from pipelines.data.spans import Spans

Rows = npt.NDArray[Any]
"""Numbers of rows, or a mask of all of them."""


def take_rows(column: Sequence[Any], rows: Rows) -> Sequence[Any]:
    """The entries of these rows: of the kind of the column, else a list."""
    if isinstance(column, (Spans, Headers)):
        return column.take(rows)
    places = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    return [column[place] for place in places.tolist()]


def emptied(column: Sequence[Any], kept: npt.NDArray[np.bool_]) -> Sequence[Any]:
    """The column with `None` in place of each entry that is not kept, `bool (N,)`: of its kind, else a list."""
    if isinstance(column, Spans):
        return Spans(column.buffer, column.starts, np.where(kept, column.lengths, -1))
    left: list[Any] = [None] * len(column)
    for row in np.flatnonzero(kept).tolist():
        left[row] = column[row]
    return left


def joined(parts: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """The entries of all parts, one after the other. Where a part is `Spans` or `Headers`, the result is too.

    Plain parts next to those hold `bytes | None`, or lists of headers.
    """
    if len(parts) == 1:
        return parts[0]
    if any(isinstance(part, Spans) for part in parts):
        return Spans.concat([Spans.of(part) for part in parts])
    if any(isinstance(part, Headers) for part in parts):
        return Headers.concat([Headers.of(part) for part in parts])
    return [entry for part in parts for entry in part]


def lengths(column: Sequence[bytes | None]) -> npt.NDArray[np.int64]:
    """The bytes of each entry, `int64 (N,)`; 0 where it is `None`."""
    if isinstance(column, Spans):
        return np.maximum(column.lengths, 0)
    return np.fromiter((0 if entry is None else len(entry) for entry in column), np.int64, len(column))


def where_null(column: Sequence[Any]) -> list[int]:
    """The rows whose entry is `None`."""
    if isinstance(column, Spans):
        return np.flatnonzero(column.null).tolist()
    return [row for row, entry in enumerate(column) if entry is None]
