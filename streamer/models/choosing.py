"""`Choosing`: an executor that runs each record on the variant of the models that it gets."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING
from pipelines.data.result import Result
from pipelines.data.rowrange import RowNumbers
from pipelines.errors import StepError
from pipelines.executors.accounting import in_order, joined
from pipelines.executors.executor import Executor, Outcome, Output
from pipelines.executors.ports import Ports
from pipelines.observe.metrics import Metrics, summed
from pipelines.observe.observing import Observer
from pipelines.observe.tracing import Trace
from pipelines.runners.state.item import Change, Item
from pipelines.steps.base import Step
from streamer.models.choice import Codes
from streamer.models.sharing import Sharing
from streamer.models.version import Version
from streamer.routing.provenance import record_column

ASKED: Final = "version"
"""The metadata of a request that names the version by which it wants to be answered."""
_NONE: Final = -1


class Chosen(NamedTuple):
    """Which of several versions the rows of a call got."""

    rows: RowNumbers
    codes: Codes | int
    """The number of each row's version in `made_by`, or that of all rows."""
    made_by: Sequence[tuple[str, str]]
    """The label of each version and the name of its variant."""


class Choosing:
    """Divides each batch among several open versions, and puts their results together: no call has records of two.

    Used by one thread. Versions without steps that hold records alone can be chosen from.
    """

    def __init__(self, open_: Sequence[tuple[str, Version, Executor]], sharing: Sharing) -> None:
        """`open_`: the name of a variant, its version and an open pipeline of that.

        Those of `sharing.choice` are first, in its order.
        """
        self._executors = [executor for _, _, executor in open_]
        self._names = [name for name, _, _ in open_]
        self._made_by = [(version.label, name) for name, version, _ in open_]
        self._sharing = sharing
        # A variant's name counts before the label of another, a label before a number that has been opened again, and
        # both before those of an older version.
        numbers = [(version.number, number) for number, (_, version, _) in enumerate(open_)]
        labels = [(label, number) for number, (label, _) in enumerate(self._made_by)]
        names = [(name, number) for number, name in enumerate(self._names)]
        self._by_name = dict(reversed([*names, *labels, *numbers]))
        self._chosen: list[Chosen] = []
        self._observer: Observer | None = None

    @property
    def inside(self) -> Sequence[Executor]:
        """The open pipelines of the versions."""
        return self._executors

    def take_chosen(self) -> list[Chosen]:
        """Which versions the rows of the calls since the last time got."""
        chosen, self._chosen = self._chosen, []
        return chosen

    @property
    def observer(self) -> Observer | None:
        """See `Executor.observer`."""
        return self._observer

    @observer.setter
    def observer(self, observer: Observer | None) -> None:
        self._observer = observer
        for executor in self._executors:
            executor.observer = observer

    @property
    def reads(self) -> frozenset[str] | None:
        """See `Executor.reads`: what any version reads."""
        reads: set[str] = set()
        for executor in self._executors:
            if executor.reads is None:
                return None
            reads |= executor.reads
        return frozenset(reads)

    @property
    def metrics(self) -> Metrics:
        """See `Executor.metrics`: of all versions together."""
        return summed([executor.metrics for executor in self._executors])

    @property
    def stateful(self) -> bool:
        """See `Executor.stateful`."""
        return any(executor.stateful for executor in self._executors)

    @property
    def sequential_steps(self) -> Sequence[str]:
        """See `Executor.sequential_steps`."""
        return [step for executor in self._executors for step in executor.sequential_steps]

    @property
    def saving_steps(self) -> Mapping[str, Step]:
        """See `Executor.saving_steps`: there are none."""
        return {}

    @property
    def unsaved_steps(self) -> Sequence[str]:
        """See `Executor.unsaved_steps`: all that remember records."""
        return [step for executor in self._executors for step in (*executor.saving_steps, *executor.unsaved_steps)]

    @property
    def opens_images(self) -> bool:
        """See `Executor.opens_images`."""
        return any(executor.opens_images for executor in self._executors)

    def ports(self) -> Ports:
        """See `Executor.ports`: those of the current version, which the others have too."""
        return self._executors[0].ports()

    def limit(self, records: int) -> bool:
        """See `Executor.limit`."""
        split = [executor.limit(records) for executor in self._executors]
        return all(split)

    def run(self, data: Mapping[str, Any]) -> Output:
        """See `Executor.run`: by the current version."""
        return self._executors[0].run(data)

    def trace(self, data: Mapping[str, Any]) -> Trace:
        """See `Executor.trace`: by the current version."""
        return self._executors[0].trace(data)

    def run_many(self, datas: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        """See `Executor.run_many`: by the current version."""
        return self._executors[0].run_many(datas)

    def run_batch(self, batch: Batch) -> Result:
        """See `Executor.run_batch`. A record that names a version which is not open any more fails."""
        codes = self._codes(batch)
        self._chosen.append(Chosen(batch.row_numbers, codes, self._made_by))
        if isinstance(codes, int):
            return self._ran(codes, batch)
        parts = [self._part(code, batch.take(codes == code)) for code in np.unique(codes).tolist()]
        result = joined(parts)
        result.batch = in_order(result.batch, batch)
        return result

    def tick(self, now: float, caught_up: float = math.inf) -> Result:
        """See `Executor.tick`: nothing is held."""
        return self._executors[0].tick(now, caught_up)

    def flush(self) -> Result:
        """See `Executor.flush`: nothing is held."""
        return self._executors[0].flush()

    def forget(self, lanes: Iterable[Hashable]) -> None:
        """See `Executor.forget`: nothing is held."""

    def changes(self) -> list[tuple[str, Change]]:
        """See `Executor.changes`: there is no state."""
        return []

    def load(self, lane: Hashable, items: Mapping[str, Iterable[Item]]) -> None:
        """See `Executor.load`: there is no state."""

    def close(self) -> None:
        """Close all versions."""
        for executor in self._executors:
            executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _codes(self, batch: Batch) -> Codes | int:
        codes = self._sharing.choice.codes(batch)
        if not (self._sharing.asks and batch.size):
            return codes
        asked = [None if name is MISSING else name for name in record_column(batch, ASKED).values()]
        if not any(asked):
            return codes
        each = np.full(batch.size, codes, np.int64) if isinstance(codes, int) else codes
        for row, name in enumerate(asked):
            if name:
                each[row] = self._by_name.get(str(name), _NONE)
        first = int(each[0])
        return first if first != _NONE and (each == first).all() else each

    def _part(self, code: int, batch: Batch) -> Result:
        if code != _NONE:
            return self._ran(code, batch)
        error = StepError("the version that the request names is not open any more; name another", step="version")
        return Result(batch.take([]), dict.fromkeys(batch.rows.tolist(), error))

    def _ran(self, code: int, batch: Batch) -> Result:
        began = time.perf_counter()
        result = self._executors[code].run_batch(batch)
        if code < len(self._sharing.choice.names):
            self._sharing.tally.add(self._names[code], batch.size, result, time.perf_counter() - began)
        return result
