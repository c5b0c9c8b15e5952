"""SWITCH and its outputs: each record goes to one of several branches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pipelines.late import late
from pipelines.steps.base import Typed
from pipelines.steps.code.function import HasFunction
from pipelines.steps.config import Int
from pipelines.steps.flow.graph import GraphStep

if TYPE_CHECKING:
    from pipelines.executors.graph.junction import Router
    from pipelines.runners.runner import OpenContext


class SwitchFunction(Typed):
    """Base of the functions of SWITCH steps; a plug-in may bring more (group `streamer.switch_functions`)."""

    kind: ClassVar[str] = "switch function"
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    num_outputs: Annotated[Int, Field(gt=0)]
    """How many branches there are, numbered from 0."""

    @property
    def reads(self) -> frozenset[str] | None:
        """Keys that the decision needs; `None`: not known."""
        return None

    @abstractmethod
    def open(self, context: OpenContext) -> Router:
        """The function from a `Batch` of N rows to their branch numbers, `int64 (N,)`.

        It may raise `RowsFailed`; it is called again for the other rows then. A number without a branch fails its row.
        """


class IntSwitch(SwitchFunction):
    """An INT64 value of the record is the number of its branch."""

    type_name: ClassVar[str] = "INT_SWITCH"

    field_name: str
    """Key of the value."""

    @property
    def reads(self) -> frozenset[str]:
        """The key of the value."""
        return frozenset({self.field_name})

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.switching:IntRouter")


class StringSwitch(SwitchFunction):
    """A STRING value of the record is looked up in a table of branch numbers."""

    type_name: ClassVar[str] = "STRING_SWITCH"

    field_name: str
    """Key of the value."""
    map: dict[str, Int]
    """The branch number for each value."""

    @property
    def reads(self) -> frozenset[str]:
        """The key of the value."""
        return frozenset({self.field_name})

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.switching:StringRouter")

    @model_validator(mode="after")
    def _check_branches(self) -> StringSwitch:
        for value, branch in self.map.items():
            if not 0 <= branch < self.num_outputs:
                raise ValueError(
                    f'map: "{value}" goes to branch {branch}, but the {self.num_outputs} branches (numOutputs) are '
                    f"numbered from 0 to {self.num_outputs - 1}"
                )
        return self


class FunctionSwitch(HasFunction, SwitchFunction):
    """A Python function `Data -> int` returns the number of the record's branch."""

    type_name: ClassVar[str] = "FUNCTION_SWITCH"

    def __init__(self, function: str | Callable[..., Any] | None = None, /, **fields: Any) -> None:
        super().__init__(function, **fields)

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.switching:FunctionRouter")


class Switch(GraphStep):
    """Sends each record to one of several branches.

    They begin at the SWITCH_OUTPUT steps that have it as their input.
    """

    type_name: ClassVar[str] = "SWITCH"
    takes_several: ClassVar[bool] = False
    parts: ClassVar[Mapping[str, str]] = {"switch_fn": SwitchFunction.kind}

    switch_fn: SwitchFunction
    """What gives a record the number of its branch: `INT_SWITCH`, `STRING_SWITCH` or `FUNCTION_SWITCH`, with its
    fields."""

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.switching:SwitchJunction.of")


class SwitchOutput(GraphStep):
    """The beginning of a branch: the records that a SWITCH, its input, sends there."""

    type_name: ClassVar[str] = "SWITCH_OUTPUT"
    takes_several: ClassVar[bool] = False

    output_num: Annotated[Int, Field(ge=0)]
    """Number of the branch, counted from 0."""

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.switching:SwitchOutputJunction.of")
