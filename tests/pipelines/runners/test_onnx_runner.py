"""ONNX, on small models made here and run by onnxruntime itself."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from codecsupport import block
from onnx import TensorProto as T
from onnx import helper
from outcomes import result_of, results_of

import pipelines
from connectors.codecs.registry import codec_of
from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn, ObjectColumn, RaggedColumn
from pipelines.data.data import Data
from pipelines.errors import StepError, StreamerError
from pipelines.executors.sequence import SequenceExecutor
from pipelines.runners.models.onnx import OnnxRunner
from pipelines.runners.models.onnxmodel import OnnxModel
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.onnx import Onnx, SessionOptions

Made = Callable[..., SequenceExecutor]


@pytest.fixture
def opened(tmp_path: Path) -> Made:
    """`opened(model, **fields)`: an executor of one ONNX step."""

    def make(model: bytes, **fields: Any) -> SequenceExecutor:
        (tmp_path / "model.onnx").write_bytes(model)
        step = Onnx("model.onnx", **fields)
        return SequenceExecutor([("onnx", step)], OpenContext(base=tmp_path), pipelines.default_registry())

    return make


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any] | None = None) -> bytes:
    tensors = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(*one) for one in outputs],
        tensors,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return made.SerializeToString()


def same(element: int = T.FLOAT, shape: Any = ("N", 3), out: Any = None) -> bytes:
    """y = x."""
    return model([helper.make_node("Identity", ["x"], ["y"])], [("x", element, shape)], [("y", element, out or shape)])


def total(batch: Any = "N", out: Any = "N") -> bytes:
    """y [N] = the sum of each row of x [N, 3]."""
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    return model([node], [("x", T.FLOAT, [batch, 3])], [("y", T.FLOAT, [out])], {"axes": np.array([1])})


def added(a: Any = ("N", 2), b: Any = ("N", 2)) -> bytes:
    """s = a + b, d = a - b."""
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Sub", ["a", "b"], ["d"])]
    return model(nodes, [("a", T.FLOAT, a), ("b", T.FLOAT, b)], [("s", T.FLOAT, ["N", 2]), ("d", T.FLOAT, ["N", 2])])


def f4(*values: Any) -> Any:
    return np.array(values, np.float32)


def runner(executor: SequenceExecutor) -> OnnxRunner:
    found = executor._steps[0].runner
    assert isinstance(found, OnnxRunner)
    return found


def session(executor: SequenceExecutor) -> Any:
    """The session of onnxruntime, which has no types."""
    found = runner(executor).model
    assert isinstance(found, OnnxModel)
    return found.session


def one(executor: SequenceExecutor, **values: Any) -> Data:
    found = executor.run(Data(values))
    assert isinstance(found, Data)
    return found


def failure(executor: SequenceExecutor, **values: Any) -> str:
    (found,) = executor.run_many([Data(values)])
    assert isinstance(found, StepError)
    assert found.step == "onnx"
    return str(found)


# Ranks: k samples, or one


def test_a_record_with_a_sample_axis_gets_one_back(opened: Made) -> None:
    assert one(opened(total()), x=f4([1, 2, 3]))["y"].tolist() == [6.0]
    assert one(opened(total()), x=f4([1, 2, 3], [4, 5, 6]))["y"].tolist() == [6.0, 15.0]


def test_a_record_without_a_sample_axis_is_one_sample_and_gets_none_back(opened: Made) -> None:
    found = one(opened(total()), x=f4(1, 2, 3))["y"]
    assert (found.shape, found.dtype, float(found)) == ((), np.float32, 6.0)
    assert one(opened(same()), x=f4(1, 2, 3))["y"].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("shape", [(5, 3), (5, 1, 3), (5, 2, 3)])
def test_dense_arrays_go_in_and_come_out_as_one_array(opened: Made, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    column = opened(total()).run_batch(Batch({"x": DenseColumn(array)}, 5)).batch["y"]
    assert isinstance(column, DenseColumn)
    assert column.array.tolist() == array.sum(axis=-1).tolist()


def test_records_with_different_numbers_of_samples_come_out_ragged(opened: Made) -> None:
    datas = [Data({"x": np.full((k, 3), k, np.float32)}) for k in (2, 0, 3)]
    executor = opened(total())
    column = executor.run_batch(Batch.of(datas)).batch["y"]
    assert isinstance(column, RaggedColumn)
    assert [value.tolist() for value in column.values()] == [[6.0, 6.0], [], [9.0] * 3]
    assert executor.run_many(datas)[2] == Data({"y": f4(9, 9, 9)})


def test_records_of_different_ranks_and_shapes_share_a_batch(opened: Made) -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    executor = opened(model([node], [("x", T.FLOAT, ["N", "M"])], [("y", T.FLOAT, ["N"])], {"axes": np.array([1])}))
    inputs = [f4(1, 2), f4([1, 2], [3, 4]), f4(1, 2, 3), f4([1], [2], [3]), f4(5, 5)]
    found = results_of(executor.run_many([Data({"x": value}) for value in inputs]))
    assert [data["y"].tolist() for data in found] == [3.0, [3.0, 7.0], 6.0, [1.0, 2.0, 3.0], 10.0]


def test_a_scalar_is_a_sample_of_one_element(opened: Made) -> None:
    executor = opened(same(shape=["N", 1]))
    assert one(executor, x=2.5)["y"].tolist() == [2.5]
    assert one(executor, x=2)["y"].tolist() == [2.0]
    batch = executor.run_batch(Batch.of([Data({"x": 1.5}), Data({"x": 2.5})])).batch
    assert isinstance(batch["y"], DenseColumn)
    assert batch["y"].array.tolist() == [[1.5], [2.5]]


def test_a_model_of_rank_one_takes_scalars_and_vectors(opened: Made) -> None:
    executor = opened(same(shape=["N"]))
    assert one(executor, x=2.5)["y"].shape == ()
    assert one(executor, x=f4(1, 2))["y"].tolist() == [1.0, 2.0]


# Several inputs and outputs


def test_several_inputs_and_outputs_go_by_the_models_names(opened: Made) -> None:
    found = one(opened(added()), b=f4(1, 2), a=f4(10, 20), other="not passed on")
    assert found == Data({"s": f4(11, 22), "d": f4(9, 18)})


def test_only_the_named_outputs_are_fetched_in_that_order(opened: Made) -> None:
    assert list(one(opened(added(), output_names=["d"]), a=f4(1, 2), b=f4(1, 2))) == ["d"]
    assert list(one(opened(added(), output_names=["d", "s"]), a=f4(1, 2), b=f4(1, 2))) == ["d", "s"]


def test_a_mapping_renames_inputs_and_outputs(opened: Made) -> None:
    executor = opened(added(), input_names={"a": "left"}, output_names={"s": "sum"})
    assert executor.reads == frozenset({"left", "b"})
    assert one(executor, left=f4(1, 2), b=f4(1, 2), a="in the way") == Data({"sum": f4(2, 4)})


def test_inputs_that_bring_different_numbers_of_samples_fail_their_record_alone(opened: Made) -> None:
    datas = [
        Data({"a": f4([1, 1]), "b": f4([1, 1])}),
        Data({"a": f4([1, 1], [2, 2]), "b": f4([1, 1])}),
        Data({"a": f4([1, 1], [2, 2]), "b": f4([1, 1], [2, 2])}),
        Data({"a": f4(1, 1), "b": f4([1, 1])}),
    ]
    found = opened(added()).run_many(datas)
    assert 'different numbers of samples: "a" 2, "b" 1' in str(found[1])
    assert [data["s"].shape for data in found if isinstance(data, Data)] == [(1, 2), (2, 2), (1, 2)]
    assert isinstance(opened(added()).run_many(datas[1:2])[0], StepError)


def test_ragged_inputs_that_agree_run_together(opened: Made) -> None:
    datas = [Data({"a": np.ones((k, 2), "f4"), "b": np.ones((k, 2), "f4")}) for k in (1, 3)]
    column = opened(added()).run_batch(Batch.of(datas)).batch["s"]
    assert isinstance(column, RaggedColumn)
    assert [len(value) for value in column.values()] == [1, 3]


# Names


def test_a_model_with_one_input_takes_the_only_array_under_any_name(opened: Made) -> None:
    executor = opened(total())
    assert one(executor, features=f4(1, 2, 3), label="text", n=5)["y"] == 6.0
    found = executor.run_many([Data({"a": f4(1, 2, 3)}), Data({"b": f4([1, 2, 3])}), Data({"x": f4(1, 1, 1)})])
    assert [data["y"].tolist() for data in results_of(found)] == [6.0, [6.0], 3.0]


def test_the_models_name_is_preferred_to_any_other_array(opened: Made) -> None:
    assert one(opened(total()), a=f4(9, 9, 9), x=f4(1, 2, 3))["y"] == 6.0


def test_two_arrays_under_other_names_are_ambiguous(opened: Made) -> None:
    assert "it has several: a, b" in failure(opened(total()), a=f4(1, 2, 3), b=f4(1, 2, 3))


def test_a_missing_input_is_an_error_that_names_it(opened: Made) -> None:
    assert "; there are text; the model" in failure(opened(total()), text="a")
    executor = opened(added())
    assert 'Value not found for key "b"; there are a, c' in failure(executor, a=f4(1, 2), c=1)
    found = executor.run_many([Data({"a": f4(1, 2), "b": f4(1, 2)}), Data({"a": f4(1, 2)})])
    assert found[0] == Data({"s": f4(2, 4), "d": f4(0, 0)})
    assert 'Value not found for key "b"' in str(found[1])


# Wrong shapes and types


def test_a_record_of_another_shape_fails_alone_and_says_what_is_needed(opened: Made) -> None:
    found = opened(total()).run_many([Data({"x": f4(1, 2, 3)}), Data({"x": f4(1, 2)}), Data({"x": f4(1, 1, 1)})])
    assert [data["y"] for data in results_of([found[0], found[2]])] == [6.0, 3.0]
    assert str(found[1]).endswith(
        'input "x" takes float32 [N, 3], but key "x" holds float32 [2]; axis 1 must have the length 3'
    )


def test_records_of_other_lengths_do_not_keep_the_rest_from_going_together(opened: Made) -> None:
    column = Column.of([f4(1, 2, 3), f4(1, 2), f4(1, 1, 1), f4(1, 2, 3, 4), f4(0, 0, 1)])
    assert isinstance(column, RaggedColumn)
    result = opened(total()).run_batch(Batch({"x": column}, 5))
    assert sorted(result.failed) == [1, 3]
    assert "holds float32 [2]" in str(result.failed[1])
    assert "holds float32 [4]" in str(result.failed[3])
    y = result.batch["y"]
    assert isinstance(y, DenseColumn)
    assert y.array.tolist() == [6.0, 3.0, 1.0]
    assert result.batch.rows.tolist() == [0, 2, 4]


def test_a_batch_of_another_shape_fails_without_running_the_model(opened: Made) -> None:
    result = opened(total()).run_batch(Batch({"x": DenseColumn(np.zeros((4, 5), "f4"))}, 4))
    assert sorted(result.failed) == [0, 1, 2, 3]
    assert "holds float32 [5]" in str(result.failed[3])


def test_a_record_of_another_rank_fails(opened: Made) -> None:
    assert "2 or 1 dimensions are needed" in failure(opened(total()), x=np.zeros((1, 1, 3), "f4"))
    ragged = [Data({"x": np.zeros((k, 1, 3), "f4")}) for k in (1, 2)]
    assert all("2 or 1 dimensions" in str(error) for error in opened(total()).run_many(ragged))


def test_ragged_samples_of_another_shape_fail(opened: Made) -> None:
    datas = [Data({"x": np.zeros((k, 4), "f4")}) for k in (1, 2)]
    assert all("axis 1 must have the length 3" in str(error) for error in opened(total()).run_many(datas))


@pytest.mark.parametrize("value", ["text", b"bytes", ["a", "b", "c"], Data({"n": 1}), [[1.0, 2.0], [3.0]]])
def test_values_that_are_no_arrays_fail_their_record(opened: Made, value: Any) -> None:
    found = opened(total()).run_many([Data({"x": f4(1, 2, 3)}), Data({"x": value})])
    assert isinstance(found[0], Data)
    assert isinstance(found[1], StepError)
    assert '"x"' in str(found[1])


@pytest.mark.parametrize(
    ("given", "element"),
    [
        (np.float64, T.FLOAT),
        (np.float16, T.FLOAT),
        (np.int64, T.FLOAT),
        (np.uint8, T.FLOAT),
        (np.bool_, T.FLOAT),
        (">f4", T.FLOAT),
        (np.float32, T.DOUBLE),
        (np.float32, T.FLOAT16),
        (np.int32, T.INT64),
        (np.int64, T.INT32),
        (np.uint8, T.INT8),
        (np.bool_, T.INT64),
    ],
)
def test_numbers_are_converted_where_their_values_survive(opened: Made, given: Any, element: int) -> None:
    wanted = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    executor = opened(same(element))
    array = np.array([[0, 1, 1], [1, 0, 0]]).astype(given)
    found = executor.run_batch(Batch({"x": DenseColumn(array)}, 2)).batch["y"]
    assert isinstance(found, DenseColumn)
    assert found.array.dtype == wanted
    assert found.array.tolist() == array.astype(wanted).tolist()
    assert one(executor, x=array)["y"].tolist() == array.astype(wanted).tolist()


@pytest.mark.parametrize(("given", "element"), [(np.float32, T.INT64), (np.int64, T.BOOL), (np.float32, T.BOOL)])
def test_numbers_that_would_lose_their_meaning_are_refused(opened: Made, given: Any, element: int) -> None:
    array = np.array([0, 1, 1]).astype(given)
    assert "send that type, or set castInputs" in failure(opened(same(element)), x=array)
    wanted = array.astype(helper.tensor_dtype_to_np_dtype(element)).tolist()
    assert one(opened(same(element), cast_inputs=True), x=array)["y"].tolist() == wanted


def test_a_number_for_a_model_of_texts_is_not_told_of_a_cast_that_cannot_be(opened: Made) -> None:
    told = failure(opened(same(T.STRING, ["N", 1])), x=5)
    assert told.endswith('input "x" takes string [N, 1], but key "x" holds int64 []; send that type')


def test_an_element_type_that_no_record_holds_is_told_with_what_helps(opened: Made) -> None:
    told = '"x" is a tensor(bfloat16), which cannot be put into a record; export it of float32, for instance'
    with pytest.raises(StepError, match=re.escape(told) + "$"):
        opened(same(T.BFLOAT16))


def test_the_error_of_a_record_is_not_written_to_stderr_too(opened: Made, capfd: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    table = {"table": np.zeros((5, 2), np.float32)}
    executor = opened(model([node], [("x", T.INT64, ["N", 1])], [("y", T.FLOAT, ["N", 1, 2])], table))
    found = executor.run_many([Data({"x": np.array([one])}) for one in (1, 9, 2)])
    assert "idx=9 must be within the inclusive range" in str(found[1])
    assert len(results_of(found[::2])) == 2
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("element", "bad", "good"), [(T.FLOAT, 1e300, np.inf), (T.INT8, 300, 100), (T.FLOAT16, 7e4, 6e4)]
)
def test_values_beyond_the_range_fail_their_record_alone(opened: Made, element: int, bad: Any, good: Any) -> None:
    array = np.array([[1, 2, good], [1, 2, bad], [1, 2, 3]])
    executor = opened(same(element))
    for batch in (
        Batch({"x": DenseColumn(array)}, 3),
        Batch({"x": RaggedColumn(array, np.array([0, 1, 3]))}, 2),
        Batch({"x": ObjectColumn([array[:1], array[1], array[2]])}, 3),
    ):
        result = executor.run_batch(batch)
        assert list(result.failed) == [1]
        assert "values beyond its range" in str(result.failed[1])
        assert result.batch["y"][0].ravel().tolist() == [1.0, 2.0, good]


@pytest.mark.parametrize(("bad", "good"), [(2.0**63, -(2.0**63)), (np.inf, 2.0**62), (np.nan, 0.0), (1e300, 1.0)])
def test_floats_beyond_64_bits_fail_where_integers_are_asked_for(opened: Made, bad: float, good: float) -> None:
    for given in ("f8", "f4"):
        with np.errstate(over="ignore"):
            array = np.array([[1, 2, bad], [1, 2, good]]).astype(given)
        result = opened(same(T.INT64), cast_inputs=True).run_batch(Batch({"x": DenseColumn(array)}, 2))
        assert list(result.failed) == [0]
        assert result.batch["y"][0].tolist() == [1, 2, int(good)]
    unsigned = opened(same(T.UINT64), cast_inputs=True).run_many(
        [Data({"x": np.array([0, 1, 2.0**64])}), Data({"x": np.array([0, 1, 2.0**63])})]
    )
    assert isinstance(unsigned[0], StepError)
    assert isinstance(unsigned[1], Data)
    assert unsigned[1]["y"].tolist() == [0, 1, 2**63]


def test_a_list_with_a_number_that_the_model_cannot_take_fails_its_record_alone(opened: Made) -> None:
    found = opened(total()).run_many([Data({"x": [1.0, 2.0, 1e300]}), Data({"x": [1.0, 2.0, 3.0]})])
    assert isinstance(found[0], StepError)
    assert 'takes float32 [N, 3], but key "x" holds float64 values beyond its range' in str(found[0])
    assert isinstance(found[1], Data)
    # Where the model asks for more there is nothing to lose.
    assert one(opened(same(T.DOUBLE)), x=[1.0, 2.0, 1e300])["y"].tolist() == [1.0, 2.0, 1e300]


def test_lists_of_numbers_are_arrays(opened: Made) -> None:
    executor = opened(total())
    assert one(executor, x=[1, 2, 3])["y"] == 6.0
    assert one(executor, x=[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])["y"].tolist() == [6.0, 15.0]


def test_lists_keep_the_precision_that_the_model_asks_for(opened: Made) -> None:
    large = 2**53 - 1
    assert one(opened(same(T.INT64)), x=[large, 1, 2])["y"].tolist() == [large, 1, 2]
    assert one(opened(same(T.DOUBLE)), x=[0.1, 0.2, 0.3])["y"].tolist() == [0.1, 0.2, 0.3]
    assert one(opened(same(T.BOOL)), x=[True, False, True])["y"].tolist() == [True, False, True]
    assert "send that type" in failure(opened(same(T.INT64)), x=[0.5, 1.0, 2.0])


def test_half_precision_goes_in_and_comes_out(opened: Made) -> None:
    found = one(opened(same(T.FLOAT16)), x=np.array([0.5, 1, 2], np.float16))["y"]
    assert (found.dtype, found.tolist()) == (np.float16, [0.5, 1.0, 2.0])


def test_brain_floats_are_widened(opened: Made) -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    found = one(opened(same()), x=np.array([0.5, 1, 2], bfloat16))["y"]
    assert (found.dtype, found.tolist()) == (np.float32, [0.5, 1.0, 2.0])
    assert "send that type" in failure(opened(same(T.INT64)), x=np.array([0.5, 1, 2], bfloat16))


# Strings


def test_strings_go_in_and_come_out(opened: Made) -> None:
    executor = opened(same(T.STRING, ["N"]))
    batch = executor.run_batch(Batch.of([Data({"x": "a"}), Data({"x": "b"})])).batch
    assert [data["y"] for data in batch.to_list()] == ["a", "b"]
    assert one(executor, x=["a", "b", "c"])["y"] == ["a", "b", "c"]
    found = executor.run_many([Data({"x": "a"}), Data({"x": ["b", "c"]}), Data({"x": 5})])
    assert found[:2] == [Data({"y": "a"}), Data({"y": ["b", "c"]})]
    assert "takes string [N]" in str(found[2])


def test_lists_of_strings_are_arrays_of_strings(opened: Made) -> None:
    executor = opened(same(T.STRING, ["N", 2]))
    assert one(executor, x=["a", "b"])["y"] == ["a", "b"]
    assert one(executor, x=[["a", "b"], ["c", "d"]])["y"] == [["a", "b"], ["c", "d"]]
    datas = [Data({"x": [["a", "b"]] * k}) for k in (1, 2)]
    assert [data["y"] for data in results_of(executor.run_many(datas))] == [data["x"] for data in datas]
    assert one(opened(same(T.STRING, ["N", 1])), x="a")["y"] == ["a"]
    assert "lists of equal lengths" in failure(executor, x=[["a", "b"], ["c"]])
    assert 'takes string [N, 2], but key "x" holds string [3]; axis 1' in failure(executor, x=["a", "b", "c"])


# Models without a batch axis


def test_a_fixed_batch_of_one_runs_records_one_by_one(opened: Made) -> None:
    executor = opened(total(1, 1))
    found = executor.run_many([Data({"x": f4(1, 2, 3)}), Data({"x": f4([1, 1, 1])}), Data({"x": f4([1, 1, 1]) * 2})])
    assert [data["y"].tolist() for data in results_of(found)] == [6.0, [3.0], [6.0]]


def test_one_by_one_a_bad_record_fails_alone(opened: Made) -> None:
    result = opened(total(1, 1)).run_batch(
        Batch.of([Data({"x": f4(1, 2, 3)}), Data({"x": f4([1, 1, 1], [2, 2, 2])}), Data({"x": f4(1, 1, 1)})], first=5)
    )
    assert result.rows.tolist() == [5, 7]
    assert "axis 0 must have the length 1" in str(result.failed[6])


def test_a_fixed_batch_of_more_takes_any_number_of_records(opened: Made) -> None:
    executor = opened(total(4, 4))
    assert runner(executor).fixed_batch == 4
    for count in (1, 4, 7, 8):
        found = results_of(executor.run_many([Data({"x": f4(row, 1, 1)}) for row in range(count)]))
        assert [float(data["y"]) for data in found] == [row + 2.0 for row in range(count)]


def test_the_samples_that_calls_of_a_fixed_batch_are_filled_up_with_are_counted(opened: Made) -> None:
    executor = opened(total(4, 4), warm_up=True)
    for count in (1, 4, 6):
        executor.run_many([Data({"x": f4(row, 1, 1)}) for row in range(count)])
    filled = executor.metrics["onnx"]["streamer_model_filled"]
    assert filled.reading().samples == [((), 3 + 2)]


def test_a_fixed_batch_takes_records_of_any_number_of_samples(opened: Made) -> None:
    executor = opened(total(4, 4))
    assert one(executor, x=f4([1, 2, 3]))["y"].tolist() == [6.0]
    assert one(executor, x=f4(*([row, 0, 0] for row in range(4))))["y"].tolist() == [0.0, 1.0, 2.0, 3.0]
    lengths = (5, 1, 0, 4)
    found = results_of(executor.run_many([Data({"x": np.full((k, 3), k, np.float32)}) for k in lengths]))
    assert [data["y"].tolist() for data in found] == [[3.0 * k] * k for k in lengths]


def test_a_fixed_batch_may_have_several_inputs_and_a_limit_of_its_own(opened: Made) -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["s"])]
    inputs = [("a", T.FLOAT, [4, 2]), ("b", T.FLOAT, [4, 2])]
    # An output whose length is open, as exporters often leave it.
    executor = opened(model(nodes, inputs, [("s", T.FLOAT, ["M", 2])]), max_batch=3, warm_up=True)
    found = results_of(executor.run_many([Data({"a": f4(row, 1), "b": f4(1, 1)}) for row in range(6)]))
    assert [data["s"].tolist() for data in found] == [[row + 1.0, 2.0] for row in range(6)]


def test_a_fixed_batch_of_strings_is_filled_up_too(opened: Made) -> None:
    found = results_of(
        opened(same(T.STRING, [2, 1])).run_many([Data({"x": ["a"]}), Data({"x": ["b"]}), Data({"x": ["c"]})])
    )
    assert [data["y"] for data in found] == [["a"], ["b"], ["c"]]


def test_a_record_of_a_fixed_batch_that_has_another_shape_fails_alone(opened: Made) -> None:
    executor = opened(total(4, 4))
    good, bad = executor.run_many([Data({"x": f4(1, 2, 3)}), Data({"x": f4(1, 2)})])
    assert isinstance(good, Data)
    assert float(good["y"]) == 6.0
    assert isinstance(bad, StepError)


def test_equal_first_lengths_of_a_matrix_are_no_batch(opened: Made) -> None:
    nodes = [helper.make_node("MatMul", ["x", "x"], ["y"])]
    executor = opened(model(nodes, [("x", T.FLOAT, [4, 4])], [("y", T.FLOAT, [4, 4])]))
    assert runner(executor).fixed_batch is None
    state = 2 * np.eye(4, dtype=np.float32)
    found = results_of(executor.run_many([Data({"x": state}), Data({"x": 2 * state})]))
    assert [data["y"].tolist() for data in found] == [(4 * np.eye(4)).tolist(), (16 * np.eye(4)).tolist()]
    assert "axis 0 must have the length 4" in failure(executor, x=f4(1, 2, 3, 4))


def test_a_model_of_rank_one_and_a_fixed_length_takes_whole_records(opened: Made) -> None:
    softmax = model([helper.make_node("Softmax", ["x"], ["y"])], [("x", T.FLOAT, [3])], [("y", T.FLOAT, [3])])
    for made in (softmax, same(shape=[3])):
        found = results_of(opened(made).run_many([Data({"x": f4(1, 1, 1)}), Data({"x": f4(2, 2, 2)})]))
        assert [data["y"].shape for data in found] == [(3,), (3,)]


@pytest.mark.parametrize("out", [[], None])
def test_an_output_without_a_batch_axis_belongs_to_its_record(opened: Made, out: Any) -> None:
    node = helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0)
    executor = opened(model([node], [("x", T.FLOAT, ["N", 3])], [("y", T.FLOAT, out)]))
    found = executor.run_many([Data({"x": f4(1, 2, 3)}), Data({"x": f4([2, 2, 2], [4, 4, 4])})])
    assert [data["y"].tolist() for data in results_of(found)] == [2.0, 3.0]


def test_outputs_whose_length_depends_on_the_record_stay_with_it(opened: Made) -> None:
    # Like a detector: as many outputs as values that are not zero, for a whole batch.
    node = helper.make_node("NonZero", ["x"], ["t"])
    turned = helper.make_node("Transpose", ["t"], ["y"])
    executor = opened(model([node, turned], [("x", T.FLOAT, ["N", 3])], [("y", T.INT64, ["M", 2])]))
    datas = [
        Data({"x": f4([1, 0, 0])}),
        Data({"x": f4([0, 1, 0])}),
        Data({"x": f4([1, 1, 1])}),
        Data({"x": f4(0, 0, 5)}),
    ]
    found = [data["y"].tolist() for data in results_of(executor.run_many(datas))]
    assert found == [[[0, 0]], [[0, 1]], [[0, 0], [0, 1], [0, 2]], [[0, 2]]]


def test_an_output_that_stops_following_the_batch_is_never_given_to_the_wrong_record(
    opened: Made, caplog: pytest.LogCaptureFixture
) -> None:
    # y = the rows of x whose first value is not negative: zeros follow the batch, these do not.
    nodes = [
        helper.make_node("Gather", ["x", "first"], ["f"], axis=1),
        helper.make_node("GreaterOrEqual", ["f", "zero"], ["keep"]),
        helper.make_node("Compress", ["x", "keep"], ["y"], axis=0),
    ]
    constants = {"first": np.array(0), "zero": np.array(0, np.float32)}
    executor = opened(model(nodes, [("x", T.FLOAT, ["N", 3])], [("y", T.FLOAT, ["M", 3])], constants))
    datas = [Data({"x": f4([1, 1, 1])}), Data({"x": f4([-2, 2, 2])}), Data({"x": f4([3, 3, 3])})]
    with caplog.at_level(logging.INFO):
        found = executor.run_many(datas)
    assert [data["y"].tolist() for data in results_of(found)] == [[[1, 1, 1]], [], [[3, 3, 3]]]
    assert 'records run one by one: 3 samples gave an output "y" of the shape [2, 3]' in caplog.text


def test_outputs_of_parts_of_a_batch_that_add_up_by_chance_are_not_taken_for_the_batch(opened: Made) -> None:
    # y = the rows of x whose first value is not negative, then again those above 5: zeros follow the batch.
    nodes = [helper.make_node("Gather", ["x", "first"], ["f"], axis=1)]
    for kept, compare, bound in (("a", "GreaterOrEqual", "zero"), ("b", "Greater", "five")):
        nodes.append(helper.make_node(compare, ["f", bound], [f"keep_{kept}"]))
        nodes.append(helper.make_node("Compress", ["x", f"keep_{kept}"], [kept], axis=0))
    nodes.append(helper.make_node("Concat", ["a", "b"], ["y"], axis=0))
    constants = {"first": np.array(0), "zero": np.array(0, np.float32), "five": np.array(5, np.float32)}
    executor = opened(model(nodes, [("x", T.FLOAT, ["N", 2])], [("y", T.FLOAT, ["M", 2])], constants), max_batch=1)
    found = executor.run_many([Data({"x": f4(-1, 0)}), Data({"x": f4(7, 0)})])
    assert [data["y"].tolist() for data in results_of(found)] == [[], [[7, 0], [7, 0]]]


def test_a_model_that_says_it_takes_batches_but_does_not_runs_one_by_one(opened: Made) -> None:
    # As exported with a fixed number in a Reshape.
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    model_bytes = model(
        [node], [("x", T.FLOAT, ["N", 4])], [("y", T.FLOAT, ["N", 2, 2])], {"shape": np.array([1, 2, 2])}
    )
    found = opened(model_bytes).run_many([Data({"x": np.arange(4, dtype="f4") + n}) for n in range(3)])
    assert [data["y"].tolist() for data in results_of(found)] == [[[n, n + 1], [n + 2, n + 3]] for n in range(3)]


def test_open_shapes_are_tried_with_the_first_batch(opened: Made) -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    model_bytes = model(
        [node], [("x", T.FLOAT, ["N", "M"])], [("y", T.FLOAT, ["N", 2, 2])], {"shape": np.array([1, 2, 2])}
    )
    found = opened(model_bytes).run_many([Data({"x": np.arange(4, dtype="f4") + n}) for n in range(3)])
    assert [data["y"][0, 0] for data in results_of(found)] == [0, 1, 2]


def test_a_model_of_unknown_rank_takes_arrays_as_they_are_one_by_one(opened: Made) -> None:
    executor = opened(same(shape=None))
    inputs = [f4(1, 2), np.zeros((2, 3), "f4"), f4([1, 2]), np.array(5, np.float32)]
    found = results_of(executor.run_many([Data({"x": value}) for value in inputs]))
    assert [data["y"].shape for data in found] == [value.shape for value in inputs]


def test_an_input_that_is_the_same_for_all_does_not_stop_the_others(opened: Made) -> None:
    executor = opened(added(b=()))
    assert one(executor, a=f4(1, 2), b=2.0)["s"].tolist() == [3.0, 4.0]
    assert one(executor, a=f4([1, 2], [3, 4]), b=2.0)["s"].tolist() == [[3.0, 4.0], [5.0, 6.0]]


# Batches and options


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_a_largest_batch_changes_no_result(opened: Made, most: int) -> None:
    datas = [Data({"a": np.full((k, 2), k, "f4"), "b": np.ones((k, 2), "f4")}) for k in (1, 3, 0, 4)]
    found = opened(added(), max_batch=most).run_many(datas)
    assert found == opened(added()).run_many(datas)


def test_metadata_stays_and_other_values_do_not(opened: Made) -> None:
    found = opened(total()).run(Data({"x": f4(1, 2, 3), "other": 1}, metadata={"camera": "door"}))
    assert isinstance(found, Data)
    assert list(found) == ["y"]
    assert found.metadata == Data({"camera": "door"})


def test_an_error_while_the_model_runs_is_found_by_halves(opened: Made) -> None:
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    executor = opened(
        model([node], [("x", T.INT64, ["N"])], [("y", T.FLOAT, ["N"])], {"table": np.arange(4, dtype="f4")})
    )
    result = executor.run_batch(Batch({"x": Column.of([0, 1, 9, 3])}, 4))
    assert list(result.failed) == [2]
    assert result.batch["y"].values() == [0, 1, 3]


@pytest.mark.parametrize("warm_up", [True, 8])
def test_warming_up_changes_nothing_but_the_time(opened: Made, warm_up: Any) -> None:
    assert one(opened(total(), warm_up=warm_up), x=f4(1, 2, 3))["y"] == 6.0
    assert one(opened(total(1, 1), warm_up=warm_up), x=f4(1, 2, 3))["y"] == 6.0
    assert one(opened(same(shape=("N", "M")), warm_up=warm_up), x=f4(1, 2))["y"].tolist() == [1.0, 2.0]


def test_session_options_reach_the_session(opened: Made) -> None:
    options = SessionOptions(
        intra_op_threads=2, inter_op_threads=2, graph_optimization="basic", config={"session.set_denormal_as_zero": "1"}
    )
    found = session(opened(total(), session_options=options)).get_session_options()
    assert found.intra_op_num_threads == 2
    assert found.inter_op_num_threads == 2
    assert found.get_session_config_entry("session.set_denormal_as_zero") == "1"
    assert found.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_one_thread_that_does_not_spin_is_the_default(opened: Made) -> None:
    found = session(opened(total())).get_session_options()
    assert found.intra_op_num_threads == 1
    assert found.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    spinning = opened(total(), session_options=SessionOptions(spinning=True))
    found = session(spinning).get_session_options()
    assert found.get_session_config_entry("session.intra_op.allow_spinning") == "1"


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("providers", [["cpu"], ["CPUExecutionProvider"], [{"cpu": {}}], ["cpu", "cpu"]])
def test_providers_go_by_short_or_full_names(opened: Made, providers: Any) -> None:
    assert session(opened(total(), providers=providers)).get_providers() == ["CPUExecutionProvider"]


def test_a_provider_that_is_not_there_is_an_error(opened: Made) -> None:
    with pytest.raises(StepError, match=r'asks for NopeProvider.*this onnxruntime has.*change "providers"'):
        opened(total(), providers=["NopeProvider"])


def test_a_misspelt_provider_is_told_with_the_nearest_short_name_and_a_right_one_with_none(opened: Made) -> None:
    with pytest.raises(StepError, match=r'asks for cudda; did you mean "cuda"\?; this onnxruntime has'):
        opened(total(), providers=["cudda"])
    with pytest.raises(StepError, match="asks for DmlExecutionProvider; this onnxruntime has"):
        opened(total(), providers=["directml"])


def test_a_provider_that_is_not_there_is_passed_over_if_another_is_listed(
    opened: Made, caplog: pytest.LogCaptureFixture
) -> None:
    executor = opened(total(), providers=["NopeProvider", "cpu"])
    assert one(executor, x=f4(1, 2, 3))["y"] == 6.0
    assert "NopeProvider not available, using CPUExecutionProvider" in caplog.text


def test_loading_is_reported(tmp_path: Path) -> None:
    (tmp_path / "digits.onnx").write_bytes(total())
    said: list[str] = []
    OnnxRunner(Onnx("digits.onnx"), OpenContext(base=tmp_path, progress=said.append))
    assert said == ["loading digits.onnx"]


# What is wrong with a model is said when it opens


def opening(tmp_path: Path, **fields: Any) -> str:
    with pytest.raises(StreamerError) as caught:
        OnnxRunner(Onnx(**fields), OpenContext(base=tmp_path))
    return str(caught.value)


def test_a_model_that_is_not_there_is_an_error_that_names_the_path(tmp_path: Path) -> None:
    assert f"the model {tmp_path / 'nope.onnx'} is not there" in opening(tmp_path, model_uri="nope.onnx")
    assert "is a folder" in opening(tmp_path, model_uri=str(tmp_path))
    assert 'set "modelUri"' in opening(tmp_path)
    assert 'nothing can fetch the model "ftp://a/m.onnx" (there are az, file, gs, hf, http, https, s3)' in opening(
        tmp_path, model_uri="ftp://a/m.onnx"
    )


def test_a_file_that_is_no_model_is_an_error_that_names_file_and_reason(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    message = opening(tmp_path, model_uri="file:bad.onnx")
    assert f"the model {tmp_path / 'bad.onnx'} cannot be loaded: " in message
    assert "ONNXRuntimeError" not in message
    assert message[-1] != " "


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "it is an empty file"),
        (added()[:-1], f"not all of one ({len(added()) - 1} bytes): was it copied to its end?"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "git lfs pull"),
        (b"<!DOCTYPE html><html></html>", "a web page"),
        (b"PK\x03\x04" + bytes(100), "a ZIP archive, as models of PyTorch and Keras are: export it as ONNX"),
        (b"\x80\x04\x95abc", "a Python pickle"),
        (b"\x89HDF\r\n\x1a\n" + bytes(50), "use the step KERAS"),
    ],
)
def test_the_error_for_a_file_that_is_no_onnx_model_says_what_the_file_is(
    tmp_path: Path, content: bytes, told: str
) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    message = opening(tmp_path, model_uri="m.onnx")
    assert told in message
    assert "INVALID" not in message


def test_the_reason_of_onnxruntime_is_told_without_places_in_its_source(tmp_path: Path) -> None:
    model = onnx.load_from_string(added())
    model.ir_version = 99
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    message = opening(tmp_path, model_uri="m.onnx")
    assert message.startswith(f"the model {tmp_path / 'm.onnx'} cannot be loaded: Unsupported model IR version: 99")


def test_names_that_the_model_lacks_are_errors_that_list_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(added())
    message = opening(tmp_path, model_uri="m.onnx", output_names=["sum"])
    assert 'the model has no output "sum"; it has s, d' in message
    message = opening(tmp_path, model_uri="m.onnx", input_names={"c": "x"})
    assert 'the model has no input "c"; it has a, b' in message


def test_a_list_of_input_names_has_no_effect_as_in_konduit(opened: Made) -> None:
    assert one(opened(total(), input_names=["anything"]), x=f4(1, 2, 3))["y"] == 6.0


def test_outputs_that_no_record_can_hold_must_be_left_out(opened: Made) -> None:
    sequence_of = helper.make_tensor_sequence_value_info("s", T.FLOAT, None)
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["s"]), helper.make_node("Identity", ["x"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, ["N", 3])],
        [sequence_of, helper.make_tensor_value_info("y", T.FLOAT, ["N", 3])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    with pytest.raises(StepError, match=r'"s" is a seq\(tensor\(float\)\).*name the outputs to fetch'):
        opened(made.SerializeToString())
    assert one(opened(made.SerializeToString(), output_names=["y"]), x=f4(1, 2, 3))["y"].tolist() == [1, 2, 3]


class Watched:
    """The model's session; notes how many samples each call brings."""

    def __init__(self, session: Any) -> None:
        self.sizes: list[int] = []
        self._session = session

    def run(self, names: list[str], feed: dict[str, Any], options: Any) -> Any:
        self.sizes.append(len(feed["x"]))
        return self._session.run(names, feed, options)


@pytest.mark.parametrize(
    ("shape", "max_batch", "sizes"), [((3,), None, [4, 4, 2]), ((2, 3), None, [8, 8, 4]), ((3,), 3, [3, 3, 3, 1])]
)
def test_a_model_that_is_told_so_works_on_few_records_at_a_time(
    opened: Made, shape: tuple[int, ...], max_batch: int | None, sizes: list[int]
) -> None:
    executor = opened(same(), max_batch=max_batch)
    runner: Any = executor._steps[0].runner
    assert executor.limit(4)
    runner.model.session = watched = Watched(runner.model.session)
    arrays = [np.full(shape, number, np.float32) for number in range(10)]
    result = executor.run_batch(Batch.of([Data({"x": array}) for array in arrays]))
    assert watched.sizes == sizes
    assert all(np.array_equal(data["y"], array) for data, array in zip(result.batch.to_list(), arrays, strict=True))


def test_a_pipeline_with_a_function_is_given_no_larger_batches() -> None:
    with pipelines.Sequence([lambda data: data]).open() as executor:
        assert not executor.limit(4)


@pytest.mark.parametrize("element", [T.FLOAT, T.DOUBLE, T.FLOAT16])
def test_an_integer_among_floats_is_a_number_like_the_others(opened: Made, element: int) -> None:
    executor = opened(same(element, ("N", 1)))
    found = executor.run_many([Data({"x": value}) for value in (30.5, 30, 2.5, 2**11)])
    assert [one["y"].tolist() for one in results_of(found)] == [[30.5], [30.0], [2.5], [2048.0]]


def test_rows_without_the_value_fail_alone_among_integers_and_floats(opened: Made) -> None:
    found = opened(same(T.FLOAT, ("N", 1))).run_many([Data({"x": 30.5}), Data({"u": 1.0}), Data({"x": 30})])
    assert isinstance(found[1], StepError)
    assert [one["y"].tolist() for one in results_of([found[0], found[2]])] == [[30.5], [30.0]]


def test_a_model_whose_output_has_a_name_that_no_key_can_have_says_how_to_rename_it(opened: Made) -> None:
    made = model([helper.make_node("Identity", ["x"], ["@type"])], [("x", T.FLOAT, [])], [("@type", T.FLOAT, [])])
    with pytest.raises(StepError, match=r'Cannot use key "@type".*outputNames as a mapping gives'):
        opened(made)
    assert one(opened(made, output_names={"@type": "kind"}), x=np.float32(2))["kind"] == 2


def test_a_record_that_lacks_the_input_is_told_of_its_own_keys(opened: Made) -> None:
    x = np.ones(3, "f4")
    records = [Data({"x": x}), Data({"z": 1}), Data({"u": x, "v": x})]
    found, alone, several = opened(same()).run_many(records)
    assert isinstance(found, Data)
    takes = 'the model\'s input "x" takes float32 [N, 3]'
    assert str(alone).endswith(f'ValueNotFoundError: Value not found for key "x"; there are z; {takes}')
    assert "there are u, v; a record's only array would be taken for it, but it has several: u, v" in str(several)


def test_a_record_that_lacks_one_of_several_inputs_is_told_of_its_own_keys(opened: Made) -> None:
    floats = [(name, T.FLOAT, ("N", 1)) for name in ("a", "b", "y")]
    added = model([helper.make_node("Add", ["a", "b"], ["y"])], floats[:2], floats[2:])
    lacks_b, lacks_a = opened(added).run_many([Data({"a": 1.0, "p": 1}), Data({"b": 1.0, "q": 1})])
    assert 'Value not found for key "b"; there are a, p;' in str(lacks_b)
    assert 'Value not found for key "a"; there are b, q;' in str(lacks_a)


@pytest.mark.usefixtures("hot_path")
@pytest.mark.parametrize("codec", ["json", "konduit-json"])
@pytest.mark.parametrize(
    "odd", ['{"x": [1.5, 2, 3]}', '{"x": []}', '{"x": [1]}', '{"x": "a"}', '{"x": [1e39, 0, 0]}', "{}"]
)
@pytest.mark.parametrize("element", [T.INT64, T.UINT8, T.FLOAT, T.DOUBLE, T.FLOAT16])
def test_a_list_is_the_same_array_alone_and_beside_any_other(opened: Made, codec: str, odd: str, element: int) -> None:
    payloads = [b'{"x": [1, 2, 3]}', odd.encode(), b'{"x": [4, 5, 6]}']
    with opened(same(element, ("N", "M"))) as executor:

        def fates(*given: bytes) -> list[str]:
            found = executor.run_batch(codec_of(codec).decode(block(given), executor.reads).batch)
            rows = {row: str(error) for row, error in found.failed.items()}
            for row, data in zip(found.rows.tolist(), found.batch.to_list(), strict=True):
                rows[row] = f"{data['y'].dtype} {data['y'].tolist()}"
            return [rows[row] for row in range(len(given))]

        together = fates(*payloads)
        assert together == [fates(one)[0] for one in payloads]
        dtype = helper.tensor_dtype_to_np_dtype(element)
        assert together[::2] == [f"{dtype} {np.array(one, dtype).tolist()}" for one in ([1, 2, 3], [4, 5, 6])]
        if odd == '{"x": []}':
            assert 'Key "x" holds an empty list' in together[1]


def test_numbers_for_a_bool_input_need_cast_inputs_and_the_error_says_so(opened: Made) -> None:
    assert "set castInputs" in failure(opened(same(T.BOOL)), x=[0, 1, 1])
    assert one(opened(same(T.BOOL), cast_inputs=True), x=[0, 1, 1])["y"].tolist() == [False, True, True]
    assert one(opened(same(T.BOOL), cast_inputs=True), x=[False, True, True])["y"].tolist() == [False, True, True]


@pytest.mark.parametrize("named", [{"inputs": {"scale": "s"}}, {"input_names": {"x": "x", "scale": "s"}}])
def test_an_optional_input_is_fed_where_it_is_named_and_else_keeps_its_own_value(
    opened: Made, named: dict[str, Any]
) -> None:
    inputs = [("x", T.FLOAT, ["N", 2]), ("scale", T.FLOAT, [1])]
    node = helper.make_node("Mul", ["x", "scale"], ["y"])
    made = model([node], inputs, [("y", T.FLOAT, ["N", 2])], {"scale": np.array([10], "f4")})
    assert one(opened(made), x=f4(1, 2), s=3.0)["y"].tolist() == [10.0, 20.0]
    assert one(opened(made, **named), x=f4([1, 2]), s=f4(3))["y"].tolist() == [[3.0, 6.0]]


def scaled_by(shape: list[Any]) -> bytes:
    """y = x * scale, where scale is 10 unless it is given; s, which has no effect, is 1."""
    inputs = [("x", T.FLOAT, ["N", 2]), ("scale", T.FLOAT, shape), ("s", T.FLOAT, [1])]
    nodes = [helper.make_node("Mul", ["x", "scale"], ["z"]), helper.make_node("Mul", ["z", "s"], ["y"])]
    ten = np.full([1 if isinstance(one, str) else one for one in shape], 10, "f4")
    return model(nodes, inputs, [("y", T.FLOAT, ["N", 2])], {"scale": ten, "s": np.array([1], "f4")})


@pytest.mark.parametrize("shape", [[1], ["M", 1]])
@pytest.mark.parametrize("limited", [False, True])
def test_records_with_a_value_of_an_optional_inputs_name_feed_it_and_others_of_the_batch_do_not(
    opened: Made, shape: list[Any], limited: bool
) -> None:
    executor = opened(scaled_by(shape))
    rows = [{"x": [row, 1.0], **({"scale": [row + 2.0]} if row % 3 else {})} for row in range(8)]
    if limited:
        assert executor.limit(2)
    found = results_of(executor.run_many([Data(row) for row in rows]))
    wanted = [row + 2 if row % 3 else 10 for row in range(8)]
    assert [one["y"].tolist() for one in found] == [[row * by, by] for row, by in enumerate(wanted)]
    # All have it, none has it, one of many has it.
    assert [one["y"].tolist() for one in results_of(executor.run_many([Data(rows[1]), Data(rows[2])]))] == [
        [3.0, 3.0],
        [8.0, 4.0],
    ]
    assert one(executor, x=[1.0, 2.0])["y"].tolist() == [10.0, 20.0]
    many = results_of(executor.run_many([Data(rows[0])] * 200 + [Data(rows[1])]))
    assert many[-1]["y"].tolist() == [3.0, 3.0]
    assert many[0]["y"].tolist() == [0.0, 10.0]


@pytest.mark.parametrize("shape", [[1], ["M", 1]])
def test_a_wrong_value_of_an_optional_input_fails_its_record_only(opened: Made, shape: list[Any]) -> None:
    executor = opened(scaled_by(shape))
    rows: list[dict[str, Any]] = [{"x": [1.0, 1.0], "scale": scale} for scale in (10.0, "three", [3.0])]
    del rows[0]["scale"]
    rows.append({"x": "no"})
    found = executor.run_many([Data(row) for row in rows])
    assert [isinstance(one, StepError) for one in found] == [False, True, False, True]
    assert 'input "scale" takes float32' in str(found[1])
    assert [one["y"].tolist() for one in found if isinstance(one, Data)] == [[10.0, 10.0], [3.0, 3.0]]


def test_fractions_for_a_model_that_takes_bytes_of_pictures_are_answered_with_the_settings_of_the_image_step(
    opened: Made,
) -> None:
    told = failure(opened(same(T.UINT8, ["N", 2, 2, 3])), x=np.zeros((1, 2, 2, 3), "f4"))
    assert told.endswith("IMAGE_TO_NDARRAY with dataType: UINT8, normalization: {type: NONE}, format: CHANNELS_LAST")
    assert "castInputs" not in told


def test_other_values_are_kept_if_asked_for(opened: Made) -> None:
    with opened(total(), keep_other_values=True) as executor:
        records = [Data({"x": np.full(3, number, "f4"), "id": number, "y": "old"}) for number in range(3)]
        results = results_of(executor.run_many(records))
    assert [(result["id"], float(result["y"]), result["x"].tolist()) for result in results] == [
        (number, 3.0 * number, [number] * 3) for number in range(3)
    ]
    with opened(total()) as executor:
        assert [list(result) for result in results_of(executor.run_many(records))] == [["y"]] * 3


def test_other_values_are_kept_where_records_run_one_by_one_and_one_fails(opened: Made) -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    of_any_rank = model([node], [("x", T.FLOAT, None)], [("y", T.FLOAT, None)], {"axes": np.array([1])})
    with opened(of_any_rank, keep_other_values=True) as executor:
        shapes = [(3,), (2, 3)]
        records = [Data({"x": np.full(shapes[number % 2], number, "f4"), "id": number}) for number in range(4)]
        results = executor.run_many(records)
    assert [isinstance(result, StepError) for result in results] == [True, False, True, False]
    assert [(result["id"], result["y"].tolist()) for result in results_of(results[1::2])] == [(1, [3, 3]), (3, [9, 9])]


def test_values_of_which_an_input_is_stacked_are_kept_and_the_input_is_not(opened: Made) -> None:
    with opened(total(), inputs={"x": ["a", "b", "c"]}, keep_other_values=True) as executor:
        result = result_of(executor.run(Data({"a": 1, "b": 2, "c": 3, "device": "d"})))
    assert {key: result[key] for key in ("a", "device")} == {"a": 1, "device": "d"}
    assert set(result) == {"a", "b", "c", "device", "y"}
