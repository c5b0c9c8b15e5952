"""Tensors in a `Data`, in protobuf and JSON, and into ONNX models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from outcomes import result_of, results_of

import pipelines
from pipelines import Data, Onnx, StepError, tensors
from pipelines.errors import DataError
from pipelines.tensors import RaggedTensor, SparseTensor, StringView, TensorView, from_value
from protos import data_pb2 as pb


def sparse(data: Any) -> None:
    data.put(10.0, 0, 0).put(20.0, 0, 3).put(30.0, 1, 1)


TENSORS: dict[str, Callable[[], tensors.Tensor[Any]]] = {
    "dense": lambda: tensors.dense([2, 3], np.float32, lambda data: data.copy_from(range(6))),
    "a slice": lambda: tensors.view(np.arange(12).reshape(3, 4)).slice(tensors.even(), tensors.excl(1)),
    "strings": lambda: tensors.strings([["a", "bc"], ["", "é\0"]]),
    "one string": lambda: tensors.strings("alone"),
    "no strings": lambda: tensors.strings([[], []]),
    "padded strings": lambda: tensors.dense_string([2], lambda data: data.put("ab", 0), length=4, padding=32),
    "bytes": lambda: tensors.strings([b"\xff", b"ok"]),
    "sparse": lambda: tensors.sparse([2, 4], np.float32, 3, sparse),
    "part of a sparse one": lambda: tensors.sparse([2, 4], np.float32, 3, sparse).slice(1),
    "nothing set": lambda: tensors.sparse([5], np.int8, 0, lambda data: None),
    "sparse strings": lambda: tensors.sparse_string([2, 2], 1, lambda data: data.put("x", 1, 0)),
    "ragged": lambda: tensors.ragged([3, -1], np.float64, lambda data: data.put([[1, 2, 3], [], [4]])),
    "deeply ragged": lambda: tensors.ragged([2, -1, 2, -1], np.int32, lambda data: data.put([[[1], [2, 3]]], 1)),
    "part of a ragged one": lambda: tensors.ragged(
        [2, -1, -1], np.int32, lambda data: data.put([[[1]], [[2, 3], [4]]])
    ).slice(1),
    "ragged strings": lambda: tensors.ragged_string([2, -1], lambda data: data.put(["a", "b"], 1)),
}


def through_protobuf(data: Data) -> Data:
    return Data.from_bytes(data.to_bytes())


def through_json(data: Data) -> Data:
    return Data.from_json(data.to_json())


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize(
    "carried", [lambda data: data, through_protobuf, through_json], ids=["data", "protobuf", "json"]
)
def test_a_tensor_travels_in_a_data(name: str, carried: Callable[[Data], Data]) -> None:
    tensor = TENSORS[name]()
    data = carried(Data({"t": tensor}))
    again = from_value(data["t"])

    assert again.shape == tensor.shape
    if name == "bytes":
        assert again.bytes_of_all() == [b"\xff", b"ok"]  # type: ignore[attr-defined]
        return
    assert list(again.stream()) == list(tensor.stream())
    assert [type(one) for one in again.stream()] == [type(one) for one in tensor.stream()]
    if isinstance(tensor, StringView):
        assert again.fixed == tensor.fixed  # type: ignore[attr-defined]
    if isinstance(tensor, RaggedTensor):
        assert again.to_list() == tensor.to_list()  # type: ignore[attr-defined]
    if isinstance(tensor, SparseTensor):
        np.testing.assert_array_equal(again.indices, tensor.indices)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in TENSORS if name != "bytes"])
def test_a_konduit_reader_finds_values_that_it_knows(name: str) -> None:
    def check(scheme: pb.DataScheme) -> None:
        # Konduit Serving has types 0 to 10, and lists in the members 1 to 8.
        assert scheme.type <= 10
        if scheme.HasField("listValue"):
            assert scheme.listValue.WhichOneof("list") in ("sList", "iList")
        if scheme.HasField("ndValue"):
            assert len(scheme.ndValue.array) == 1
        if scheme.HasField("metaData"):
            assert scheme.metaData.mapItems["tensor"].sValue in ("string", "sparse", "ragged")
            assert not scheme.metaData.metaData
            for inner in scheme.metaData.mapItems.values():
                check(inner)

    data = Data({"t": TENSORS[name]()})
    check(pb.DataMap.FromString(data.to_bytes()).mapItems["t"])
    # Its JSON reader refuses empty arrays; an NDArray's shape is read by other rules.
    plain = json.loads(data.to_json())["t"]
    assert [] not in plain.values()


def test_an_array_read_from_a_message_is_viewed_where_it_is() -> None:
    payload = Data({"x": np.arange(6.0).reshape(2, 3)}).to_bytes()
    array = Data.from_bytes(payload)["x"]
    view = from_value(array)
    assert isinstance(view, TensorView)
    assert np.shares_memory(view.array, array)


def test_lists_of_strings_are_string_tensors() -> None:
    data = through_json(Data({"words": ["a", "b"], "table": [["a"], ["b"]]}))
    assert from_value(data["words"]).get(1) == "b"
    assert from_value(data["table"]).shape == (2, 1)


SPARSE: dict[str, Any] = {
    "tensor": "sparse",
    "shape": [2, 4],
    "indices": np.array([[0, 0], [1, 1]]),
    "values": np.array([1.0, 2.0]),
}
RAGGED: dict[str, Any] = {
    "tensor": "ragged",
    "shape": [2, -1],
    "splits_1": np.array([0, 1, 2]),
    "values": np.arange(2.0),
}
STRING: dict[str, Any] = {"tensor": "string", "shape": [2], "values": ["a", "b"]}


@pytest.mark.parametrize(
    "value",
    [
        5,
        [1, 2],
        {"shape": [2]},
        {"tensor": "dense"},
        {"tensor": 5},
        SPARSE | {"shape": [2]},
        SPARSE | {"shape": [1, 4]},
        SPARSE | {"shape": [2**40, 2**40]},
        SPARSE | {"shape": [2**63 - 1] * 9},
        SPARSE | {"shape": ["a"]},
        SPARSE | {"indices": np.array([[0.0, 0.0], [1.0, 1.0]])},
        SPARSE | {"indices": [[0, 0], [1, 1]]},
        SPARSE | {"indices": np.array([[0, 0]])},
        SPARSE | {"values": np.zeros((2, 1))},
        SPARSE | {"values": SPARSE},
        {key: value for key, value in SPARSE.items() if key != "values"},
        RAGGED | {"shape": [2, 1]},
        RAGGED | {"shape": [-1, -1]},
        RAGGED | {"shape": [2, -1, -1]},
        RAGGED | {"splits_1": np.array([0, 2, 1])},
        RAGGED | {"splits_1": np.array([0, 1, 3])},
        RAGGED | {"splits_1": np.array([0, 1, 2], "i4")},
        RAGGED | {"shape": [2, -1, 2**62, 2**62]},
        STRING | {"shape": [3]},
        STRING | {"shape": [-1]},
        STRING | {"shape": [0, 2**62, 2**62], "values": []},
        STRING | {"values": [1, 2]},
        STRING | {"length": 2**50},
        STRING | {"length": 0},
        STRING | {"length": 4, "padding": 500},
    ],
)
def test_a_value_that_is_no_tensor_is_an_error_not_a_crash(value: Any) -> None:
    data = Data({"t": value})
    with pytest.raises(DataError):
        from_value(data["t"])


def model(path: Path, kind: int, rank: int = 1) -> Path:
    inner = [2] * (rank - 1)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, [None, *inner])],
        [helper.make_tensor_value_info("y", kind, [None, *inner])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(made.SerializeToString())
    return path


def test_a_model_of_strings_takes_string_tensors(tmp_path: Path) -> None:
    step = Onnx(model_uri=str(model(tmp_path / "m.onnx", TensorProto.STRING, rank=2)))
    values = [
        tensors.strings([["a", "b"], ["c", "d"]]),
        tensors.dense_string([1, 2], lambda data: data.put(["é", "f"], 0), length=4),
        tensors.strings(["g", "h"]),
    ]
    with pipelines.Sequence([step]).open() as executor:
        together = results_of(executor.run_many([Data({"x": value}) for value in values]))
        alone = result_of(executor.run(Data({"x": values[0]})))
    assert [one["y"] for one in together] == [[["a", "b"], ["c", "d"]], [["é", "f"]], ["g", "h"]]
    assert alone["y"] == [["a", "b"], ["c", "d"]]


def test_a_model_refuses_sparse_and_ragged_tensors_with_a_hint(tmp_path: Path) -> None:
    step = Onnx(model_uri=str(model(tmp_path / "m.onnx", TensorProto.FLOAT, rank=2)))
    given = tensors.sparse([3, 2], np.float32, 1, lambda data: data.put(5.0, 1, 1))

    def densify(data: Data) -> Data:
        return Data({"x": from_value(data["x"]).to_dense()})  # type: ignore[attr-defined]

    with pipelines.Sequence([step]).open() as executor:
        with pytest.raises(StepError, match=r"holds a sparse tensor; make it dense .*to_dense\(\)"):
            executor.run(Data({"x": given}))
        with pytest.raises(StepError, match="holds a ragged tensor; pad its rows"):
            executor.run(Data({"x": TENSORS["ragged"]()}))
    with pipelines.Sequence([densify, step]).open() as executor:
        assert result_of(executor.run(Data({"x": given})))["y"].tolist() == [[0, 0], [0, 5], [0, 0]]


def test_a_model_of_numbers_refuses_strings(tmp_path: Path) -> None:
    step = Onnx(model_uri=str(model(tmp_path / "m.onnx", TensorProto.FLOAT)))
    with pipelines.Sequence([step]).open() as executor, pytest.raises(StepError, match="takes float32"):
        executor.run(Data({"x": tensors.strings(["a"])}))
