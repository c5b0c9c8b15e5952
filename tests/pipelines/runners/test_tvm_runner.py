"""TVM, on a small model that TVM compiles here."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outcomes import result_of, results_of

from pipelines import Data, MissingPackageError, Sequence, StepError, Tvm

needs_tvm = pytest.mark.skipif(
    importlib.util.find_spec("tvm") is None, reason="TVM is not installed: pip install 'streamer-inference[tvm]'"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """s = a + b and p = a * b, of float32 `[n, 2]`."""
    return compiled(tmp_path_factory.mktemp("tvm") / "m.so", {"s": "Add", "p": "Mul"}, ["a", "b"], ["n", 2])


def compiled(place: Path, outputs: dict[str, str], inputs: list[str], shape: list[int | str]) -> Path:
    """A library with one operator an output, from an ONNX model."""
    import onnx
    import tvm
    from onnx import TensorProto, helper
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    def port(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [helper.make_node(operator, inputs, [output]) for output, operator in outputs.items()]
    graph = helper.make_graph(nodes, "g", [port(name) for name in inputs], [port(name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    module = relax.get_pipeline("zero")(from_onnx(model))
    tvm.compile(module, target="llvm").export_library(str(place))
    return place


def f4(*values: Any) -> Any:
    return np.array(values, np.float32)


@needs_tvm
@pytest.mark.parametrize("lazy", [False, True])
def test_a_compiled_model_runs_with_the_steps_names(library: Path, lazy: bool) -> None:
    step = Tvm(library, input_names=["x", "y"], output_names=["sum", "product"], lazy_init=lazy)
    with Sequence([step]).open() as executor:
        found = executor.run_many(
            [
                Data({"x": f4([1, 2]), "y": f4([3, 4]), "id": 7}),
                Data({"x": f4([1, 2], [0, 0]), "y": f4([3, 4], [5, 6])}),
                Data({"x": f4([1, 2])}),
                Data({"x": f4([1, 2]), "y": "text"}),
            ]
        )
    first, second = results_of(found[:2])
    assert {key: value.tolist() for key, value in first.items()} == {"sum": [[4, 6]], "product": [[3, 8]]}
    assert second["product"].tolist() == [[3, 8], [0, 0]]
    assert isinstance(found[2], StepError)
    assert 'Value not found for key "y"' in str(found[2])
    assert 'key "y" holds str' in str(found[3])


@needs_tvm
def test_a_model_of_one_array_takes_the_only_one_and_gives_default(tmp_path: Path) -> None:
    place = compiled(tmp_path / "m.so", {"y": "Neg"}, ["x"], [2])
    with Sequence([Tvm(place)]).open() as executor:
        found, refused = executor.run_many([Data({"anything": f4(1, 2), "id": 7}), Data({"anything": f4(1, 2, 3)})])
    assert {key: value.tolist() for key, value in result_of(found).items()} == {"default": [-1, -2]}
    assert isinstance(refused, StepError)


@needs_tvm
def test_names_that_are_too_few_are_an_error(library: Path) -> None:
    with pytest.raises(StepError, match=r"takes 2 arrays \(a, b\), but inputNames has 1 names"):
        Sequence([Tvm(library, input_names=["x"])]).open()
    with Sequence([Tvm(library)]).open() as executor:
        (found,) = executor.run_many([Data({"a": f4([1, 2]), "b": f4([1, 2])})])
    assert 'the model gave 2 outputs, but "outputNames" has 0' in str(found)


@needs_tvm
def test_a_missing_or_broken_library_and_a_wrong_function_are_errors_when_it_opens(
    library: Path, tmp_path: Path
) -> None:
    (tmp_path / "m.so").write_bytes(b"no library")
    for step, text in (
        (Tvm("m.so"), r"m\.so cannot be loaded"),
        (Tvm("no.so"), r"no\.so is not there"),
        (Tvm(library, function="other"), 'with a function "other"'),
        (Tvm(library, device="nothing"), "cannot be loaded"),
    ):
        with pytest.raises(StepError, match=text):
            Sequence([step], base=tmp_path).open()


@pytest.mark.skipif(importlib.util.find_spec("tvm") is not None, reason="TVM is installed")
def test_without_tvm_the_error_names_the_extra(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"pip install 'streamer-inference\[tvm\]'") as caught:
        Sequence([Tvm("m.so")], base=tmp_path).open()
    assert isinstance(caught.value.__cause__, MissingPackageError)
