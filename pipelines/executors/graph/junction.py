"""`Flow`, the rows between two steps of a graph, and `Junction`, the base of the steps that split and join flows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.data.result import Result
from pipelines.errors import StepError
from pipelines.executors.graph.lineage import Lineage
from pipelines.executors.isolation import isolated_rows
from pipelines.runners.runner import OpenContext

Returned = TypeVar("Returned")


@dataclass(slots=True)
class Flow:
    """The rows that a step of a graph has emitted, and the records that failed or were dropped on the way there."""

    batch: Batch
    """Rows under ids of a `Lineage`."""
    failed: Mapping[int, Exception] = field(default_factory=dict)
    """Record number to the error, on any way that leads here."""
    dropped: Mapping[int, str] = field(default_factory=dict)
    """Record number to the reason."""
    branches: Rows | None = None
    """Of a SWITCH: the branch of each row of `batch`."""
    seconds: float = 0.0
    """Seconds from the start of the run until the flow was complete."""


class Junction(ABC):
    """An open graph step: joins the flows of its inputs, or splits one. Used by one thread; has nothing to close."""

    timeout: float | None = None
    """Seconds from the start of the run after which it runs with the inputs that have arrived, one at least."""

    def __init__(self, name: str, inputs: tuple[str, ...]) -> None:
        self.name = name
        self.inputs = inputs

    @classmethod
    def of(cls, step: Any, name: str, inputs: tuple[str, ...], context: OpenContext) -> Junction:
        """The junction of a graph step, or of a COMBINE's function, with this name and inputs of these names."""
        return cls(name, inputs)

    @property
    def reads(self) -> frozenset[str] | None:
        """Keys that it reads; `None`: not known."""
        return frozenset()

    @property
    def passes(self) -> bool:
        """Whether rows come out with the keys that they went in with."""
        return False

    @property
    def opens_images(self) -> bool:
        """Whether it may look at the pixels of images."""
        return False

    @abstractmethod
    def run(self, flows: Sequence[Flow], lineage: Lineage) -> Flow:
        """The flow after the junction. `flows` are those of its inputs, in their order: all, or those in time."""

    def failures(self, errors: Mapping[int, Exception], lineage: Lineage) -> dict[int, Exception]:
        """Errors by id as failures by record number, in the name of this step."""
        failures: dict[int, Exception] = {}
        for row, error in errors.items():
            failure = StepError.of(self.name, error)
            for root in lineage.roots(row).tolist():
                failures.setdefault(root, failure)
        return failures


class Router(Protocol):
    """An open switch function: gives branch numbers, `int64 (N,)`, for a `Batch` of N rows."""

    def __call__(self, batch: Batch) -> Rows | tuple[Rows, Mapping[int, Exception]]:
        """The branch numbers of the rows.

        If rows have none it raises `RowsFailed`, and is called again with the others, or returns the branches (any
        number for such a row) and the errors by position.
        """


class Combiner(Protocol):
    """An open combine function: makes one batch of several whose rows belong together one by one."""

    def __call__(self, inputs: Sequence[Batch]) -> Batch | Result:
        """The combined rows.

        If rows cannot be combined it raises `RowsFailed`, and is called again with the others, or returns a `Result`
        with their failures.
        """


def gathered(flows: Iterable[Flow]) -> tuple[dict[int, Exception], dict[int, str]]:
    """The records that failed, and those that were dropped, in any flow; of several reasons the first counts."""
    failed: dict[int, Exception] = {}
    dropped: dict[int, str] = {}
    for flow in flows:
        failed = {**flow.failed, **failed}
        dropped = {**flow.dropped, **dropped}
    return failed, dropped


def searched(
    parts: Sequence[Batch], run: Callable[[Sequence[Batch]], Returned], failed: dict[int, Exception]
) -> list[Returned]:
    """The results of `run` for batches of the same rows; errors of rows are added to `failed`, by id.

    `pipelines.executors.isolation` says how rows are found. There is a result for each call that succeeded, in the
    order of the rows. Raises `ContractError` if `run` does.
    """
    results, errors = isolated_rows(parts, run)
    failed.update({int(parts[0].rows[position]): error for position, error in errors.items()})
    return results
