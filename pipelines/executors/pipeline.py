"""The protocols of all pipelines: `Pipeline`, a definition that can be opened, and `Executor`, an open pipeline."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor as Pool
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.steps.base import Step
from pipelines.steps.config import Form

if TYPE_CHECKING:
    from pipelines.executors.openpipeline import Outcome, Output
    from pipelines.observe.metrics import Metrics
    from pipelines.observe.observing import Observer
    from pipelines.observe.profiler import Profiler
    from pipelines.observe.tracing import Trace
    from pipelines.plugins.registry import Registry
    from pipelines.runners.runner import OpenContext


class Executor(Protocol):
    """An open pipeline; a context manager, used by one thread at a time. Results keep the order of the input."""

    observer: Observer | None
    """Told about every step and batch."""

    @property
    def reads(self) -> frozenset[str] | None:
        """Input keys that the first steps read, as far as known: worth decoding early. `None`: nothing is known."""

    @property
    def metrics(self) -> Metrics:
        """What the steps count and measure by themselves, by step and name; also after `close`."""

    @property
    def stateful(self) -> bool:
        """Whether a step's results depend on earlier rows: then it wants `tick` and `flush`."""

    @property
    def opens_images(self) -> bool:
        """Whether a step may look at the pixels of images."""

    def limit(self, records: int) -> bool:
        """Have models work on at most `records` records at a time. Returns whether batches may be larger than that."""

    def run(self, data: Mapping[str, Any]) -> Output:
        """The result of one record, a `Data` or `dict`: `None` if it was dropped or is held, a list if the steps made
        several of it.

        Raises `StepError` naming the step that failed.
        """

    def trace(self, data: Mapping[str, Any]) -> Trace:
        """Run one record and tell of each step what went in, what came out and how long it took. Does not raise for a
        record that fails: the trace says so.
        """

    def run_many(self, datas: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        """The outcome of each record, in order; a record that fails harms no other."""

    def run_batch(self, batch: Batch) -> Result:
        """The result for all rows of `batch`, by row number. Raises `ContractError` if a step loses a row."""

    def tick(self, now: float) -> Result:
        """The results that are due at the time `now` in stateful steps; in seconds of a monotonic clock."""

    def flush(self) -> Result:
        """Everything that stateful steps still hold."""

    def forget(self, lanes: Iterable[Hashable]) -> None:
        """Discard what stateful steps hold for these lanes."""

    def snapshot(self) -> bytes:
        """The state of all stateful steps; empty if there are none."""

    def restore(self, state: bytes) -> None:
        """Take over a state that `snapshot` gave; `StreamerError` if it is of other steps."""

    def close(self) -> None:
        """Release everything; a second call does nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Pipeline(Protocol):
    """A pipeline's definition, immutable: `Sequence`, `Graph` and `Async` are pipelines."""

    @property
    def id(self) -> str | None:
        """Konduit's identifier of the pipeline, or `None`."""

    @property
    def name(self) -> str | None:
        """What people call it, or `None`."""

    @property
    def base(self) -> Path | None:
        """The folder where relative paths start; `None`: the working directory at the time of opening."""

    @property
    def steps(self) -> Any:
        """The steps as the definition has them: a tuple, or for a graph a mapping."""

    def named_steps(self) -> Sequence[tuple[str, Step]]:
        """The steps that runners run, with their names in errors and metrics."""

    def open(
        self,
        pool: Pool | None = None,
        allow_code: bool = True,
        progress: Callable[[str], None] | None = None,
        registry: Registry | None = None,
        runners: Mapping[str, str] | None = None,
        profile: str | PathLike[str] | Profiler | None = None,
    ) -> Executor:
        """An executor with every model loaded; close it, or use it in a `with`.

        `pool` (of threads) may run independent work in parallel; `allow_code=False` refuses steps that run Python code
        of the user; `progress` is told what is being loaded; `runners` names the runner for a type of step where the
        registry shall not choose it; `profile` is a file that gets the times of all steps, for a trace viewer. Raises
        `StepError` naming the step that cannot be opened.
        """

    def open_in(self, context: OpenContext) -> Executor:
        """`open` for a pipeline that may be a step of another, whose folder serves where it has none of its own."""

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """The definition as plain data, keys spelled as Konduit Serving spells them in JSON or YAML."""

    def to_json(self) -> str:
        """The definition as JSON, which `loads` reads into an equal pipeline."""

    def to_yaml(self) -> str:
        """The definition as YAML, which `loads` reads into an equal pipeline."""

    def _repr_html_(self) -> str: ...
