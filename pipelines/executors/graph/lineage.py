"""`Lineage`: an id for each row inside a graph, and which row it was made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np

from pipelines.data.batch import Batch, JoinedOrigins, Origin, listed_timestamps
from pipelines.data.columns import Rows
from pipelines.data.record import RecordContext, RecordPlaces, listed_places
from pipelines.data.rowrange import RowNumbers

Chain = list[tuple[str, int]]
"""A row's ancestry: `(step that made it, id)`, from the row that came in (whose step is "") down to the row itself."""


class Lineage:
    """The rows of one run of a graph.

    The rows that come in have the ids 0 to N - 1. Where a step makes several rows of one, each gets a new id and stays
    a descendant of that one; a row made of several records (a window) gets a new id and no ancestors. So ids are unique
    in every batch inside the graph, and branches that part after a row was multiplied meet again row by row.
    It is also the origin of batches inside the graph: `record(id)`.
    """

    def __init__(self, given: Batch) -> None:
        self._given = given
        self._made: dict[int, tuple[int, str]] = {}
        self._windows: dict[int, Rows] = {}
        self._next = given.size
        self._origins: list[Origin] = [] if given.origin is None else [given.origin]
        self.entered = given.numbered(range(given.size), self if self._origins else None)
        """The rows that came in, under their ids."""

    @property
    def plain(self) -> bool:
        """Whether all rows are still those that came in."""
        return self._next == self._given.size

    @property
    def multiplied(self) -> bool:
        """Whether a row has become several."""
        return bool(self._made)

    def record(self, row: int) -> RecordContext | None:
        """The context of the first record that the row with this id came from."""
        roots = self.roots(row)
        return JoinedOrigins(self._origins).record(int(roots[0])) if len(roots) else None

    def places(self, rows: Rows, *, keys: bool = True) -> RecordPlaces:
        """Where the first records that the rows with these ids came from are from."""
        if self.plain and self._given.splits is None:
            return JoinedOrigins(self._origins).places(self._given.rows[rows], keys=keys)
        return listed_places(map(self.record, rows.tolist()))

    def timestamps(self, rows: Rows) -> Rows:
        """The timestamps of the first records that the rows with these ids came from."""
        if self.plain and self._given.splits is None:
            return JoinedOrigins(self._origins).timestamps(self._given.rows[rows])
        return listed_timestamps(map(self.record, rows.tolist()))

    def roots(self, row: int) -> Rows:
        """The numbers, outside the graph, of the records that the row with this id came from."""
        while row in self._made:
            row, _ = self._made[row]
        return self._windows[row] if row in self._windows else self._given.parents(row)

    def all_roots(self, rows: Iterable[int]) -> set[int]:
        """The record numbers of all these ids."""
        if self.plain and self._given.splits is None:
            return set(self._given.rows[np.fromiter(rows, np.int64)].tolist())
        return {root for row in rows for root in self.roots(row).tolist()}

    def chain(self, row: int) -> Chain:
        """The ancestry of the row with this id."""
        chain: Chain = []
        while row in self._made:
            parent, step = self._made[row]
            chain.append((step, row))
            row = parent
        chain.append(("", row))
        return chain[::-1]

    def order(self, rows: Rows) -> Rows | None:
        """Positions that sort these ids by the order of the records; `None` if they are sorted already."""
        if bool((rows[1:] > rows[:-1]).all()) and self.plain:
            return None
        if self.plain:
            return np.argsort(rows, kind="stable")
        places = self._places()
        keys = [self._key(row, places) for row in rows.tolist()]
        ranked = sorted(range(len(keys)), key=keys.__getitem__)
        return np.array(ranked, np.int64)

    def adopted(self, step: str, batch: Batch) -> Batch:
        """The result of a step that was given ids, every row under an id of its own."""
        if batch.splits is None and _unique(batch.rows):
            return batch
        ids, counts = np.unique(batch.rows, return_counts=True)
        several = set(ids[counts > 1].tolist())
        new_ids = []
        for position in range(batch.size):
            parents = batch.parents(position)
            if len(parents) != 1:
                new_ids.append(self._window(np.array(sorted(self.all_roots(parents.tolist())), np.int64)))
            elif int(parents[0]) in several:
                new_ids.append(self._descendant(int(parents[0]), step))
            else:
                new_ids.append(int(parents[0]))
        return batch.numbered(np.array(new_ids, np.int64), batch.origin)

    def returned(self, step: str, batch: Batch, given: Batch) -> Batch:
        """The result of a step that was given `outside(given)`, every row under an id of its own.

        A row that came from one record of `given` is still that row, others are new.
        """
        if batch.origin is not None and all(batch.origin is not known for known in self._origins):
            self._origins.append(batch.origin)
        known: dict[int, list[int]] = {}
        for row in given.rows.tolist():
            roots = self.roots(row)
            if len(roots) == 1:
                known.setdefault(int(roots[0]), []).append(row)
        parents = [batch.parents(position).tolist() for position in range(batch.size)]
        counts: dict[int, int] = {}
        for row_parents in parents:
            if len(row_parents) == 1:
                counts[row_parents[0]] = counts.get(row_parents[0], 0) + 1
        new_ids = []
        for row_parents in parents:
            ids = known.get(row_parents[0], []) if len(row_parents) == 1 else []
            if ids and len(ids) == counts[row_parents[0]]:
                # As many rows as went in: the step emits them in the order in which they went in.
                new_ids.append(ids[0])
                known[row_parents[0]] = [*ids[1:], ids[0]]
            elif len(ids) == 1:
                new_ids.append(self._descendant(ids[0], step))
            else:
                new_ids.append(self._window(np.array(row_parents, np.int64)))
        return batch.numbered(np.array(new_ids, np.int64), None if batch.origin is None else self)

    def outside(self, batch: Batch) -> Batch:
        """The rows of a batch inside the graph, under the numbers of their records."""
        rows, splits = self._numbers(batch)
        return Batch(
            batch.columns,
            batch.size,
            rows=rows,
            splits=splits,
            metadata=batch.metadata,
            origin=None if batch.origin is None else self._origin(),
            views=batch.views,
        )

    def _numbers(self, batch: Batch) -> tuple[RowNumbers, Rows | None]:
        if batch.same_rows(self.entered):
            return self._given.row_numbers, self._given.splits
        ids = batch.rows
        if self.plain:
            return self._given.numbers(ids)
        parents = [self.roots(row) for row in ids.tolist()]
        rows = np.concatenate([np.zeros(0, np.int64), *parents])
        if all(len(numbers) == 1 for numbers in parents):
            return rows, None
        return rows, np.concatenate([np.zeros(1, np.int64), np.cumsum([len(numbers) for numbers in parents])])

    def _origin(self) -> Origin:
        return self._origins[0] if len(self._origins) == 1 else JoinedOrigins(tuple(self._origins))

    def _descendant(self, row: int, step: str) -> int:
        self._made[self._next] = (row, step)
        self._next += 1
        return self._next - 1

    def _window(self, roots: Rows) -> int:
        self._windows[self._next] = roots
        self._next += 1
        return self._next - 1

    def _places(self) -> Mapping[int, int]:
        if not self._windows:
            return {}
        return {root: row for row in range(self._given.size) for root in self._given.parents(row).tolist()}

    def _key(self, row: int, places: Mapping[int, int]) -> tuple[float, ...]:
        (_, first), *rest = self.chain(row)
        if first in self._windows:
            # After the record that completed the window; first if that record is of an earlier batch.
            last = max((places.get(root, -1) for root in self._windows[first].tolist()), default=-1)
            return (last + 0.5, first, *(step for _, step in rest))
        return (first, *(step for _, step in rest))


class Answered:
    """Rows that an earlier input of a join has emitted already; a row and its ancestor count as the same row."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage
        self._ids: set[int] = set()
        self._below: dict[int, set[str]] = {}

    def add(self, row: int) -> None:
        """An input has emitted the row with this id."""
        self._ids.add(row)
        chain = self._lineage.chain(row)
        for (_, ancestor), (step, _) in pairwise(chain):
            self._below.setdefault(ancestor, set()).add(step)

    def covers(self, row: int) -> bool:
        """Whether an input has emitted this row, an ancestor or a descendant of it.

        Two rows that one step made of one row are different rows. Rows that two steps each made of one row count as
        the same row.
        """
        chain = self._lineage.chain(row)
        for (_, ancestor), (step, _) in zip(chain, [*chain[1:], ("", -1)], strict=True):
            if ancestor in self._ids:
                return True
            below = self._below.get(ancestor)
            if below is None:
                return False
            if below - {step}:
                return True
        return False


def _unique(rows: Rows) -> bool:
    return bool((rows[1:] > rows[:-1]).all()) or len(np.unique(rows)) == len(rows)
