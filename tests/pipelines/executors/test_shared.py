from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pipelines
from pipelines.executors.shared import Shared


def model(path: Path, *, to: str = "y") -> str:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in ("x", to)]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], [to])], "negative", value[:1], value[1:])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opset), path)
    return str(path)


def session(executor: Any, step: int = 0) -> Any:
    return executor._steps[step].runner.model.session


def test_the_first_makes_it_and_the_last_closes_it() -> None:
    shared, closed = Shared(), list[object]()
    first = shared.get("weights", object, closed.append)
    assert shared.get("weights", object, closed.append) is first
    assert shared.find("weights") is first
    for _ in range(2):
        shared.release("weights")
    assert not closed
    shared.release("weights")
    assert closed == [first]
    shared.release("weights")
    assert closed == [first]
    assert not len(shared)
    assert shared.find("weights") is None


def test_what_cannot_be_made_leaves_nothing_behind() -> None:
    shared = Shared()
    with pytest.raises(ZeroDivisionError):
        shared.get("key", lambda: 1 // 0, print)
    assert not len(shared)
    assert shared.get("key", lambda: 7, lambda value: None) == 7


def test_executors_of_a_definition_have_one_session_until_the_last_is_closed(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx")
    inner = pipelines.Sequence([pipelines.Onnx(path)])
    shared, loaded = Shared(), list[str]()
    pipeline = pipelines.Sequence([pipelines.Onnx(path, output_names={"y": "x"}), pipelines.PipelineStep(inner)])
    opened = [pipeline.open(shared=shared, progress=loaded.append) for _ in range(3)]
    assert len({id(session(executor)) for executor in opened}) == 1
    assert opened[0]._steps[1].runner.inside._steps[0].runner.model.session is session(opened[2])  # type: ignore[attr-defined]
    assert loaded == ["loading m.onnx"]
    for executor in opened:
        result = executor.run({"x": np.ones(2, np.float32)})
        assert isinstance(result, pipelines.Data)
        assert result["y"].tolist() == [1, 1]
        executor.close()
        executor.close()
    assert not len(shared)


def test_pipelines_that_are_opened_by_themselves_share_nothing(tmp_path: Path) -> None:
    pipeline = pipelines.Sequence([pipelines.Onnx(model(tmp_path / "m.onnx"))])
    with pipeline.open() as first, pipeline.open() as second:
        assert session(first) is not session(second)


@pytest.mark.parametrize("change", ["options", "file", "graph capture"])
def test_another_file_or_other_options_are_another_session(tmp_path: Path, change: str) -> None:
    path, shared = model(tmp_path / "m.onnx"), Shared()
    other: dict[str, Any] = {}
    if change == "graph capture":
        other = {"providers": ({"cuda": {"enable_cuda_graph": 1}}, "cpu")}
    with pipelines.Sequence([pipelines.Onnx(path, **other)]).open(shared=shared) as first:
        if change == "options":
            other = {"session_options": {"intraOpThreads": 2}}
        elif change == "file":
            model(tmp_path / "m.onnx", to="a longer name")
        with pipelines.Sequence([pipelines.Onnx(path, **other)]).open(shared=shared) as second:
            assert session(first) is not session(second)
    assert not len(shared)


def test_a_step_that_cannot_be_opened_keeps_no_model(tmp_path: Path) -> None:
    shared = Shared()
    for fields in ({"output_names": ["nope"]}, {"inputs": {"nope": "a"}}):
        with pytest.raises(pipelines.StepError):
            pipelines.Sequence([pipelines.Onnx(model(tmp_path / "m.onnx"), **fields)]).open(shared=shared)
    assert not len(shared)


FOUR = """
import numpy as np
import psutil
import pipelines

pipeline, shared, opened, used = pipelines.Sequence([pipelines.Onnx("large.onnx")]), pipelines.Shared(), [], []
for _ in range(4):
    opened.append(pipeline.open(shared=shared))
    opened[-1].run({"x": np.ones(2500, np.float32)})
    used.append(psutil.Process().memory_info().rss)
print(used[3] - used[0])
"""


@pytest.mark.slow
def test_four_executors_take_the_memory_of_one_model(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.ones((2500, 4000), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2500])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4000])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "large", [x], [y], [weights])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=opset), tmp_path / "large.onnx")
    done = subprocess.run([sys.executable, "-c", FOUR], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 0.2 * 40_000_000
