"""ANY, MERGE and FIRST: the flows of several branches as one again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.data.data import Data
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.data.views import agreed, or_none
from pipelines.errors import DataError, RowsFailed
from pipelines.executors.accounting import NO_ROWS
from pipelines.executors.graph.aligning import Aligned, aligned
from pipelines.executors.graph.junction import Flow, Junction, gathered, searched
from pipelines.executors.graph.lineage import Answered, Lineage
from pipelines.executors.isolation import concatenated
from pipelines.runners.runner import OpenContext
from pipelines.steps.flow.combine import First


class AnyJunction(Junction):
    """For each row the first input that has it."""

    @property
    def passes(self) -> bool:
        return True

    def run(self, flows: Sequence[Flow], lineage: Lineage) -> Flow:
        failed, dropped = gathered(flows)
        batch = _first_of((flow.batch for flow in flows), lineage)
        return Flow(batch, failed, dropped)


class FirstJunction(Junction):
    """For each row the first input that has it without a failure; those in time come before those that are late."""

    def __init__(self, name: str, inputs: tuple[str, ...], timeout: float | None) -> None:
        super().__init__(name, inputs)
        self.timeout = timeout

    @classmethod
    def of(cls, step: First, name: str, inputs: tuple[str, ...], context: OpenContext) -> FirstJunction:
        return cls(name, inputs, None if step.timeout_ms is None else step.timeout_ms / 1000)

    @property
    def passes(self) -> bool:
        return True

    def run(self, flows: Sequence[Flow], lineage: Lineage) -> Flow:
        limit = self.timeout
        if limit is not None:
            flows = sorted(flows, key=lambda flow: flow.seconds > limit)
        # A record that failed in part in one input comes whole from the next.
        usable = [_without(flow.batch, flow.failed.keys(), lineage) for flow in flows]
        batch = _first_of(usable, lineage)
        failed, dropped = gathered(flows)
        if failed:
            done = lineage.all_roots(row for batch in usable for row in batch.rows.tolist()) | dropped.keys()
            failed = {root: error for root, error in failed.items() if root not in done}
        return Flow(batch, failed, dropped)


class MergeJunction(Junction):
    """One row with the values of all inputs."""

    @property
    def passes(self) -> bool:
        return True

    def run(self, flows: Sequence[Flow], lineage: Lineage) -> Flow:
        alignment = aligned([flow.batch for flow in flows], lineage)
        errors = dict(alignment.torn)
        merged = searched(alignment.batches, _merged, errors) if alignment.batches[0].size else []
        return flow_of(self, merged, alignment, errors, flows, lineage)


def flow_of(
    junction: Junction,
    batches: Sequence[Batch],
    alignment: Aligned,
    errors: dict[int, Exception],
    flows: Sequence[Flow],
    lineage: Lineage,
) -> Flow:
    """The flow after a junction that aligns rows: `batches`, and the failures and drops of rows that an input lacks."""
    failed, dropped = gathered(flows)
    for row, place in alignment.lacking.items():
        reason = f'{junction.name}: no such record comes from "{junction.inputs[place]}"'
        for root in lineage.roots(row).tolist():
            dropped.setdefault(root, reason)
    batch = _concat(batches, lineage)
    return Flow(batch, {**junction.failures(errors, lineage), **failed}, dropped)


def _first_of(batches: Iterable[Batch], lineage: Lineage) -> Batch:
    parts: list[Batch] = []
    answered = Answered(lineage)
    known = NO_ROWS.rows
    for batch in batches:
        if lineage.multiplied:
            fresh = np.array([not answered.covers(row) for row in batch.rows.tolist()], np.bool_)
        else:
            fresh = np.isin(batch.rows, known, invert=True)
        part = batch if fresh.all() else batch.take(fresh)
        if not part.size:
            continue
        parts.append(part)
        known = np.concatenate([known, part.rows])
        if lineage.multiplied:
            for row in part.rows.tolist():
                answered.add(row)
    return _concat(parts, lineage)


def _concat(parts: Sequence[Batch], lineage: Lineage) -> Batch:
    batch = concatenated(parts)
    order = lineage.order(batch.rows)
    return batch if order is None else batch.take(order)


def _without(batch: Batch, failed: Iterable[int], lineage: Lineage) -> Batch:
    gone = set(failed)
    if not gone:
        return batch
    return batch.take([position for position, row in enumerate(batch.rows.tolist()) if not gone & _roots(lineage, row)])


def _roots(lineage: Lineage, row: int) -> set[int]:
    return set(lineage.roots(row).tolist())


def _merged(parts: Sequence[Batch]) -> Batch:
    columns: dict[str, Column] = {}
    twice: dict[int, Exception] = {}
    for part in parts:
        for key, column in part.columns.items():
            known = columns.get(key)
            columns[key] = column if known is None else _either(key, known, column, twice)
    if twice:
        raise RowsFailed(twice)
    first = parts[0]
    origin = next((part.origin for part in parts if part.origin is not None), None)
    views = None
    if any(part.views is not None for part in parts):
        listed = (part.views or [None] * part.size for part in parts)
        views = or_none([agreed(several) for several in zip(*listed, strict=True)])
    return Batch(columns, first.size, rows=first.rows, metadata=_metadata(parts), origin=origin, views=views)


def _either(key: str, a: Column, b: Column, twice: dict[int, Exception]) -> Column:
    for row in sorted(set(a.positions()).intersection(b.positions())):
        twice.setdefault(
            row, DataError(f'Error during merging: Data instance already has key "{key}" and allowOverwrite is false')
        )
    if isinstance(a, SparseColumn) and isinstance(b, SparseColumn):
        return a.overlaid(b)
    # Undecoded values count as present: merging does not decode.
    has_a = np.ones(len(a), np.bool_) if a.mask is None else a.mask
    from_a, from_b = np.flatnonzero(has_a), np.flatnonzero(~has_a)
    index = np.concatenate([from_a, from_b])
    joined = Column.concat([a.take(from_a), b.take(from_b)])
    return joined.take(np.argsort(index, kind="stable"))


def _metadata(parts: Sequence[Batch]) -> list[Data | None] | None:
    listed = [part.metadata for part in parts if part.metadata is not None]
    if not listed:
        return None
    return [next((metadata for metadata in row if metadata is not None), None) for row in zip(*listed, strict=True)]
