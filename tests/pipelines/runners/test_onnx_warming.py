"""A model that is opened in place of another is run on what that ran on before it gets records."""

from __future__ import annotations

from collections.abc import Sequence as Listed
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from pipelines import Data, Onnx, Sequence
from pipelines.errors import StepError
from pipelines.executors.lastshapes import LastShapes
from pipelines.runners.models.onnxmodel import OnnxModel


def product(file: Path, length: int, shape: Listed[Any] = ("N", "M")) -> Sequence:
    """y = x . ones [length, 1], whose input does not say how long its rows have to be."""
    weights = [numpy_helper.from_array(np.ones((length, 1), np.float32), "w")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs = [helper.make_tensor_value_info("x", T.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", T.FLOAT, [shape[0], 1])]
    return saved(file, helper.make_graph([node], "product", inputs, outputs, weights))


def picked(file: Path, first: int) -> Sequence:
    """y = table[x - first]: an error for 0 and 1 unless `first` is 0."""
    tensors = [numpy_helper.from_array(np.arange(4, dtype=np.float32), "table")]
    tensors.append(numpy_helper.from_array(np.array(first, np.int64), "first"))
    nodes = [helper.make_node("Sub", ["x", "first"], ["at"]), helper.make_node("Gather", ["table", "at"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", T.INT64, ["N"])]
    return saved(
        file,
        helper.make_graph(nodes, "picked", inputs, [helper.make_tensor_value_info("y", T.FLOAT, ["N"])], tensors),
    )


def saved(file: Path, graph: Any) -> Sequence:
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), file)
    return Sequence([Onnx(file)])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the first inputs of all calls of models."""
    shapes: list[tuple[int, ...]] = []
    run = OnnxModel.run

    def noted(model: OnnxModel, arrays: Any) -> Any:
        shapes.append(arrays[0].shape)
        return run(model, arrays)

    monkeypatch.setattr(OnnxModel, "run", noted)
    return shapes


def rows(count: int, length: int = 3) -> list[Data]:
    return [Data({"x": np.ones(length, np.float32)}) for _ in range(count)]


def test_a_model_runs_on_the_shapes_of_the_last_batch_before_its_first(
    tmp_path: Path, calls: list[tuple[int, ...]]
) -> None:
    ran = LastShapes()
    with product(tmp_path / "1.onnx", 3).open(ran=ran) as executor:
        executor.run_many(rows(2))
        executor.run_many(rows(5))
    calls.clear()
    with product(tmp_path / "2.onnx", 3).open(ran=ran) as executor:
        # Two samples first, for whether it takes several; not again with the first batch.
        assert calls == [(2, 3), (5, 3), (5, 3)]
        executor.run_many(rows(4))
        assert calls[3:] == [(4, 3)]


def test_a_model_that_runs_records_alone_warms_up_on_one(tmp_path: Path, calls: list[tuple[int, ...]]) -> None:
    ran = LastShapes()
    for number in (1, 2):
        with product(tmp_path / f"{number}.onnx", 3, (1, "M")).open(ran=ran) as executor:
            executor.run_many(rows(2))
    assert calls == [(1, 3)] * 6


def test_a_model_that_cannot_run_on_the_shapes_of_the_last_batch_is_refused(tmp_path: Path) -> None:
    ran = LastShapes()
    with product(tmp_path / "1.onnx", 3).open(ran=ran) as executor:
        executor.run_many(rows(5))
    with pytest.raises(StepError, match=r'2.onnx cannot be run on arrays as the version in use gets, "x" \[5, 3\]: .*'):
        product(tmp_path / "2.onnx", 4).open(ran=ran)
    # As where records are to change, too.
    product(tmp_path / "2.onnx", 4).open(ran=ran.hints()).close()


@pytest.mark.parametrize(("first", "refused"), [(10, False), (0, True)], ids=["as the one before", "unlike it"])
def test_a_model_that_refuses_zeros_as_the_one_before_did_is_not_refused(
    tmp_path: Path, *, first: int, refused: bool
) -> None:
    ran = LastShapes()
    with picked(tmp_path / "1.onnx", first).open(ran=ran) as executor:
        executor.run_many([Data({"x": first + 1})])
    if refused:
        with pytest.raises(StepError, match="restart with it"):
            picked(tmp_path / "2.onnx", 10).open(ran=ran)
    else:
        with picked(tmp_path / "2.onnx", 10).open(ran=ran) as executor:
            assert executor.run(Data({"x": 13}))["y"] == 3.0  # type: ignore[index, call-overload]
