"""Rows of several batches that belong together, by their lineage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.errors import DataError
from pipelines.executors.graph.lineage import Answered, Lineage


@dataclass(slots=True)
class Aligned:
    """Batches of the same rows, in the order of the records, and the rows that are not in all of them."""

    batches: Sequence[Batch]
    lacking: dict[int, int] = field(default_factory=dict)
    """Id to the place of the first batch that has no such row."""
    torn: dict[int, Exception] = field(default_factory=dict)
    """Ids of rows of which several were made in more than one batch, so that it is unknown which belong together."""


def aligned(batches: Sequence[Batch], lineage: Lineage) -> Aligned:
    """The rows that all batches have.

    A row of one batch belongs to each row that a step made of it in another, and is repeated for each of them.
    """
    if all(batch.same_rows(batches[0]) for batch in batches[1:]):
        return Aligned(batches)
    if lineage.multiplied:
        return _by_ancestry(batches, lineage)
    common = reduce(lambda a, b: np.intersect1d(a, b, assume_unique=True), (batch.rows for batch in batches))
    order = lineage.order(common)
    ids = common if order is None else common[order]
    lacking: dict[int, int] = {}
    everything = np.unique(np.concatenate([batch.rows for batch in batches]))
    for place, batch in enumerate(batches):
        for row in np.setdiff1d(everything, batch.rows, assume_unique=True).tolist():
            lacking.setdefault(row, place)
    return Aligned([_renumbered(batch, _positions(batch.rows, ids), ids) for batch in batches], lacking)


def _positions(rows: Rows, ids: Rows) -> Rows:
    sorter = np.argsort(rows, kind="stable")
    positions: Rows = sorter[np.searchsorted(rows, ids, sorter=sorter)]
    return positions


def _renumbered(batch: Batch, positions: Rows, ids: Rows) -> Batch:
    whole = len(positions) == batch.size and bool((positions == np.arange(batch.size)).all())
    return (batch if whole else batch.take(positions)).numbered(ids, batch.origin)


def _by_ancestry(batches: Sequence[Batch], lineage: Lineage) -> Aligned:
    pairs: list[tuple[int, tuple[int, ...]]] = [(row, (place,)) for place, row in enumerate(batches[0].rows.tolist())]
    result = Aligned(())
    for place, batch in enumerate(batches[1:], start=1):
        pairs = _joined(pairs, batch, place, lineage, result)
    ids = np.array([row for row, _ in pairs], np.int64)
    order = lineage.order(ids)
    index = np.array([positions for _, positions in pairs], np.int64).reshape(len(pairs), len(batches))
    if order is not None:
        ids, index = ids[order], index[order]
    result.batches = [_renumbered(batch, index[:, place], ids) for place, batch in enumerate(batches)]
    return result


def _joined(
    pairs: list[tuple[int, tuple[int, ...]]], batch: Batch, place: int, lineage: Lineage, result: Aligned
) -> list[tuple[int, tuple[int, ...]]]:
    positions_of = {row: position for position, row in enumerate(batch.rows.tolist())}
    below: dict[int, list[int]] = {}
    there = Answered(lineage)
    for row in positions_of:
        there.add(row)
        for _, ancestor in lineage.chain(row)[:-1]:
            below.setdefault(ancestor, []).append(row)
    joined: list[tuple[int, tuple[int, ...]]] = []
    met: set[int] = set()
    for row, positions in pairs:
        above = next((ancestor for _, ancestor in lineage.chain(row)[::-1] if ancestor in positions_of), None)
        partners = [above] if above is not None else below.get(row, [])
        for partner in partners:
            met.add(partner)
            # The aligned row has the id of the descendant.
            joined.append((row if above is not None else partner, (*positions, positions_of[partner])))
        if not partners and there.covers(row):
            result.torn[row] = DataError(
                "several records were made of this one in more than one branch; it is unknown which belong together"
            )
        elif not partners:
            result.lacking[row] = place
    for row in positions_of.keys() - met:
        result.lacking.setdefault(row, 0)
    return joined
