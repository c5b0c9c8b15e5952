"""Finding the rows to blame where something that works on many rows at once raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.errors import RowsFailed, StreamerError
from pipelines.runners.runner import ContractError

Found = TypeVar("Found")

WHOLE: Final = 4
"""How often the rest is run in one piece after rows were named; from then on it is run in halves."""
DOUBT: Final = 16
"""Rows that failed, while no call has gone well, after which it is asked whether all fail."""
TRIED: Final = 512
"""Rows that are tried alone to answer that."""


class Isolated(NamedTuple, Generic[Found]):
    """What became of N rows."""

    found: list[Found]
    """The results of the calls that went well, in the order of their rows."""
    failed: dict[int, Exception]
    """Position to what is wrong with the row."""


def isolated(
    size: int, run: Callable[[Rows | None], Found], *, pure: bool = True, raised: Exception | None = None
) -> Isolated[Found]:
    """Call `run` with the positions of rows, `int64 (n,)` and rising, until each row is in a call that went well or is
    to blame. `None` means all `size` rows, which come first; where they were run already, `raised` is what it raised.

    - Rows that a `RowsFailed` names are to blame, and `run` is called with the rest; after a few times with the halves
      of the rest, so that rows which are named one by one do not cost a run of all rows each.
    - Any other exception is searched for by halves; a row that is alone is to blame for it. What is not `pure` must not
      be run again: all rows of the call have failed.
    - Calls are about two for each row that fails, as long as some call goes well. Where none does, and more than
      `TRIED` rows are left when a few have failed, so many of those are tried alone, chosen at random; if they all
      fail, all do. So what always raises costs some hundred calls, however many rows there are, and of up to `TRIED`
      rows each one is tried.

    Raises `ContractError` if `run` does or names rows that it was not given, and what is no `Exception`.
    """
    if raised is not None:
        return _Search(size, run, pure).result(raised)
    try:
        return Isolated([run(None)], {})
    except ContractError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever is raised belongs to rows
        return _Search(size, run, pure).result(error)


def isolated_rows(
    batches: Sequence[Batch],
    run: Callable[[Sequence[Batch]], Found],
    *,
    pure: bool = True,
    raised: Exception | None = None,
) -> Isolated[Found]:
    """`isolated` for batches of the same rows: `run` is called with them, then with parts of them.

    A `RowsFailed` with the positions of something else than what `run` was given, a part that it made itself, says that
    something is wrong and not with which row; it is searched for by halves.
    """

    def run_rows(rows: Rows | None) -> Found:
        parts = batches if rows is None else [batch.take(rows) for batch in batches]
        try:
            return run(parts)
        except RowsFailed as error:
            told = _of_rows(error, parts)
            if told is error:
                raise
            raise told from error

    if isinstance(raised, RowsFailed):
        raised = _of_rows(raised, batches)
    return isolated(batches[0].size, run_rows, pure=pure, raised=raised)


def _of_rows(error: RowsFailed, given: Sequence[Batch]) -> Exception:
    """The error as it is if it names rows of what was given, else the first of its reasons, which blames no row."""
    if error.of is None or any(batch.holds(error.of) for batch in given):
        return error
    return next(iter(error.failures.values()))


def concatenated(parts: Sequence[Batch], failed: dict[int, Exception]) -> Batch:
    """The rows of all parts. Those with undecoded values that have to be decoded, to stand next to values of another
    part, and cannot be are left out; `failed` says why, by row number.
    """
    while parts := [part for part in parts if part.size]:
        try:
            return Batch.concat(parts)
        except RowsFailed as error:
            parts = _spared(parts, error, failed)
    return Batch({}, 0, rows=np.zeros(0, np.int64))


def _spared(parts: Sequence[Batch], error: RowsFailed, failed: dict[int, Exception]) -> list[Batch]:
    left = []
    start = 0
    for part in parts:
        bad = {position - start: reason for position, reason in error.failures.items()}
        mask = np.array([position not in bad for position in range(part.size)], np.bool_)
        for position in np.flatnonzero(~mask).tolist():
            failed.update(dict.fromkeys(part.parents(position).tolist(), bad[position]))
        left.append(part.take(mask))
        start += part.size
    return left


class _Search(Generic[Found]):
    def __init__(self, size: int, run: Callable[[Rows | None], Found], pure: bool) -> None:
        self._size = size
        self._run = run
        self._pure = pure
        self._found: list[Found] = []
        self._failed: dict[int, Exception] = {}
        self._left: list[Rows] = []
        self._named = 0
        self._asked = not pure

    def result(self, first: Exception) -> Isolated[Found]:
        """What became of all rows, for whose first call raised `first`."""
        self._blame(np.arange(self._size, dtype=np.int64), first)
        while self._left:
            if not (self._asked or self._found) and len(self._failed) >= DOUBT:
                self._asked = True
                self._ask()
                continue
            rows = self._left.pop()
            try:
                self._found.append(self._run(rows))
            except ContractError:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                self._blame(rows, error)
        return Isolated(self._found, self._failed)

    def _blame(self, rows: Rows, error: Exception) -> None:
        """A call for these rows has raised."""
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
        """Fail everything that is left if all that is tried of it fails."""
        left = np.concatenate(self._left)
        if len(left) <= TRIED:
            return
        failed: dict[int, Exception] = {}
        # Always the same rows, so that what happens can be repeated.
        for row in np.random.default_rng(0).choice(left, TRIED, replace=False).tolist():
            try:
                self._run(np.array([row], np.int64))
            except ContractError:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                failed[row] = error.failures.get(0, error) if isinstance(error, RowsFailed) else error
            else:
                # Its result comes again, in its place.
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
