"""Runners: what executes a step. Configuration (`pipelines.steps`) and execution are kept apart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Executor as Pool
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from pipelines.batch import Batch
from pipelines.data import Data
from pipelines.result import Result


@dataclass(frozen=True)
class OpenContext:
    """What a runner may use while it opens and runs."""

    base: Path = field(default_factory=Path.cwd)
    """Folder of the definition file: relative model paths start here."""
    pool: Pool | None = None
    """Where independent work may run in parallel; `None`: in the calling thread."""
    allow_code: bool = True
    """Whether steps that run the user's Python code may be opened."""
    progress: Callable[[str], None] | None = None
    """Told what is being loaded, for work that takes long."""

    def path(self, uri: str) -> Path:
        """A model's path: `file:` is taken off, a relative one starts at `base`."""
        return self.base / uri.removeprefix("file://").removeprefix("file:")


class Runner(ABC):
    """Runs one step over batches. Created by a runner factory, used by one thread at a time, closed once."""

    keeps_rows: ClassVar[bool] = False
    """Whether each row that goes in comes out once, in the same order, unless it failed."""
    pure: ClassVar[bool] = True
    """Whether running rows again, alone or in other company, gives the same: only then a failing batch is
    searched by halves for the rows to blame."""

    @property
    def reads(self) -> frozenset[str] | None:
        """Keys that the runner reads, so that they are decoded early; `None`: it does not know."""
        return None

    @abstractmethod
    def run_batch(self, batch: Batch) -> Result:
        """Run all rows; account for each number in `batch.rows` exactly once.

        May raise: `RowsFailed` (positions to errors) fails just these rows, anything else fails the batch,
        which the executor then searches for the rows to blame if the runner is `pure`.
        """

    def close(self) -> None:
        """Release what opening took: models, files, devices. Called once."""


class RowRunner(Runner):
    """A runner that sees one record at a time."""

    @abstractmethod
    def run(self, data: Data) -> Data | None | list[Data]:
        """The result of one record: a `Data`, `None` (dropped) or a list (multiplied). Must not change `data`."""

    def run_batch(self, batch: Batch) -> Result:
        emitted: list[Data] = []
        positions: list[int] = []
        failed: dict[int, Exception] = {}
        dropped: dict[int, str] = {}
        for position in range(batch.size):
            try:
                found = self.run(batch.row(position))
            except Exception as error:  # noqa: BLE001 - whatever a record raises belongs to that record
                failed.update(dict.fromkeys(batch.parents(position).tolist(), error))
                continue
            if found is None or found == []:
                dropped.update(dict.fromkeys(batch.parents(position).tolist(), "dropped by the step"))
                continue
            many = found if isinstance(found, list) else [found]
            emitted.extend(many)
            positions.extend([position] * len(many))
        return Result(rebuilt(emitted, positions, batch), failed, dropped)


class StatefulRunner(Runner):
    """A runner whose results depend on earlier rows: windows, counters, trackers.

    A row that goes into the state is `held`; a later result carries its number among its parents. Only
    executors call these methods. Times are seconds of a monotonic clock.
    """

    pure: ClassVar[bool] = False

    @abstractmethod
    def tick(self, now: float) -> Result:
        """What time alone makes ready, an empty batch if nothing."""

    @abstractmethod
    def flush(self) -> Result:
        """Everything still held, at the end of the input."""

    @abstractmethod
    def forget(self, lanes: Iterable[Hashable]) -> None:
        """Discard the state that belongs to these lanes: they are someone else's now."""

    @abstractmethod
    def snapshot(self) -> bytes:
        """The state, to be kept durably."""

    @abstractmethod
    def restore(self, state: bytes) -> None:
        """Take over a state that `snapshot` gave."""


def rebuilt(datas: list[Data], positions: list[int], source: Batch) -> Batch:
    """`datas` as a batch in which row i came from the row of `source` at `positions[i]`."""
    rows, splits = source.numbers(np.array(positions, np.int64))
    batch = Batch.of(datas)
    return Batch(batch.columns, batch.size, rows=rows, splits=splits, metadata=batch.metadata, origin=source.origin)
