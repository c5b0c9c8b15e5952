"""`Retrying`: runs the rows of a batch again whose errors may pass, such as those of a network."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.data.membership import among
from pipelines.data.result import Result
from pipelines.errors import RowsFailed
from pipelines.executors.accounting import free_of, joined
from pipelines.executors.policy import Retry
from pipelines.executors.retrybudget import SPAN, RetryBudget
from pipelines.observe.meters import Counter

Attempt: TypeAlias = Callable[[Batch], Result | Exception]
"""Runs rows; an error was raised for all of them, and belongs to rows that are not known."""
Search: TypeAlias = Callable[[Batch, Exception], Result]
"""Finds the rows that such an error belongs to, and runs the others."""

_log: Final = logging.getLogger(__name__)


class Retrying:
    """Runs rows again by the rules of a `Retry`, as far as the budget of the step allows.

    Waits end when `stopping` is set; then rows are run once more, and their errors count. Tenacity and stamina repeat a
    call until it raises nothing. Here a call raises nothing, most of its rows are done, and the others are repeated.
    """

    def __init__(
        self,
        step: str,
        retry: Retry,
        classes: tuple[type[BaseException], ...],
        budget: RetryBudget,
        counter: Counter,
        stopping: threading.Event | None = None,
    ) -> None:
        """`classes` are those of `retry.on`; `counter` counts the rows that are run again."""
        self._step = step
        self._retry = retry
        self._classes = classes
        self._budget = budget
        self._counter = counter
        self._stopping = threading.Event() if stopping is None else stopping
        self._warned_at = -float("inf")

    def run(self, batch: Batch, attempt: Attempt, search: Search) -> Result:
        """The result of all rows, after those that failed were run again.

        `attempt` runs rows; if it raises for all of them, they are run again together, and `search` looks for the rows
        to blame only for the last attempt, or for an error that is none of those of the `Retry`.
        """
        self._budget.ran(batch.size)
        result: Result | None = None
        rows: Batch | None = batch
        left, stopped = self._retry.attempts, False
        while rows is not None:
            left = 0 if stopped else left - 1
            outcome = attempt(rows)
            if isinstance(outcome, Exception) and not (left and self._is_granted(rows, outcome)):
                outcome = search(rows, outcome)
            if isinstance(outcome, Result):
                result = outcome if result is None else _with(result, outcome, batch, set(rows.rows.tolist()))
                rows = self._again(rows, outcome) if left and outcome.failed else None
            if rows is not None:
                stopped = self._waited(self._retry.longest_wait(self._retry.attempts - left - 1))
                self._counter.add(rows.size)
        assert result is not None
        return result

    def _is_granted(self, batch: Batch, error: Exception) -> bool:
        """Whether all rows are run again for an error that was raised for all of them."""
        if isinstance(error, RowsFailed) or not self._passes(error):
            return False
        if self._budget.take(batch.size, whole=True):
            return True
        self._warn(batch.size)
        return False

    def _again(self, batch: Batch, result: Result) -> Batch | None:
        """The rows of `batch` to be run again; `None` if there are none."""
        failed = {row for row, error in result.failed.items() if self._passes(error)}
        if not failed:
            return None
        positions, apart = _positions(batch, failed)
        granted = self._budget.take(len(positions), whole=not apart)
        if granted < len(positions):
            self._warn(len(positions) - granted)
        return batch.take(positions[:granted]) if granted else None

    def _passes(self, error: BaseException) -> bool:
        return any(isinstance(cause, self._classes) for cause in _causes(error))

    def _waited(self, longest: float) -> bool:
        """Wait at random, for `longest` seconds at most. Returns whether the service stops meanwhile."""
        # Not for secrets: it only keeps processes apart.
        return self._stopping.wait(longest * random.uniform(0.5, 1.0))  # noqa: S311

    def _warn(self, rows: int) -> None:
        now = time.monotonic()
        if now - self._warned_at < SPAN:
            return
        self._warned_at = now
        _log.warning(
            "%s: too many records fail to run all of them again: a tenth of those of the last minute was run again; "
            "the errors of %d others count at once, and those of later ones until fewer fail",
            self._step,
            rows,
        )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    # The number is a bound for errors that cause each other.
    for _ in range(20):
        if error is None:
            return
        yield error
        error = error.__cause__


def _positions(batch: Batch, failed: set[int]) -> tuple[Rows, bool]:
    """The rows of `batch` that came from these records, and whether each came from one record of its own.

    A record may have several rows, and a row several records. All rows of a record that failed are given, and those of
    records that share a row with it: their results are to be replaced together.
    """
    if batch.splits is None and len(np.unique(batch.rows)) == batch.size:
        return np.flatnonzero(among(batch.rows, np.fromiter(failed, np.int64))), True
    parents = [batch.parents(position).tolist() for position in range(batch.size)]
    reached, size = set(failed), 0
    while len(reached) > size:
        size = len(reached)
        for records in parents:
            if not reached.isdisjoint(records):
                reached.update(records)
    positions = [position for position, records in enumerate(parents) if not reached.isdisjoint(records)]
    return np.array(positions, np.int64), False


def _with(result: Result, again: Result, given: Batch, rows: set[int]) -> Result:
    """`result` with the outcome `again` of these records in place of the one that they had, in the order of `given`."""
    before = result.batch
    if before.size:
        before = before.take(free_of(before, np.fromiter(rows, np.int64)))
    kept = Result(
        before,
        {row: error for row, error in result.failed.items() if row not in rows},
        {row: reason for row, reason in result.dropped.items() if row not in rows},
        result.held,
    )
    both = joined([kept, again])
    both.batch = _in_order(both.batch, given)
    return both


def _in_order(batch: Batch, given: Batch) -> Batch:
    """The rows in the order of the rows of `given` that they came from, as far as their records tell these."""
    places: dict[tuple[int, ...], deque[int]] = {}
    first: dict[int, int] = {}
    for position in range(given.size):
        records = tuple(given.parents(position).tolist())
        places.setdefault(records, deque()).append(position)
        for record in records:
            first.setdefault(record, position)
    ranks = []
    for position in range(batch.size):
        records = tuple(batch.parents(position).tolist())
        same = places.get(records)
        if same is None:
            ranks.append(min((first.get(record, 0) for record in records), default=0))
        else:
            ranks.append(same.popleft() if len(same) > 1 else same[0])
    return batch if ranks == sorted(ranks) else batch.take(np.argsort(np.array(ranks), kind="stable"))
