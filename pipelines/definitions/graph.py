"""`Graph`: a pipeline whose steps part into branches and join again."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from pipelines.definitions.drawing import drawn, mermaid, settings_text
from pipelines.definitions.pipeline import Pipeline
from pipelines.definitions.sequence import as_step
from pipelines.definitions.wiring import Node, ordered
from pipelines.errors import DefinitionError
from pipelines.executors.executor import Executor
from pipelines.late import late
from pipelines.plugins.registry import default_registry
from pipelines.runners.runner import OpenContext
from pipelines.steps import GraphStep, Step
from pipelines.steps.base import TYPE_KEY
from pipelines.steps.config import Form

INPUT_KEY = "@input"

GraphStepLike: TypeAlias = Step | GraphStep | Pipeline | Callable[..., Any]
"""An object that can be a step of a graph."""

_opened: Final[Callable[..., Executor]] = late("pipelines.executors.graph.graph:GraphExecutor")


class Graph(Pipeline):
    """Steps by their names, each with the names of its inputs; `input` is the input of the graph.

        Graph(
            {
                "boxes": (Onnx("detector.onnx"), "input"),
                "both": (Merge(), ["boxes", "input"]),
            },
            output="both",
        )

    `GraphBuilder` writes the same without names of inputs. Immutable; equal to another with equal steps, inputs,
    output, id, name and batch. Raises `DefinitionError` for an object that is not a step and for a graph that cannot
    run: unknown inputs, circles, steps that lead nowhere, branches of a switch that do not fit or never meet. Without
    `output` it is the only step that is not an input of another.
    """

    def __init__(
        self,
        steps: Mapping[str, Node | tuple[GraphStepLike, str | Iterable[str]]],
        output: str | None = None,
        *,
        id: str | None = None,
        name: str | None = None,
        base: Path | None = None,
        batch: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(id=id, name=name, base=base, batch=batch)
        self._nodes = {key: as_node(key, step) for key, step in steps.items()}
        self._order, self._output = ordered(self._nodes, output)

    @property
    def steps(self) -> Mapping[str, Node]:
        """The steps with the names of their inputs, by name, in the order of the definition."""
        return MappingProxyType(self._nodes)

    @property
    def in_order(self) -> Mapping[str, Node]:
        """The same, each step after its inputs."""
        return MappingProxyType(self._order)

    @property
    def output(self) -> str:
        """The name of the step whose output is the graph's."""
        return self._output

    def named_steps(self) -> list[tuple[str, Step]]:
        """The steps that runners run, with their names: those that do not merely join and part branches."""
        return [(name, node.step) for name, node in self._order.items() if isinstance(node.step, Step)]

    def open_in(self, context: OpenContext) -> Executor:
        """`open` for a pipeline that may be a step of another; if it has no folder, paths start at that one's."""
        return _opened(self._order, self._output, self._placed(context), context.registry or default_registry())

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """The definition as plain data, keys spelled as Konduit Serving spells them in JSON or YAML.

        Raises `DefinitionError` for a function that cannot be found again by module and name.
        """
        steps = {name: _written(node, form) for name, node in self._nodes.items()}
        return {"outputStep": self._output, "steps": steps, **self._labels()}

    def mermaid(self) -> str:
        """The graph as a Mermaid flow chart, for Markdown."""
        return mermaid(self._order, self._output)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        mine = (self._nodes, self._output, self.id, self.name, self.batch)
        return mine == (other._nodes, other._output, other.id, other.name, other.batch)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        steps = ", ".join(f"{' + '.join(node.inputs)} -> {name}" for name, node in self._order.items())
        return f"Graph({steps})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{node.step.type_name}</td>"
            f"<td>{html.escape(', '.join(node.inputs))}</td><td>{html.escape(settings_text(node.step))}</td></tr>"
            for name, node in self._order.items()
        )
        title = html.escape(self.name or self.id or "graph")
        head = f"<tr><th>{title}</th><th>type</th><th>input</th><th>settings</th></tr>"
        return f"{drawn(self._order, self._output)}<table>{head}{rows}</table>"


def as_node(name: str, given: Node | tuple[GraphStepLike, str | Iterable[str]]) -> Node:
    """The node of the step `name`, given as a node or as a step with its inputs. Raises `DefinitionError` naming it."""
    if isinstance(given, Node):
        return given
    if not (isinstance(given, tuple) and len(given) == 2):
        raise DefinitionError(f'step "{name}": a step and its input are needed: ({type(given).__name__}, "input")')
    step, inputs = given
    return Node(
        step if isinstance(step, GraphStep) else as_step(step, f'step "{name}"'),
        (inputs,) if isinstance(inputs, str) else tuple(inputs),
    )


def _written(node: Node, form: Form) -> dict[str, Any]:
    several = isinstance(node.step, GraphStep) and node.step.takes_several
    fields = node.step.to_dict(form)
    inputs = list(node.inputs) if several else node.inputs[0]
    return {TYPE_KEY: fields.pop(TYPE_KEY), INPUT_KEY: inputs, **fields}
