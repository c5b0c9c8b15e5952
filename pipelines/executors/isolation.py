"""Finding the rows that make a call on many rows raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.errors import RAISED, RowsFailed, StreamerError, blamed
from pipelines.runners.runner import ContractError

Returned = TypeVar("Returned")

WHOLE: Final = 4
"""How often the remaining rows are run in one piece after a `RowsFailed`; from then on they are run in halves."""
DOUBT: Final = 16
"""Rows that failed, while no call has succeeded, after which a sample is run to find out whether all rows fail."""
TRIED: Final = 512
"""Rows of that sample; each is run alone."""


class Isolated(NamedTuple, Generic[Returned]):
    """The results of the rows that succeeded, and the errors of the others."""

    results: list[Returned]
    """The results of the calls that succeeded, in the order of their rows."""
    failed: dict[int, Exception]
    """The error of each row that failed, by its position."""


def isolated(
    size: int, run: Callable[[Rows | None], Returned], *, pure: bool = True, raised: Exception | None = None
) -> Isolated[Returned]:
    """Call `run` with the positions of rows until each row has failed or was in a call that succeeded.

    Positions are `int64 (n,)` and rising. The first call is for all `size` rows, as `None`; if the caller has made it,
    `raised` is its exception.

    - Rows that a `RowsFailed` names have failed, and `run` is called with the remaining rows; after a few times with
      halves of them, so that rows which are named one by one do not cost a run of all rows each.
    - After any other exception both halves of the rows are run; a row that raises alone has failed. If `run` is not
      `pure`, it must not see a row twice: all rows of the call have failed.
    - There are about two calls for each row that fails, as long as some call succeeds. If none does, and more than
      `TRIED` rows are left when a few have failed, a random sample of `TRIED` rows is run, one by one; if they all
      fail, all rows have failed. So a function that always raises costs some hundred calls, however many rows there
      are, and up to `TRIED` rows are each run alone.

    Raises:
        ContractError: `run` raises it, or names rows that it was not given.
        KeyboardInterrupt: `run` raises it.
    """
    if raised is not None:
        return _Search(size, run, pure).result(raised)
    try:
        return Isolated([run(None)], {})
    except ContractError:
        raise
    except RAISED as error:  # any exception belongs to rows
        return _Search(size, run, pure).result(blamed(error))


def isolated_rows(
    batches: Sequence[Batch],
    run: Callable[[Sequence[Batch]], Returned],
    *,
    pure: bool = True,
    raised: Exception | None = None,
) -> Isolated[Returned]:
    """`isolated` for batches of the same rows: `run` is called with them, then with parts of them.

    A `RowsFailed` about a batch that `run` made itself does not say which of the given rows failed; it is treated as
    any other exception.
    """

    def run_rows(rows: Rows | None) -> Returned:
        parts = batches if rows is None else [batch.take(rows) for batch in batches]
        try:
            return run(parts)
        except RowsFailed as error:
            reason = _of_rows(error, parts)
            if reason is error:
                raise
            raise reason from error

    if isinstance(raised, RowsFailed):
        raised = _of_rows(raised, batches)
    return isolated(batches[0].size, run_rows, pure=pure, raised=raised)


def _of_rows(error: RowsFailed, given: Sequence[Batch]) -> Exception:
    """The error itself if it is about rows of the given batches, else the first of its reasons, which names no row."""
    if error.of is None or any(batch.holds(error.of) for batch in given):
        return error
    return next(iter(error.failures.values()))


def concatenated(parts: Sequence[Batch]) -> Batch:
    """The rows of all parts; empty parts add no keys."""
    parts = [part for part in parts if part.size]
    return Batch.concat(parts) if parts else Batch({}, 0, rows=np.zeros(0, np.int64))


class _Search(Generic[Returned]):
    def __init__(self, size: int, run: Callable[[Rows | None], Returned], pure: bool) -> None:
        self._size = size
        self._run = run
        self._pure = pure
        self._results: list[Returned] = []
        self._failed: dict[int, Exception] = {}
        self._left: list[Rows] = []
        self._named = 0
        self._asked = not pure

    def result(self, first: Exception) -> Isolated[Returned]:
        """The outcome of all rows, when the first call has raised `first`."""
        self._blame(np.arange(self._size, dtype=np.int64), first)
        while self._left:
            if not (self._asked or self._results) and len(self._failed) >= DOUBT:
                self._asked = True
                self._ask()
                continue
            rows = self._left.pop()
            try:
                self._results.append(self._run(rows))
            except ContractError:
                raise
            except RAISED as error:  # any exception belongs to rows
                self._blame(rows, blamed(error))
        return Isolated(self._results, self._failed)

    def _blame(self, rows: Rows, error: Exception) -> None:
        """Handle the error of a call for `rows`: mark rows as failed, and queue the others for another call."""
        if isinstance(error, RowsFailed):
            self._blame_named(rows, error)
        elif len(rows) <= 1 or not self._pure:
            self._failed.update(dict.fromkeys(rows.tolist(), error))
        else:
            self._leave_halves(rows)

    def _blame_named(self, rows: Rows, error: RowsFailed) -> None:
        places = list(error.failures)
        if not places or not all(0 <= place < len(rows) for place in places):
            raise ContractError(f"RowsFailed with positions that are not in the batch of {len(rows)}") from error
        self._failed.update(zip(rows[places].tolist(), error.failures.values(), strict=True))
        rest = np.delete(rows, places)
        self._named += 1
        if not len(rest):
            return
        if self._pure and self._named > WHOLE and len(rest) > 1:
            self._leave_halves(rest)
        elif not self._pure and self._named > TRIED:
            self._fail_all(rest, error)
        else:
            self._left.append(rest)

    def _leave_halves(self, rows: Rows) -> None:
        middle = len(rows) // 2
        self._left += [rows[middle:], rows[:middle]]

    def _ask(self) -> None:
        """Run a sample of the remaining rows; if all of it fails, stop searching: all of them have failed."""
        left = np.concatenate(self._left)
        if len(left) <= TRIED:
            return
        failed: dict[int, Exception] = {}
        # A fixed seed, so that a failure can be reproduced.
        for row in np.random.default_rng(0).choice(left, TRIED, replace=False).tolist():
            try:
                self._run(np.array([row], np.int64))
            except ContractError:
                raise
            except RAISED as error:  # any exception belongs to that row
                failed[row] = error.failures.get(0, error) if isinstance(error, RowsFailed) else blamed(error)
            else:
                # The row is run again with the others, for a result in their order.
                return
        self._left = []
        self._failed.update(failed)
        self._fail_all(np.setdiff1d(left, np.fromiter(failed, np.int64)), failed[row])

    def _fail_all(self, rows: Rows, error: Exception) -> None:
        untried = StreamerError(
            f"not tried alone: {len(self._failed)} other records of this batch of {self._size} failed and none went "
            f"well, the last with {type(error).__name__}: {error}"
        )
        untried.__cause__ = error
        self._failed.update(dict.fromkeys(rows.tolist(), untried))
