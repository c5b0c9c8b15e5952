"""The steps that only graphs have: those that join branches. SWITCH is in `pipelines.steps.flow.switch`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pipelines.late import late
from pipelines.steps.base import Typed

if TYPE_CHECKING:
    from pipelines.executors.graph.junction import Junction
    from pipelines.runners.runner import OpenContext


class GraphStep(Typed):
    """Base of the steps that route rows and join branches instead of computing; a plug-in may bring more.

    Their inputs stand beside them in the graph (`@input`), as for every step of a graph.
    """

    kind: ClassVar[str] = "graph step"
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"
    takes_several: ClassVar[bool] = True
    """Whether it has any number of inputs from one up, else exactly one."""

    @property
    def aligns(self) -> bool:
        """Whether a row must come from all inputs to go on."""
        return False

    def check_inputs(self, count: int) -> None:
        """Raise `DefinitionError` if it cannot have this many inputs."""

    @abstractmethod
    def open(self, name: str, inputs: tuple[str, ...], context: OpenContext) -> Junction:
        """The junction of this step, with this name and inputs of these names."""


class Merge(GraphStep):
    """The records that several branches made of one record become one, with the values of all.

    It fails if two of them have the same key. A record that does not come from every input is dropped.
    """

    type_name: ClassVar[str] = "MERGE"

    @property
    def aligns(self) -> bool:
        """`True`: a row goes on only if all inputs have it."""
        return True

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.joining:MergeJunction.of")


class AnyOf(GraphStep):
    """Each record is taken from the first input, in their order, that has it: joins the branches of a SWITCH."""

    type_name: ClassVar[str] = "ANY"

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.graph.joining:AnyJunction.of")
