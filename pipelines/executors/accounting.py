"""The account of a step's rows: none may be lost, and a record of which one row fails fails with all its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Mask, Rows
from pipelines.data.membership import among
from pipelines.data.result import NONE_HELD, Gathered, Result
from pipelines.errors import StepError
from pipelines.executors.isolation import concatenated
from pipelines.runners.runner import ContractError

NO_ROWS = Batch({}, 0, rows=NONE_HELD)
"""No rows and no keys."""


def all_emitted(result: Result, given: Batch) -> bool:
    """Whether the step emitted each row of `given` once, in the same order, and failed, dropped and held none."""
    emitted = result.batch
    return not result.failed and not result.dropped and not len(result.held) and emitted.same_rows(given)


def accounted(result: Result, step: str) -> Result:
    """`result` with failures as `StepError`s of `step`, each row number in one place only.

    A number that is in several places has failed, if it is among the failures; else it is not dropped.
    """
    failed: dict[int, Exception] = {row: StepError.of(step, error) for row, error in result.failed.items()}
    batch, failed = _without_failed(result.batch, failed)
    held = np.array([row for row in result.held.tolist() if row not in failed], np.int64) if failed else result.held
    dropped = result.dropped
    if dropped:
        gone = failed.keys() | set(batch.rows.tolist()) | set(held.tolist())
        dropped = {row: reason for row, reason in dropped.items() if row not in gone}
    return Result(batch, failed, dropped, held, gathered=result.gathered)


def check_account(result: Result, given: Batch, step: str, *, stateful: bool, finishes: bool = False) -> None:
    """Raise `ContractError` if a row of `given` is missing in `result`, or one is there that was not given.

    A stateful step may name rows that it held since earlier. One that `finishes` rows without naming them is a pipeline
    with steps whose state is saved, which have given their account.
    """
    if _each_once(result, given):
        return
    before = set(given.rows.tolist())
    after = set(result.rows.tolist()) | result.failed.keys() | result.dropped.keys() | set(result.held.tolist())
    if (lost := before - after) and not finishes:
        raise ContractError(
            f"{step}: {_numbers(lost)} went in and did not come out; emit, fail, drop or hold each row that goes in"
        )
    if not stateful and (invented := after - before):
        raise ContractError(
            f"{step}: {_numbers(invented)} came out and never went in; build the returned batch with the `take`, "
            "`with_columns` or `select` of the batch that went in, or pass its `rows`"
        )


def _each_once(result: Result, given: Batch) -> bool:
    """Whether each row of `given` was emitted once, failed or was dropped: the usual case, checked without sets."""
    others = [*result.failed, *result.dropped]
    if len(result.held) or len(result.batch.rows) + len(others) != len(given.rows):
        return False
    rows = np.concatenate([result.batch.rows, np.array(others, np.int64)])
    # Both rise nearly everywhere, which this kind of sorting makes use of.
    return bool((np.sort(rows, kind="stable") == np.sort(given.rows, kind="stable")).all())


def in_order(batch: Batch, given: Batch) -> Batch:
    """The rows in the order of the rows of `given` that they came from; rows of several parents stay as they are."""
    if batch.splits is not None or given.splits is not None or batch.size < 2:
        return batch
    ranks = batch.rows
    if not _rising(given.rows):
        place = {row: position for position, row in enumerate(given.rows.tolist())}
        ranks = np.array([place[row] for row in batch.rows.tolist()], np.int64)
    return batch if _rising(ranks) else batch.take(np.argsort(ranks, kind="stable"))


def joined(results: Iterable[Result]) -> Result:
    """The parts of a batch as one result, in their order."""
    batches: list[Batch] = []
    failed: dict[int, Exception] = {}
    dropped: dict[int, str] = {}
    held: list[Rows] = []
    gathered: list[Gathered] = []
    for result in results:
        gathered += result.gathered
        failed.update(result.failed)
        dropped.update(result.dropped)
        if result.batch.size:
            batches.append(result.batch)
        if len(result.held):
            held.append(result.held)
    batch = concatenated(batches)
    return Result(batch, failed, dropped, np.unique(np.concatenate(held)) if held else NONE_HELD, gathered=gathered)


def held_after(held: set[int], result: Result) -> set[int]:
    """The rows that a step holds after `result`, if it held `held` before.

    A row that it emits, fails or drops leaves them, unless the step holds it again.
    """
    if held:
        held = held - set(result.rows.tolist()) - result.failed.keys() - result.dropped.keys()
    return held.union(result.held.tolist())


class Journal:
    """The results of several steps for the rows that passed through them, gathered in the order of the steps."""

    def __init__(self) -> None:
        self._failed: dict[int, Exception] = {}
        self._dropped: dict[int, str] = {}
        self._held: dict[str, set[int]] = {}
        self._gathered: list[Gathered] = []

    def add(self, step: str, result: Result) -> None:
        """Enter the result of one step."""
        self._failed.update(result.failed)
        self._dropped.update(result.dropped)
        self._held[step] = held_after(self._held.get(step, set()), result)
        self._gathered += result.gathered

    def result(self, batch: Batch) -> Result:
        """`batch`, which the last step emitted, with the rows that failed, were dropped or are held on the way."""
        held = sorted(set().union(*self._held.values()))
        held_rows = np.array(held, np.int64)
        return accounted(Result(batch, self._failed, self._dropped, held_rows, gathered=self._gathered), "")


def _without_failed(batch: Batch, failed: Mapping[int, Exception]) -> tuple[Batch, dict[int, Exception]]:
    causes = dict(failed)
    if not failed or not batch.size:
        return batch, causes
    keep = free_of(batch, np.fromiter(failed, np.int64, len(failed)))
    if keep.all():
        return batch, causes
    kept = batch.take(keep)
    left = set(kept.rows.tolist())
    for row in np.flatnonzero(~keep).tolist():
        parents = batch.parents(row).tolist()
        cause = next(failed[parent] for parent in parents if parent in failed)
        for parent in parents:
            if parent not in left:
                causes.setdefault(parent, cause)
    return kept, causes


def free_of(batch: Batch, failed: Rows) -> Mask:
    """For each row whether it came from none of these records, `bool (N,)`."""
    hit = among(batch.rows, failed)
    if batch.splits is None:
        return ~hit
    hits = np.concatenate([np.zeros(1, np.int64), np.cumsum(hit)])
    free: Mask = hits[batch.splits[1:]] == hits[batch.splits[:-1]]
    return free


def _rising(rows: Rows) -> bool:
    return bool((rows[1:] >= rows[:-1]).all())


def _numbers(rows: set[int]) -> str:
    shown = ", ".join(map(str, sorted(rows)[:5]))
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    return f"{'row' if len(rows) == 1 else 'rows'} {shown}{more}"
