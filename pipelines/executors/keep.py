"""`keep`, which puts input values back into results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, Rows
from pipelines.data.sparsecolumn import SparseColumn, divide

Keep = Literal["all"] | Sequence[str]
"""Which input values are put back into the results: their keys, or all."""


def kept(result: Batch, given: Batch, keep: Keep | None) -> Batch:
    """`result` with the values of `keep` that its rows lack, taken from the rows of `given` that they came from.

    A value that the pipeline made, or left in place, stays; undecoded columns stay undecoded. A row made of several
    records gets the values of the last. Where a record came as several rows, of which the pipeline made more or fewer,
    none of them gets any, as the pairs are unknown. A row gets no value if `given` has none, or if the value has to be
    decoded, because other rows have values of the pipeline, and cannot be. If the rows of `result` are those of
    `given`, unchanged, the columns are shared, without work per row.
    """
    there, made = given.columns, result.columns
    wanted = [key for key in (there if keep == "all" else keep or ()) if key in there and _lacks(made.get(key))]
    if not wanted:
        return result
    index = _places(result, given)
    if index is None:
        wanted = [key for key in wanted if made.get(key) is not there[key]]
    rare = {key: column for key in wanted if isinstance(column := there[key], SparseColumn)}
    columns: Mapping[str, Column] = rare
    if index is not None:
        (columns,) = divide(rare, [index])
    columns = {**columns, **{key: _at(there[key], index) for key in wanted if key not in rare}}
    return result.with_columns({key: _filled(made.get(key), columns[key]) for key in wanted if key in columns})


def _lacks(column: Column | None) -> bool:
    if column is None or isinstance(column, SparseColumn):
        return True
    present = column.mask
    return present is not None and not present.all()


def _places(result: Batch, given: Batch) -> Rows | None:
    """The index in `given` of each row's record, -1 if it is not there; `None`: the same rows in the same order."""
    if result.splits is None and result.same_rows(given):
        return None
    parents = last_parents(result)
    numbers = last_parents(given)
    if len(numbers) == 0:
        return np.full(len(parents), -1, np.int64)
    # Rows of one batch lie close together: a table of their places is quicker than a search for each.
    low, high = int(numbers.min()), int(numbers.max())
    table = np.full(high - low + 2, -1, np.int64)
    table[numbers - low] = np.arange(len(numbers))
    if given.row_range is None and len(np.unique(numbers)) < len(numbers):
        return _places_of_many(parents, numbers)
    strange = (parents < low) | (parents > high)
    if strange.any():
        # Rows that are not in `given` get the last place of the table, which is -1.
        parents = np.where(strange, high + 1, parents)
    places: Rows = table[parents - low]
    return places


def _places_of_many(parents: Rows, numbers: Rows) -> Rows:
    """`_places` where records have several rows: in their order, if a record has as many results as it has rows."""
    known, starts, sizes = np.unique(numbers, return_index=True, return_counts=True)
    records, inverse, counts = np.unique(parents, return_inverse=True, return_counts=True)
    # The number of each result among the results of its record, from 0.
    order = np.argsort(inverse, kind="stable")
    nth = np.empty(len(parents), np.int64)
    nth[order] = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    at = np.minimum(np.searchsorted(known, records), len(known) - 1)
    same, alone = (known[at] == records) & (sizes[at] == counts), (known[at] == records) & (sizes[at] == 1)
    places = np.where(alone[inverse], starts[at][inverse], starts[at][inverse] + nth)
    return np.where((same | alone)[inverse], places, -1)


def last_parents(batch: Batch) -> Rows:
    """The number of each row's last record, -1 for a row without records."""
    if batch.splits is None:
        return batch.rows
    # A row without parents ends where it starts; the parent before it belongs to another row.
    ends = np.append(batch.rows, -1)[batch.splits[1:] - 1]
    return np.where(np.diff(batch.splits) == 0, -1, ends)


def _at(column: Column, index: Rows | None) -> Column:
    """The values of the rows at `index`, absent where it is -1; `None`: all, in order."""
    if index is None:
        return column
    if (index >= 0).all():
        return column.take(index)
    with_gap = Column.concat([column, Column.absent(1)])
    return with_gap.take(np.where(index < 0, len(column), index))


def _filled(column: Column | None, filling: Column) -> Column:
    """`column` with values of `filling`, of the same length, in the rows that lack theirs."""
    if column is None or column.empty:
        return filling
    if isinstance(column, SparseColumn) and isinstance(filling, SparseColumn):
        return column.overlaid(filling)
    present = np.ones(len(column), np.bool_) if column.mask is None else column.mask
    places = np.arange(len(column), dtype=np.int64)
    return Column.concat([column, filling]).take(np.where(present, places, places + len(column)))
