"""What an open pipeline says of its inputs and outputs: what its first and last models know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import pipelines
from pipelines import Data
from pipelines.executors.ports import Ports
from pipelines.runners.models.model import Port

FLOATS = np.dtype(np.float32)


def same(data: Data) -> Data:
    return data


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Gives y = x + bias for rows of four numbers; the bias is an input that may be left out."""
    given, gives = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 4]) for name in "xy")
    optional = helper.make_tensor_value_info("bias", TensorProto.FLOAT, ["N", 4])
    bias = numpy_helper.from_array(np.ones((1, 4), np.float32), "bias")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "bias"], ["y"])], "sum", [given, optional], [gives], initializer=[bias]
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "sum.onnx")
    return str(tmp_path / "sum.onnx")


def ports(pipeline: Any) -> Ports:
    with pipeline.open() as executor:
        known: Ports = executor.ports()
        return known


def named(given: tuple[Port, ...] | None) -> list[str] | None:
    return None if given is None else [port.name for port in given]


def test_a_sequence_takes_what_its_first_model_takes_and_gives_what_its_last_gives(model: str) -> None:
    first = pipelines.Onnx(model_uri=model, input_names={"x": "a"}, output_names={"y": "x"})
    known = ports(pipelines.Sequence([first, pipelines.Onnx(model_uri=model)]))
    assert (known.inputs, known.outputs) == ((Port("a", FLOATS, ("N", 4)),), (Port("y", FLOATS, ("N", 4)),))
    assert known.optional == (Port("bias", FLOATS, ("N", 4)),)


def test_steps_of_other_kinds_know_nothing_of_arrays(model: str) -> None:
    assert ports(pipelines.Sequence([])) == Ports()
    known = ports(pipelines.Sequence([same, pipelines.Onnx(model_uri=model)]))
    assert (known.inputs, named(known.outputs)) == (None, ["y"])
    known = ports(pipelines.Sequence([pipelines.Onnx(model_uri=model), same]))
    assert (named(known.inputs), known.outputs) == (["x"], None)


def test_a_graph_takes_what_the_models_take_that_get_its_records(model: str) -> None:
    def graph(second: str, step: Any = None) -> Ports:
        builder = pipelines.GraphBuilder()
        start = builder.input
        other = pipelines.Onnx(model_uri=model, input_names={"x": second}, output_names={"y": "z"})
        left = builder.add("left", pipelines.Onnx(model_uri=model), start)
        right = builder.add("right", step or other, start)
        return ports(builder.build(builder.merge(left, right)))

    assert sorted(named(graph("x").inputs) or ()) == ["x"]
    assert sorted(named(graph("other").inputs) or ()) == ["other", "x"]
    assert graph("x").outputs is None
    assert graph("x", same).inputs is None

    # Values that no model reads pass by: records may bring more than its inputs.
    passing = pipelines.GraphBuilder()
    left = passing.add("left", pipelines.Onnx(model_uri=model), passing.input)
    assert ports(passing.build(passing.merge(left, passing.input))).inputs is None


def test_inputs_that_disagree_are_not_known() -> None:
    one, other = Port("x", FLOATS, (None, 4)), Port("x", FLOATS, (None, 5))
    assert Ports.of_inputs([Ports((one,)), Ports((one,), (other,))]) == Ports((one,))
    assert Ports.of_inputs([Ports((one,)), Ports((other,))]) == Ports()
    assert Ports.of_inputs([Ports((one,)), Ports()]) == Ports()
