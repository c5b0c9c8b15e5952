"""One open step and the rules for running it: a failure belongs to a record, and no row is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from pipelines.data.batch import Batch
from pipelines.data.result import NONE_HELD, Result
from pipelines.errors import RAISED, StepError, blamed, step_of
from pipelines.executors.accounting import NO_ROWS, accounted, all_emitted, check_account, in_order, joined
from pipelines.executors.isolation import isolated_rows
from pipelines.executors.retrying import Retrying
from pipelines.observe.metrics import StepMetrics, begin, end
from pipelines.observe.observing import NO_ERRORS, Observer, StepRun
from pipelines.runners.runner import ContractError, Runner, StatefulRunner
from pipelines.steps.base import Step

Emit: TypeAlias = Callable[[StatefulRunner], Result]
"""Calls `tick` or `flush` of a stateful runner."""


class OpenStep:
    """A runner with its step's name.

    An exception of the runner fails as few rows as possible (`pipelines.executors.isolation`): `RowsFailed` fails its
    rows, and the rest is run again. After any other exception a pure runner is run on halves of the batch to find the
    rows that cause it; of other runners all rows of the batch fail. That holds for a `MemoryError` too: a record can be
    too large, and half a batch needs half the memory.
    `SystemExit` fails rows as other exceptions do. `ContractError` and `KeyboardInterrupt` are raised.
    """

    def __init__(
        self,
        name: str,
        runner: Runner,
        metrics: StepMetrics,
        retrying: Retrying | None = None,
        *,
        config: Step,
        turn: threading.Lock | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        """`metrics` are used by the functions of `pipelines.observe.metrics` while the runner runs.

        `retrying` runs rows that failed again; `None`: their errors count at once. `config` is the step as the
        definition has it. `turn` is held during each call of a runner that other executors use, too, and `close` closes
        the runner in place of its own `close`.
        """
        self.config = config
        self.close = runner.close if close is None else close
        """Closes the runner, unless other executors still use it."""
        self._turn = turn
        self.name = name
        self.runner = runner
        self._metrics = metrics
        self._stateful = isinstance(runner, StatefulRunner)
        self._saves = isinstance(runner, StatefulRunner) and runner.saves
        self._inside = runner.inside
        self._finishes = runner.inside is not None and bool(runner.inside.saving_steps)
        self._retrying = retrying

    def run(self, batch: Batch, observer: Observer | None = None) -> Result:
        """The result of all rows, each accounted for, in the order of `batch` unless the runner is stateful.

        Raises `ContractError` if the runner loses a row.
        """
        if self._inside is not None:
            self._inside.observer = observer
        if observer is None:
            return self._checked(batch)
        began = time.perf_counter()
        result = self._checked(batch)
        seconds = time.perf_counter() - began
        errors = self._error_counts(result.failed) if result.failed else NO_ERRORS
        runner, thread = type(self.runner).__name__, threading.get_native_id()
        observer.step(StepRun(self.name, runner, began, seconds, thread, (batch,), result.batch, errors))
        return result

    def _checked(self, batch: Batch) -> Result:
        token = begin(self._metrics)
        try:
            result = self._run(batch) if self._retrying is None else self._run_again(batch, self._retrying)
        finally:
            end(token)
        if not all_emitted(result, batch):
            stateful = self._stateful and not self._saves
            check_account(result, batch, self.name, stateful=stateful, finishes=self._finishes)
            result = accounted(result, self.name)
            if self._saves:
                # They are finished: nothing waits for a later result of theirs.
                result.held = NONE_HELD
            if not self._stateful:
                result.batch = in_order(result.batch, batch)
        return result

    def emitted(self, emit: Emit, observer: Observer | None = None) -> Result | None:
        """The accounted result of `emit` for a stateful runner; `None` for another runner.

        Raises `StepError` if the runner does.
        """
        if not isinstance(self.runner, StatefulRunner):
            return None
        if self._inside is not None:
            self._inside.observer = observer
        token = begin(self._metrics)
        try:
            result = emit(self.runner)
        except RAISED as error:  # named by its step
            failure = StepError.of(self.name, blamed(error))
            raise failure from failure.__cause__
        finally:
            end(token)
        return accounted(result, self.name)

    def _run(self, batch: Batch) -> Result:
        try:
            try:
                return self._run_rows((batch,))
            except ContractError:
                raise
            except RAISED as error:  # any exception belongs to rows of this batch
                return self._run_apart(batch, blamed(error))
        except ContractError as error:
            raise ContractError(f"{self.name}: {error}") from error

    def _run_again(self, batch: Batch, retrying: Retrying) -> Result:
        try:
            return retrying.run(batch, self._attempt, self._run_apart)
        except ContractError as error:
            raise ContractError(f"{self.name}: {error}") from error

    def _attempt(self, batch: Batch) -> Result | Exception:
        try:
            return self._run_rows((batch,))
        except ContractError:
            raise
        except RAISED as error:  # any exception belongs to rows of this batch
            return blamed(error)

    def _run_apart(self, batch: Batch, raised: Exception) -> Result:
        results, errors = isolated_rows([batch], self._run_rows, pure=self.runner.pure, raised=raised)
        failed = {
            int(parent): error for position, error in errors.items() for parent in batch.parents(position).tolist()
        }
        return joined([Result(NO_ROWS, failed), *results])

    def _run_rows(self, batches: Sequence[Batch]) -> Result:
        if self._turn is None:
            result = self.runner.run_batch(batches[0])
        else:
            with self._turn:
                result = self.runner.run_batch(batches[0])
        if not isinstance(result, Result):
            raise ContractError(f"the runner returned {type(result).__name__}, not a Result")
        return result

    def _error_counts(self, failed: Mapping[int, Exception]) -> Mapping[str, int]:
        # A failure of a step inside was reported to the observer when that step ran.
        inside = None if self._inside is None else f"{self.name}/"
        return Counter(
            type(error.__cause__ or error).__name__
            for error in failed.values()
            if inside is None or not step_of(error).startswith(inside)
        )
