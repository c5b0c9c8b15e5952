"""Runners: the code that executes steps, apart from their configuration (`pipelines.steps`)."""

from __future__ import annotations

import math
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Executor as Pool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import unquote

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.data.data import Data
from pipelines.data.result import Result
from pipelines.data.sparsecolumn import columns_of
from pipelines.errors import RAISED, StreamerError, WrongTypeError, blamed
from pipelines.executors.executor import Executor
from pipelines.executors.lastshapes import LastShapes
from pipelines.executors.policy import NO_POLICY, StepPolicy
from pipelines.executors.ports import Ports
from pipelines.executors.shared import Shared
from pipelines.observe.metrics import Metrics, StepMetrics
from pipelines.observe.observing import Observer
from pipelines.outofmemory import is_out_of_memory
from pipelines.runners.forms import Forms, ValueForm
from pipelines.runners.state.item import Change, Item
from pipelines.steps.base import Step
from pipelines.values import ValueType

DROPPED = "dropped by the step"
"""Reason of a row that a step dropped without giving one."""


class ContractError(StreamerError):
    """A runner or a user's function broke its contract, by losing a row for example.

    The fault of the program, not of a record: it is raised through the executor.
    """


@dataclass(frozen=True)
class OpenContext:
    """The settings and services that a runner may use while it opens and runs."""

    base: Path = field(default_factory=Path.cwd)
    """Folder of the definition file: relative model paths start here."""
    pool: Pool | None = None
    """Where independent work may run in parallel; `None`: in the calling thread."""
    allow_code: bool = True
    """Whether steps that run the user's Python code may be opened."""
    progress: Callable[[str], None] | None = None
    """Called with a readable line before work that takes long, such as loading a model."""
    registry: RunnerSource | None = None
    """Where pipelines inside the pipeline find their runners; `None`: `default_registry()`."""
    runners: Mapping[str, str] = field(default_factory=dict)
    """Names of runners by the type of step that they are to run, in place of the registry's choice."""
    step: str = ""
    """The name of the step that is opened; empty for a pipeline that is not a step of another."""
    meters: Metrics = field(default_factory=Metrics)
    """The metrics of all steps of the pipeline; a step takes its own from `metrics`."""
    observer: Observer | None = None
    """Gets a `StepRun` for every step and batch, from the first."""
    own_geometry: bool = False
    """Whether the definition says itself where boxes are put right, by an `imageToNDArrayConfig` of a step, as those of
    Konduit Serving do: then steps that make boxes leave them in fractions of their array (`Batch.views`)."""
    finish: Callable[[], None] | None = None
    """Called when the pipeline is closed."""
    policies: Mapping[str, StepPolicy] = field(default_factory=dict)
    """By the name of a step, `outer/inner` for one of a pipeline inside: whether rows that failed are run again, and
    how long a call may take."""
    stopping: threading.Event | None = None
    """Set when what runs the pipeline is to end: then nothing waits before it runs rows again."""
    shared: Shared = field(default_factory=Shared)
    """What all executors of the definition use together, such as the weights of models."""
    versions: Mapping[Path, int] = field(default_factory=dict)
    """Which version is opened of a model in version folders, by the path of the folder that holds them; of others it is
    the highest."""
    clock: Callable[[], float] = time.time
    """The present, in seconds since 1970: the time of records that have none, or whose time is their arrival."""
    opening: int = 0
    """Which opening of the definition it is, where it is opened again because files of its models have changed."""
    sources: Sequence[object] = ()
    """The configurations of the sources of the service that runs it: a table that names no server is on theirs."""
    ran: LastShapes = field(default_factory=LastShapes)
    """What models of earlier openings of the definition ran on last: those of the same steps are warmed up on it."""

    @property
    def policy(self) -> StepPolicy:
        """Of `policies` that of the step that is opened."""
        return self.policies.get(self.step, NO_POLICY)

    @property
    def metrics(self) -> StepMetrics:
        """Counters, gauges and timers of the step that is opened; get them when opening, write them when running."""
        return self.meters.of(self.step)

    def named(self, step: str) -> str:
        """The name of a step inside the one that is opened: `outer/step`."""
        return f"{self.step}/{step}" if self.step else step

    def path(self, uri: str) -> Path:
        """The path of a model, given as a path or a `file:` URI; a relative one starts at `base`."""
        if uri[:5].lower() == "file:":
            uri = unquote(re.sub("^//(localhost(?=/))?", "", uri[5:]))
        return self.base / uri


class Runner(ABC):
    """Runs one step over batches. Created by a runner factory, used by one thread at a time, closed once.

    Where several executors of a definition are open (`limits.parallel`), each has an instance of its own, unless the
    runner is `alone`: instances must not write to the same file, device or global variable.
    """

    keeps_rows: ClassVar[bool] = False
    """Whether each row that goes in comes out once, in the same order, unless it failed."""
    keeps_keys: ClassVar[bool] = False
    """Whether the keys that the runner does not write pass through it."""
    needs_all: ClassVar[bool] = False
    """Whether a record that lacks one of the keys in `reads` is sure to fail."""
    pure: ClassVar[bool] = True
    """Whether running rows again, alone or beside other rows, gives the same results: only then a failing batch is
    searched by halves for the rows to blame."""
    opens_images: ClassVar[bool] = True
    """Whether it may look at the pixels of images: then a service keeps those of a batch within `limits.pixels`, and
    looks for images also among values that are not decoded yet."""
    ends_calls: bool = False
    """Whether it ends the call for a record that takes longer than `OpenContext.policy.timeout`."""
    alone: bool = False
    """Whether all executors that are opened with the same `Shared` use one instance, one at a time."""
    carried: ClassVar[bool] = False
    """Whether it goes on as it is where models of other steps change while a service runs, if its own step has not
    changed: as what holds a device, of which there is one only. Others are opened again, and begin with nothing."""
    sequential: bool = False
    """Whether it has to see all records, in order: then no other instance of it may run some of them."""
    inside: Executor | None = None
    """The executor of the steps inside this one, if there are any that can be observed."""

    @property
    def reads(self) -> frozenset[str] | None:
        """Keys that the runner reads, so that they are decoded early; `None`: it does not know."""
        return None

    @property
    def needs(self) -> frozenset[str]:
        """Keys, of those that it reads, without which a record is sure to fail."""
        return (self.reads or frozenset()) if self.needs_all else frozenset()

    @property
    def gives(self) -> frozenset[str] | None:
        """All keys that the runner itself writes, each of them into every result; `None`: it does not know."""
        return None

    @property
    def types(self) -> Mapping[str, ValueType]:
        """The types of values that it writes, by key, as far as they are known without a record."""
        return {}

    @property
    def sample_types(self) -> Mapping[str, ValueType]:
        """The types of values that it writes into a record of one sample: of several, some runners give lists."""
        return self.types

    @property
    def in_words(self) -> str:
        """What it has opened, in a few words, for `streamer check`; empty if there is nothing to say."""
        return ""

    @property
    def notes(self) -> Sequence[str]:
        """Sentences about settings that are allowed and most likely not meant, for `streamer check`."""
        return ()

    def ports(self) -> Ports:
        """The arrays that it takes and gives, by key, if it takes and gives arrays alone and knows them: models do."""
        return Ports()

    def forms(self, given: Forms) -> Forms:
        """The forms of values in results, as far as they are known where records have values of the forms `given`."""
        made: Forms = {key: ValueForm(kind) for key, kind in self.types.items()}
        written = self.gives
        if not self.keeps_keys or written is None:
            return made
        return {**{key: form for key, form in given.items() if key not in written}, **made}

    def misfit(self, given: Forms, possible: Collection[str] | None) -> str | None:
        """Why every record fails that has values of the forms `given`; `None` if that is not sure.

        `possible` are all keys that records may have, `None` if these are not known.
        """
        return None

    @abstractmethod
    def run_batch(self, batch: Batch) -> Result:
        """Run all rows; account for each number in `batch.rows` exactly once.

        May raise: `RowsFailed` (positions to errors) fails just these rows, and the rest is run again; anything else
        fails the batch, which the executor then searches for the rows to blame if the runner is `pure`
        (`pipelines.executors.isolation`). A runner that is not pure raises before it changes its state.
        """

    def limit(self, records: int) -> bool:
        """Work on at most `records` records at a time. Returns whether the runner splits larger batches itself.

        A runner for which the size makes no difference returns `True`, too. The default is `False`: then it is given no
        larger batches.
        """
        return False

    def close(self) -> None:
        """Release the resources of opening: models, files, devices. Called once."""


class RunnerSource(Protocol):
    """Makes runners for steps; `pipelines.plugins.registry.Registry` is one."""

    def check_runners(self, runners: Mapping[str, str]) -> None:
        """Raise `DefinitionError` unless these are names of runners by the types of their steps."""

    def create(self, step: Step, context: OpenContext) -> Runner:
        """A runner for the step, ready to run. May raise any exception."""


class RowRunner(Runner):
    """A runner that sees one record at a time."""

    writes: ClassVar[bool] = True
    """Whether it may write to the lists, nested `Data`, boxes and points of a record: then it gets copies of those that
    it reads. A runner that only reads sets it to false, which saves the copies."""

    @abstractmethod
    def run(self, data: Data) -> Data | None | list[Data]:
        """The result of one record: a `Data`, `None` (dropped) or a list (multiplied).

        `data` belongs to the call: keys may be put and deleted, and lists, nested `Data`, boxes and points of it be
        written to, unless the runner says that it does not write (`writes`). Arrays are read-only.
        """

    def run_rows(self, rows: Sequence[Data]) -> list[Data | None | list[Data] | Exception]:
        """The result of `run` for each row, or the error that it raised."""
        results: list[Data | None | list[Data] | Exception] = []
        for data in rows:
            try:
                results.append(self.run(data))
            except RAISED as error:  # any exception belongs to that record
                results.append(failure(error, data))
        return results

    def run_batch(self, batch: Batch) -> Result:
        given = batch.all_values()
        returned = self.run_rows(batch.to_list(given, lent=self.writes))
        return of_outcomes(map(listed, returned), batch, given)


class StatefulRunner(Runner):
    """A runner whose results depend on earlier rows: windows, counters, trackers.

    A row that goes into the state is `held`. What becomes of it then depends on `saves`. Only executors call these
    methods. Times are seconds of a monotonic clock.

    State that belongs to one stream of records (a camera's tracks, a partition's windows) is kept by lane, as
    `Batch.lanes` tells it, and discarded by `forget`. A stream that begins again has a new lane.
    """

    pure: ClassVar[bool] = False
    carried: ClassVar[bool] = True
    sequential: bool = True
    saves: ClassVar[bool] = False
    """Whether what it holds outlives the process, by `changes` and `load`.

    Then a row that it holds is finished, and no later result names it: a result has one parent, the record that
    completed it, or comes of `tick` or `flush` with a number of its own (`pipelines.runners.state.timed`). Otherwise a
    row that it holds is not acknowledged before a later result, which carries its number among its parents.
    """

    caught_up: float = math.inf
    """The time by which all records had come that were run so far. Set before `tick`; infinite: all have.

    It is before `now` while the sources have a backlog. What is concluded from records that did not come, such as the
    end of a silent key's window, goes by this time: a key is silent from when its last record was run until
    `caught_up`. By `now` it would be silent while its records wait.
    """

    @abstractmethod
    def tick(self, now: float) -> Result:
        """The results that are due at `now`; an empty batch if there are none."""

    @abstractmethod
    def flush(self) -> Result:
        """The results of all rows that are still held, at the end of the input."""

    @abstractmethod
    def forget(self, lanes: Iterable[Hashable]) -> None:
        """Discard the state that belongs to these lanes, which have ended. No more rows of them come.

        Held rows of these lanes must not be emitted: their records belong to another consumer now. If no other consumer
        gets the records, this is called after the last of them was emitted. Unknown lanes are ignored.
        """

    def changes(self) -> Iterable[Change]:
        """The pieces of state that are new, have changed or are gone since the last call, in any order.

        Read to the end at once. A runner that gives none begins with nothing after a restart.
        """
        return ()

    def load(self, lane: Hashable, items: Iterable[Item]) -> None:
        """Begin a lane with the state that `changes` gave for an earlier lane of the same stream.

        Called before the first record of the lane is run, also without items; what the runner knows of this lane is
        replaced. Raises `StreamerError` if an item is damaged or of another version.
        """


def failure(error: BaseException, data: Data) -> Exception:
    """The error of a record for which code raised this, and which is not used any more."""
    if is_out_of_memory(error):
        # What was put into it is memory that the records behind it need.
        for key in list(data):
            del data[key]
    return blamed(error)


def of_outcomes(
    outcomes: Iterable[list[Data] | Exception], batch: Batch, given: Sequence[Mapping[str, Any]] | None = None
) -> Result:
    """The result of a batch of whose rows each has an outcome: what was made of it, in order, or its error.

    A row of which nothing was made is dropped. `given` as for `rebuilt`.
    """
    emitted: list[Data] = []
    positions: list[int] = []
    failed: dict[int, Exception] = {}
    dropped: dict[int, str] = {}
    for position, outcome in enumerate(outcomes):
        if isinstance(outcome, Exception):
            failed.update(dict.fromkeys(batch.parents(position).tolist(), outcome))
            continue
        if not outcome:
            dropped.update(dict.fromkeys(batch.parents(position).tolist(), DROPPED))
            continue
        emitted.extend(outcome)
        positions.extend([position] * len(outcome))
    return Result(rebuilt(emitted, positions, batch, given), failed, dropped)


def rebuilt(
    datas: list[Data], positions: list[int], source: Batch, given: Sequence[Mapping[str, Any]] | None = None
) -> Batch:
    """`datas` as a batch in which row i came from the row of `source` at `positions[i]`.

    `given` is the result of `source.all_values`, if the rows were made of it: a column whose values are still these
    very objects is shared instead of copied. That does not pay for rare keys.
    """
    index = np.array(positions, np.int64)
    everyone = positions == list(range(source.size))
    before = [] if given is None else [given[position] for position in positions]

    def column(key: str, values: list[Any]) -> Column:
        if given is None or any(row.get(key, MISSING) is not value for row, value in zip(before, values, strict=True)):
            return Column.of(values)
        shared = source.column(key).settled()
        return shared if everyone else shared.take(index)

    columns = columns_of([data.held for data in datas], column)
    rows, splits = source.numbers(index)
    metadata = [data.metadata for data in datas]
    return Batch(
        columns,
        len(datas),
        rows=rows,
        splits=splits,
        metadata=metadata if any(entry is not None for entry in metadata) else None,
        origin=source.origin,
        views=None if source.views is None else [source.views[position] for position in positions],
    )


def listed(returned: object) -> list[Data] | Exception:
    """What the code of a step returned for a record as a list; an error for what is neither a record nor one."""
    if isinstance(returned, Data):
        return [returned]
    if returned is None:
        return []
    if isinstance(returned, Exception) or (
        isinstance(returned, list) and all(isinstance(item, Data) for item in returned)
    ):
        return returned
    kind = type(returned).__name__
    if isinstance(returned, list):
        kind = f"a list with {next(type(item).__name__ for item in returned if not isinstance(item, Data))}"
    return WrongTypeError(f"a step returned {kind}; return a Data, None (drop) or a list of Data")
