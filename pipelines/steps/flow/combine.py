"""COMBINE: one record out of those of several branches, after Konduit Serving's design record ADR 0004."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from pipelines.errors import DefinitionError
from pipelines.late import late
from pipelines.steps.base import Typed
from pipelines.steps.code.function import HasFunction
from pipelines.steps.config import Int
from pipelines.steps.flow.graph import GraphStep

if TYPE_CHECKING:
    from pipelines.executors.graph.junction import Combiner, Junction
    from pipelines.runners.runner import OpenContext


class CombineFunction(Typed):
    """Base of the functions of COMBINE steps; a plug-in may bring more (group `streamer.combine_functions`)."""

    kind: ClassVar[str] = "combine function"
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    @property
    def aligns(self) -> bool:
        """Whether a row must come from all inputs to go on."""
        return True

    def check_inputs(self, count: int) -> None:
        """Raise `DefinitionError` if it cannot have this many inputs."""

    @abstractmethod
    def open(self, name: str, inputs: tuple[str, ...], context: OpenContext) -> Junction:
        """The junction of a COMBINE of this name with inputs of these names."""


class AlignedCombine(CombineFunction):
    """Base of functions of the inputs' records that belong together; most plug-ins derive from it."""

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.combining:CombineJunction.of")

    @abstractmethod
    def combiner(self, context: OpenContext) -> Combiner:
        """A function from the inputs, batches whose rows belong together one by one, to a batch.

        The result is made with `take`, `with_columns` or `select` of one of them, or has `rows=` of theirs; rows that
        it leaves out are dropped. The function may raise `RowsFailed`: the other rows are given again then.
        """


class Ensemble(AlignedCombine):
    """The weighted average of several models' results: `sum(weight * value) / sum(weights)`.

    The result is the first input's record with the averages in place of its values. Arrays must have equal shapes.
    """

    type_name: ClassVar[str] = "ENSEMBLE"

    weights: tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...] | None = None
    """A weight for each input, in their order; default: equal weights."""
    field_names: tuple[str, ...] | None = None
    """Keys of the arrays and numbers to average; default: every array of numbers and DOUBLE that all inputs have."""

    def check_inputs(self, count: int) -> None:
        """Raise `DefinitionError` if there are more or fewer weights than inputs."""
        if self.weights is not None and len(self.weights) != count:
            raise DefinitionError(f"there are {len(self.weights)} weights for {count} inputs; give each input one")

    combiner: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.combining:EnsembleCombiner")

    @field_validator("weights")
    @classmethod
    def _check_sum(cls, weights: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if weights is not None and not sum(weights) > 0:
            raise ValueError("one weight at least must be above 0")
        return weights


class ArgMax(AlignedCombine):
    """The record of the input whose score is highest.

    Of equal scores the first input's counts, a NaN counts as lowest.
    """

    type_name: ClassVar[str] = "ARGMAX"

    field_name: str = "score"
    """Key of the score: a number, or an array of numbers, of which the largest is the score."""

    combiner: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.combining:ArgMaxCombiner")


class First(CombineFunction):
    """Each record is taken from the first input, in their order, in which it did not fail, within a time limit.

    The inputs after the first are fallbacks. An input that exceeds the time limit goes on, but its result is discarded;
    if all inputs exceed it, the one that ends first counts.
    """

    type_name: ClassVar[str] = "FIRST"

    timeout_ms: Annotated[Int, Field(gt=0)] | None = None
    """How long to wait for the inputs, in milliseconds from the start of the batch; default: no limit. Needs threads
    (`limits: {threads: 4}` of a service, `open(pool=...)` in Python): without them steps run one after the other."""

    @property
    def aligns(self) -> bool:
        """`False`: one input is enough."""
        return False

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.joining:FirstJunction.of")


class FunctionCombine(HasFunction, AlignedCombine):
    """Calls a Python function `list[Data] -> Data | None` to make one record of the inputs' records.

    `None` drops the record.
    """

    type_name: ClassVar[str] = "FUNCTION"

    def __init__(self, function: str | Callable[..., Any] | None = None, /, **fields: Any) -> None:
        super().__init__(function, **fields)

    combiner: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.combining:FunctionCombiner")


class Combine(GraphStep):
    """The records that several branches made of one record become one again, by the function `combineFn`.

    As with MERGE, a record that does not come from every input is dropped; FIRST needs one input only.
    """

    type_name: ClassVar[str] = "COMBINE"
    parts: ClassVar[Mapping[str, str]] = {"combine_fn": CombineFunction.kind}

    combine_fn: CombineFunction
    """What makes one record of the inputs' records: `ENSEMBLE`, `ARGMAX`, `FIRST` or `FUNCTION`, with its fields."""

    @property
    def aligns(self) -> bool:
        """Whether a row must come from all inputs to go on."""
        return self.combine_fn.aligns

    def check_inputs(self, count: int) -> None:
        """Raise `DefinitionError` if the function cannot have this many inputs."""
        self.combine_fn.check_inputs(count)

    def open(self, name: str, inputs: tuple[str, ...], context: OpenContext) -> Junction:
        """The junction of its function."""
        return self.combine_fn.open(name, inputs, context)
