"""`Executor`: the protocol of open pipelines."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from pipelines.data.batch import Batch
from pipelines.data.result import Result

if TYPE_CHECKING:
    from pipelines.executors.openpipeline import Outcome, Output
    from pipelines.observe.metrics import Metrics
    from pipelines.observe.observing import Observer
    from pipelines.observe.tracing import Trace


class Executor(Protocol):
    """An open pipeline; a context manager. Results keep the order of the input.

    Threads that use it at the same time take turns.
    """

    observer: Observer | None
    """Gets a `StepRun` for each step and batch."""

    @property
    def reads(self) -> frozenset[str] | None:
        """Input keys that the first steps read, as far as known: worth decoding early. `None`: unknown."""

    @property
    def metrics(self) -> Metrics:
        """The metrics that the steps' own code keeps, by step and name; also after `close`."""

    @property
    def stateful(self) -> bool:
        """Whether a step's results depend on earlier rows: then `tick` and `flush` have to be called."""

    @property
    def opens_images(self) -> bool:
        """Whether a step may look at the pixels of images."""

    def limit(self, records: int) -> bool:
        """Have models work on at most `records` records at a time. Returns whether batches may be larger than that."""

    def run(self, data: Mapping[str, Any]) -> Output:
        """Run one record.

        Returns:
            `None` if it was dropped or is held, a list if the steps made several of it.

        Raises:
            StepError: A step failed; the error names it.
        """

    def trace(self, data: Mapping[str, Any]) -> Trace:
        """Run one record and return each step's input, output and time.

        Does not raise for a record that fails: the trace shows the failure.
        """

    def run_many(self, datas: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        """The outcome of each record, in order; a record that fails harms no other."""

    def run_batch(self, batch: Batch) -> Result:
        """The result for all rows of `batch`, by row number. Raises `ContractError` if a step loses a row."""

    def tick(self, now: float) -> Result:
        """The results that are due at the time `now` in stateful steps; in seconds of a monotonic clock."""

    def flush(self) -> Result:
        """The results of all rows that stateful steps still hold."""

    def forget(self, lanes: Iterable[Hashable]) -> None:
        """Discard the state that stateful steps keep for these lanes."""

    def snapshot(self) -> bytes:
        """The state of all stateful steps; empty if there are none."""

    def restore(self, state: bytes) -> None:
        """Take over a state that `snapshot` gave; `StreamerError` if it is of other steps."""

    def close(self) -> None:
        """Close all steps; a second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
