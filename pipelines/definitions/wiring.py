"""The connections between the steps of a graph: checks them, and finds an order in which inputs come first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pipelines.errors import DefinitionError, nearest
from pipelines.steps import Combine, First, GraphStep, Step, Switch, SwitchOutput

INPUT: Final = "input"
"""The name of the graph's own input among the inputs of its steps; no step has this name."""

Way = Mapping[str, frozenset[int]]
"""Which branches of switches a record may have taken, by the switch's name; all of them if it is not there."""


@dataclass(frozen=True, slots=True)
class Node:
    """A step in a graph and the names of its inputs."""

    step: Step | GraphStep
    inputs: tuple[str, ...]


class WiringError(DefinitionError):
    """A graph that cannot run: `reason`, at which `step` (`None`: the graph), and whether at its input or output."""

    def __init__(self, reason: str, step: str | None = None, at: Literal["input", "output"] | None = None) -> None:
        where = f'step "{step}": ' if step is not None else "outputStep: " if at == "output" else ""
        super().__init__(where + reason)
        self.reason = reason
        self.step = step
        self.at = at


def ordered(nodes: Mapping[str, Node], output: str | None) -> tuple[dict[str, Node], str]:
    """The nodes in an order in which inputs come first, otherwise as given, and the name of the output.

    Raises `WiringError` for a graph that cannot run: no steps, unknown inputs, wrong numbers of inputs, cycles, an
    output that is not there, steps that lead nowhere, branches of switches that do not fit or never meet.
    Without `output` it is the only step that is no input of another.
    """
    if not nodes:
        raise WiringError("a graph needs a step at least")
    for name, node in nodes.items():
        _check_inputs(name, node, nodes)
    order = _in_order(nodes)
    end = _output(nodes, output)
    _check_ends(nodes, end)
    for name, node in nodes.items():
        if isinstance(node.step, Switch):
            _check_branches(name, node.step, nodes)
    _check_ways(order)
    return order, end


def above(nodes: Mapping[str, Node], name: str, without: str | None = None) -> set[str]:
    """The steps upstream of a step, itself and `input` included, by paths that avoid the step `without`."""
    reached: set[str] = set()
    left = [name]
    while left:
        step = left.pop()
        if step in reached or step == without:
            continue
        reached.add(step)
        if step != INPUT:
            left.extend(nodes[step].inputs)
    return reached


def _check_inputs(name: str, node: Node, nodes: Mapping[str, Node]) -> None:
    if name == INPUT:
        raise WiringError(f'no step may be called "{INPUT}": that is the input of the graph', name)
    if not name:
        raise WiringError("a step needs a name", name)
    step, inputs = node.step, node.inputs
    if not inputs:
        raise WiringError(f'has no input; name a step, or "{INPUT}" for the input of the graph', name)
    for source in inputs:
        if source != INPUT and source not in nodes:
            hint = nearest(source, [INPUT, *nodes]) or f"; there are {', '.join([INPUT, *nodes])}"
            raise WiringError(f'there is no step "{source}"{hint}', name, at="input")
        if inputs.count(source) > 1:
            raise WiringError(f'"{source}" is an input twice', name, at="input")
    if not (isinstance(step, GraphStep) and step.takes_several) and len(inputs) > 1:
        raise WiringError(
            f"{step.type_name} has one input, not {len(inputs)}; join them with a MERGE, ANY or COMBINE step",
            name,
            at="input",
        )
    if isinstance(step, GraphStep):
        try:
            step.check_inputs(len(inputs))
        except DefinitionError as error:
            raise WiringError(str(error), name) from error
    if isinstance(step, SwitchOutput):
        _check_switch_output(name, step, inputs[0], nodes)


def _check_switch_output(name: str, step: SwitchOutput, source: str, nodes: Mapping[str, Node]) -> None:
    switch = nodes[source].step if source != INPUT else None
    if not isinstance(switch, Switch):
        kind = "the input of the graph" if switch is None else switch.type_name
        raise WiringError(f'the input of a SWITCH_OUTPUT is a SWITCH; "{source}" is {kind}', name, at="input")
    count = switch.switch_fn.num_outputs
    if step.output_num >= count:
        raise WiringError(
            f'outputNum is {step.output_num}; the {count} branches of "{source}" are numbered from 0 to {count - 1}',
            name,
        )


def _in_order(nodes: Mapping[str, Node]) -> dict[str, Node]:
    order: dict[str, Node] = {}
    while len(order) < len(nodes):
        ready = [
            name
            for name, node in nodes.items()
            if name not in order and all(source == INPUT or source in order for source in node.inputs)
        ]
        if not ready:
            raise _cycle({name: node for name, node in nodes.items() if name not in order})
        # One at a time, so that the order is the given one as far as possible.
        order[ready[0]] = nodes[ready[0]]
    return order


def _cycle(nodes: Mapping[str, Node]) -> WiringError:
    # Every node that is left has an input that is left: going back along these must come round.
    way = [next(iter(nodes))]
    while way.count(way[-1]) < 2:
        way.append(next(source for source in nodes[way[-1]].inputs if source in nodes))
    cycle = way[way.index(way[-1]) :][::-1]
    return WiringError(f"runs in a circle: {' -> '.join(cycle)}", cycle[0], at="input")


def _output(nodes: Mapping[str, Node], output: str | None) -> str:
    if output is not None:
        if output not in nodes:
            raise WiringError(f'there is no step "{output}"{nearest(output, nodes)}', at="output")
        return output
    ends = _ends(nodes)
    if len(ends) > 1:
        raise WiringError(f"{_listed(ends)} are both outputs; join them, and name the one output with outputStep")
    return ends[0]


def _check_ends(nodes: Mapping[str, Node], output: str) -> None:
    ends = [name for name in _ends(nodes) if name != output]
    if ends:
        raise WiringError(
            f'no step reads its output, and the outputStep is "{output}"; a graph has one output: '
            "join them with a MERGE, ANY or COMBINE step, or remove this one",
            ends[0],
        )


def _ends(nodes: Mapping[str, Node]) -> list[str]:
    read = {source for node in nodes.values() for source in node.inputs}
    return [name for name in nodes if name not in read]


def _check_branches(name: str, switch: Switch, nodes: Mapping[str, Node]) -> None:
    branches = {
        node.step.output_num
        for node in nodes.values()
        if isinstance(node.step, SwitchOutput) and node.inputs == (name,)
    }
    missing = sorted(set(range(switch.switch_fn.num_outputs)) - branches)
    if missing:
        raise WiringError(f"there is no SWITCH_OUTPUT for branch {_listed(missing)}", name)


def _check_ways(order: Mapping[str, Node]) -> None:
    ways: dict[str, Way] = {INPUT: {}}
    for name, node in order.items():
        step = node.step
        inputs = [ways[source] for source in node.inputs]
        if isinstance(step, SwitchOutput):
            ways[name] = _both(inputs[0], {node.inputs[0]: frozenset({step.output_num})})
        elif isinstance(step, GraphStep) and not step.aligns:
            ways[name] = _either(inputs, order)
        else:
            ways[name] = {}
            for source, way in zip(node.inputs, inputs, strict=True):
                ways[name] = _both(ways[name], way)
                _check_meeting(name, source, ways[name])
        if isinstance(step, Combine) and isinstance(step.combine_fn, First) and step.combine_fn.timeout_ms is not None:
            _check_alike(name, node, inputs)


def _check_meeting(name: str, source: str, way: Way) -> None:
    for switch, branches in way.items():
        if not branches:
            raise WiringError(
                f'"{source}" and the inputs before it are on different branches of "{switch}": no record ever comes '
                "from all of them; join branches with an ANY step",
                name,
                at="input",
            )


def _check_alike(name: str, node: Node, ways: list[Way]) -> None:
    for source, way in zip(node.inputs, ways, strict=True):
        if way != ways[0]:
            raise WiringError(
                f'"{source}" and "{node.inputs[0]}" do not get the same records, so that one cannot stand in for the '
                "other when it is late; let FIRST choose on each branch, and join the branches with an ANY step",
                name,
                at="input",
            )


def _both(a: Way, b: Way) -> Way:
    return {switch: a.get(switch, branches) & b.get(switch, branches) for switch, branches in {**a, **b}.items()}


def _either(ways: list[Way], nodes: Mapping[str, Node]) -> Way:
    way: dict[str, frozenset[int]] = {}
    for switch in ways[0]:
        if not all(switch in way for way in ways):
            continue
        branches = frozenset[int]().union(*(way[switch] for way in ways))
        step = nodes[switch].step
        if isinstance(step, Switch) and len(branches) < step.switch_fn.num_outputs:
            way[switch] = branches
    return way


def _listed(names: list[str] | list[int]) -> str:
    return " and ".join(f'"{name}"' if isinstance(name, str) else str(name) for name in names)
