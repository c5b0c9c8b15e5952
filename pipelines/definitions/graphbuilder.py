"""`GraphBuilder`: a graph written from its input to its output, without naming inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipelines.definitions.graph import Graph, GraphStepLike, as_node
from pipelines.definitions.wiring import INPUT, Node
from pipelines.errors import DefinitionError
from pipelines.steps import AnyOf, Combine, CombineFunction, GraphStep, Merge, Switch, SwitchFunction, SwitchOutput


class Stage:
    """A place in a graph that is being built: the output of a step, or the input of the graph."""

    def __init__(self, builder: GraphBuilder, name: str) -> None:
        self._builder = builder
        self._name = name

    @property
    def name(self) -> str:
        """The name of the step."""
        return self._name

    def then(self, name: str, step: GraphStepLike) -> Stage:
        """The output of a step that runs on this: a `Step`, a function, a pipeline, or a graph step of a plug-in."""
        return self._builder.add(name, step, self)

    def switch(self, name: str, function: SwitchFunction) -> tuple[Stage, ...]:
        """The branches of a switch, called `name_0`, `name_1`, ...; join them with `GraphBuilder.any`."""
        switch = self._builder.add(name, Switch(switch_fn=function), self)
        return tuple(
            self._builder.add(f"{name}_{number}", SwitchOutput(output_num=number), switch)
            for number in range(function.num_outputs)
        )

    def merge_with(self, *others: Stage, name: str | None = None) -> Stage:
        """One record with the values of this and of the others; see `Merge`."""
        return self._builder.merge(self, *others, name=name)

    def __repr__(self) -> str:
        return f"Stage({self._name})"


class GraphBuilder:
    """Builds a `Graph` step by step.

        graph = GraphBuilder()
        boxes = graph.input.then("boxes", Onnx("detector.onnx"))
        big, small = boxes.switch("by_size", IntSwitch(field_name="size", num_outputs=2))
        either = graph.any(big.then("big", Onnx("big.onnx")), small.then("small", Onnx("small.onnx")))
        pipeline = graph.build(graph.merge(either, graph.input))

    Steps have names; that of a joining step may be left out and is then `any`, `merge_2`, ...

    Raises:
        DefinitionError: By its methods, for a name that another step has and for a stage of another builder; `build`
            raises as `Graph` does.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    @property
    def input(self) -> Stage:
        """The input of the graph."""
        return Stage(self, INPUT)

    def add(self, name: str, step: GraphStepLike, *inputs: Stage) -> Stage:
        """The output of any step, under a name and with these inputs."""
        if name in self._nodes:
            raise DefinitionError(f'there is a step "{name}" already')
        for stage in inputs:
            if not isinstance(stage, Stage) or stage._builder is not self:
                raise DefinitionError(f'step "{name}": {stage!r} is not of this graph')
        self._nodes[name] = as_node(name, (step, [stage.name for stage in inputs]))
        return Stage(self, name)

    def merge(self, *stages: Stage, name: str | None = None) -> Stage:
        """One record with the values of all stages; see `Merge`."""
        return self._joined(Merge(), stages, name)

    def any(self, *stages: Stage, name: str | None = None) -> Stage:
        """For each record the first stage that has it; see `AnyOf`."""
        return self._joined(AnyOf(), stages, name)

    def combine(self, function: CombineFunction, *stages: Stage, name: str | None = None) -> Stage:
        """One record out of those of all stages; see `Combine`."""
        return self._joined(Combine(combine_fn=function), stages, name)

    def build(
        self,
        output: Stage,
        *,
        id: str | None = None,
        name: str | None = None,
        base: Path | None = None,
        batch: Mapping[str, Any] | None = None,
    ) -> Graph:
        """The graph that ends with `output`."""
        return Graph(self._nodes, output.name, id=id, name=name, base=base, batch=batch)

    def _joined(self, step: GraphStep, stages: tuple[Stage, ...], name: str | None) -> Stage:
        return self.add(name or self._free(step.type_name.lower()), step, *stages)

    def _free(self, name: str) -> str:
        number = 1
        free = name
        while free in self._nodes:
            number += 1
            free = f"{name}_{number}"
        return free
