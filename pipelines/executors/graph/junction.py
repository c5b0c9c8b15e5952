"""What flows between the steps of a graph, and what joins and parts it: the base of the graph steps' executors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.errors import StepError
from pipelines.executors.graph.lineage import Lineage
from pipelines.executors.isolation import isolated_rows
from pipelines.runners.runner import OpenContext

Found = TypeVar("Found")


@dataclass(slots=True)
class Flow:
    """What has come out of a step of a graph, and what became of the other records on the way there."""

    batch: Batch
    """Rows under ids of a `Lineage`."""
    failed: Mapping[int, Exception] = field(default_factory=dict)
    """Record number to what went wrong, on any way that leads here."""
    dropped: Mapping[int, str] = field(default_factory=dict)
    """Record number to the reason."""
    branches: Rows | None = None
    """Of a SWITCH: the branch of each row of `batch`."""
    seconds: float = 0.0
    """When it was there, from the start of the run."""


class Junction(ABC):
    """An open graph step: joins the flows of its inputs, or parts one. Used by one thread; has nothing to close."""

    timeout: float | None = None
    """After how many seconds from the start of the run it makes do with the inputs that are there, one at least."""

    def __init__(self, name: str, inputs: tuple[str, ...]) -> None:
        self.name = name
        self.inputs = inputs

    @classmethod
    def of(cls, step: Any, name: str, inputs: tuple[str, ...], context: OpenContext) -> Junction:
        """That of a graph step, or of a COMBINE's function, under this name and with inputs of these names."""
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
        """The flow that goes on. `flows` are those of the inputs, in their order: all, or those in time."""

    def failures(self, errors: Mapping[int, Exception], lineage: Lineage) -> dict[int, Exception]:
        """Errors by id as failures by record number, in the name of this step."""
        found: dict[int, Exception] = {}
        for row, error in errors.items():
            failure = StepError.of(self.name, error)
            for root in lineage.roots(row).tolist():
                found.setdefault(root, failure)
        return found


def gathered(flows: Iterable[Flow]) -> tuple[dict[int, Exception], dict[int, str]]:
    """What failed and what was dropped in any of the flows; the first that tells of a record counts."""
    failed: dict[int, Exception] = {}
    dropped: dict[int, str] = {}
    for flow in flows:
        failed = {**flow.failed, **failed}
        dropped = {**flow.dropped, **dropped}
    return failed, dropped


def searched(
    parts: Sequence[Batch], run: Callable[[Sequence[Batch]], Found], failed: dict[int, Exception]
) -> list[Found]:
    """`run(parts)`, for batches of the same rows; what it raises is pinned to rows, by id, in `failed`.

    `pipelines.executors.isolation` says how. There is a result for each call that went well, in the order of the rows.
    `ContractError` is raised.
    """
    found, errors = isolated_rows(parts, run)
    failed.update({int(parts[0].rows[position]): error for position, error in errors.items()})
    return found
