"""FEATURES, run as a user's pipeline runs it: bad records fail alone, the others have their arrays."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import onnx
import pytest
from codecsupport import block
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import pipelines
from connectors.codecs.registry import codec_of
from pipelines import Data, Features, Image, Onnx, StepError
from pipelines.data.batch import Batch
from pipelines.errors import DefinitionError
from pipelines.runners.models.features import FeaturesRunner
from pipelines.runners.runner import OpenContext


def run(step: Features, *records: dict[str, Any]) -> list[Any]:
    with pipelines.Sequence([step]).open() as executor:
        return executor.run_many([Data(record) for record in records])


def arrays(step: Features, *records: dict[str, Any]) -> list[Any]:
    """The array of each record, as lists; the text of the error of one that failed."""
    found = run(step, *records)
    return [str(one) if isinstance(one, StepError) else one[step.output].tolist() for one in found]


def test_numbers_follow_each_other_in_the_order_of_the_fields() -> None:
    (found,) = run(Features(["b", "a", "on"], output="X"), {"a": 1, "b": 2.5, "on": True, "id": "m1"})
    assert found["X"].dtype == np.float32
    assert found["X"].tolist() == [2.5, 1.0, 1.0]
    assert found["id"] == "m1"


def test_only_the_array_is_kept_if_so_asked() -> None:
    (found,) = run(Features(["a"], keep_other_values=False), {"a": 1, "id": "m1"})
    assert list(found) == ["features"]


def test_an_integer_keeps_its_digits_beside_a_number_with_a_point() -> None:
    exact = 2**53 + 1
    step = Features(["id", "part", "on"], dtype="INT64")
    records = ({"id": exact, "part": 2.0, "on": True}, {"id": exact, "part": 2.5, "on": True})
    found, failed = arrays(step, *records)
    assert found == [exact, 2, 1]
    assert '"part" is 2.5, which does not fit int64' in failed
    assert arrays(step, {"id": 2**63 - 1, "part": -1.0, "on": False}) == [[2**63 - 1, -1, 0]]


def test_arrays_and_lists_count_with_all_their_numbers() -> None:
    step = Features(["a", "v", "m", "l"], output="X")
    record = {"a": 1, "v": np.array([2, 3], "i4"), "m": np.array([[4.0, 5.0], [6.0, 7.0]]), "l": [8, 9.5]}
    assert arrays(step, record, record) == [[1, 2, 3, 4, 5, 6, 7, 8, 9.5]] * 2


def test_a_record_that_lacks_a_value_fails_alone_unless_there_is_a_default() -> None:
    records = ({"temp": 1.0, "hour": 5}, {"temp": 2.0}, {"tmp": 3.0, "hour": 6})
    first, second, third = arrays(Features(["temp", {"field": "hour", "default": 0}]), *records)
    assert (first, second) == ([1.0, 5.0], [2.0, 0.0])
    assert 'Value not found for key "temp"' in third


def test_a_key_that_no_record_of_the_batch_has_takes_its_default() -> None:
    assert arrays(Features(["a", {"field": "b", "default": -1}]), {"a": 1}, {"a": 2}) == [[1, -1], [2, -1]]
    (failed,) = arrays(Features(["a", "b"]), {"a": 1})
    assert '"b"' in failed


def test_a_value_with_a_size_has_so_many_numbers_and_its_default_too() -> None:
    step = Features(["a", {"field": "b", "size": 2, "default": 7}], output="X")
    found = arrays(step, {"a": 1, "b": [2, 3]}, {"a": 1, "b": [2]}, {"a": 1}, {"a": 1, "b": np.ones(2)})
    assert found[0] == [1, 2, 3]
    assert found[1].endswith('"b" has 1 numbers, and its size is 2')
    assert found[2:] == [[1, 7, 7], [1, 1, 1]]
    assert arrays(step, {"a": 5}) == [[5, 7, 7]]


def test_a_default_may_be_no_number_at_all() -> None:
    (found,) = arrays(Features([{"field": "a", "default": math.nan}]), {"b": 1})
    assert math.isnan(found[0])


@pytest.mark.parametrize("default", [math.nan, math.inf, -math.inf])
def test_a_default_that_is_not_finite_is_written_to_json_and_yaml_and_read_again(default: float) -> None:
    pipeline = pipelines.Sequence([Features([{"field": "a", "default": default}])])
    for text in (pipeline.to_json(), pipeline.to_yaml()):
        with pipelines.loads(text).open() as executor:
            found = executor.run({"b": 1})
        assert isinstance(found, Data)
        assert found["features"].tolist() == pytest.approx([default], nan_ok=True)


def test_a_text_among_a_thousand_numbers_fails_its_record_alone() -> None:
    records: list[dict[str, Any]] = [{"a": float(i), "b": i} for i in range(1000)]
    records[500]["a"] = "hot"
    records[0]["b"] = ["x"]
    found = arrays(Features(["a", "b"]), *records)
    assert '"a" is a text, and a number is needed; oneHot: [...]' in found[500]
    assert 'type STRING to an NDArray (key "b")' in found[0]
    assert [one for i, one in enumerate(found) if i not in (0, 500)] == [
        [float(i), float(i)] for i in range(1000) if i not in (0, 500)
    ]


def test_whole_and_broken_numbers_mix_also_where_float64_has_not_all_their_digits() -> None:
    found = arrays(Features(["a"], dtype="DOUBLE"), {"a": 1}, {"a": 2.5}, {"a": 2**60 + 1})
    assert found == [[1.0], [2.5], [float(2**60)]]


def test_categories_become_ones_and_zeros() -> None:
    step = Features(["t", {"field": "machine", "oneHot": ["lathe", "mill", 3, True]}])
    records = ({"t": 1, "machine": m} for m in ("mill", "lathe", 3, "3", True, 3.0))
    assert arrays(step, *records) == [
        [1, 0, 1, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 0, 1, 0],
        [1, 0, 0, 1, 0],
        [1, 0, 0, 0, 1],
        [1, 0, 0, 1, 0],
    ]


def test_an_unknown_category_fails_its_record_or_is_zero_everywhere() -> None:
    fields: dict[str, Any] = {"field": "m", "oneHot": ["lathe", "mill"]}
    good, bad, missing = arrays(Features([fields]), {"m": "mill"}, {"m": "mil"}, {"x": 1})
    assert good == [0, 1]
    assert '"m" is \'mil\', which is not one of lathe, mill; did you mean "mill"?' in bad
    assert 'Value not found for key "m"' in missing
    assert arrays(Features([{**fields, "unknown": "zeros"}]), {"m": "saw"}) == [[0, 0]]
    assert arrays(Features([{**fields, "default": 0.5}]), {"x": 1}, {"m": "mill"}) == [[0.5, 0.5], [0, 1]]
    (odd,) = arrays(Features([{**fields, "unknown": "zeros"}]), {"m": np.zeros(2)})
    assert "not a category" in odd


def test_scale_and_offset_are_those_of_onnx() -> None:
    step = Features([{"field": "a", "offset": 10, "scale": 0.5}, {"field": "b", "scale": 2}], dtype="DOUBLE")
    assert arrays(step, {"a": 12, "b": True}) == [[1.0, 2.0]]


def test_series_become_columns_of_a_matrix() -> None:
    step = Features(["x", "y"], output="W", columns=True)
    long = {"x": np.array([1.0, 2.0, 3.0]), "y": [4, 5, 6]}
    short = {"x": [1.0], "y": [2.0]}
    unequal = {"x": [1.0, 2.0], "y": [2.0]}
    first, second, third = arrays(step, long, short, unequal)
    assert first == [[1, 4], [2, 5], [3, 6]]
    assert second == [[1, 2]]
    assert "different numbers of values: x 2, y 1" in third


def test_a_default_stands_for_each_value_of_a_series_that_is_not_there() -> None:
    step = Features(["x", {"field": "y", "default": 9}], columns=True)
    records: list[dict[str, Any]] = [{"x": [1, 2]}, {"x": [1, 2], "y": [3, 4]}, {"x": np.ones(3)}, {"y": [1.0]}]
    wanted = [[[1, 9], [2, 9]], [[1, 3], [2, 4]], [[1, 9], [1, 9], [1, 9]]]
    *found, failed = arrays(step, *records)
    assert found == wanted
    assert 'Value not found for key "x"' in failed
    assert [arrays(step, record)[0] for record in records[:3]] == wanted


def test_a_default_is_one_number_however_long_the_arrays_of_other_records_are() -> None:
    step = Features(["x", {"field": "y", "default": 0}])
    for value in (np.ones(2, "f4"), [1.0, 1.0]):
        assert arrays(step, {"x": 5, "y": value}, {"x": 6}, {"x": 7, "y": value}) == [[5, 1, 1], [6, 0], [7, 1, 1]]
    assert arrays(step, {"x": 6}) == [[6, 0]]


@pytest.mark.usefixtures("hot_path")
@pytest.mark.parametrize("codec", ["json", "konduit-json", "msgpack", "protodata"])
@pytest.mark.parametrize(
    "neighbours", [[], [{"y": [1.0, 2.0]}], [{"y": [1, 2]}, {"y": [2.5]}], [{"y": 1}], [{"y": []}]]
)
def test_an_empty_list_fails_its_record_alone_and_beside_others(codec: str, neighbours: list[dict[str, Any]]) -> None:
    records = [{"y": []}, *neighbours]
    write = {"protodata": lambda one: Data(one).to_bytes(), "msgpack": msgpack.packb}
    payloads = [write.get(codec, lambda one: json.dumps(one).encode())(one) for one in records]
    with pipelines.Sequence([Features(["y"])]).open() as executor:
        result = executor.run_batch(codec_of(codec).decode(block(payloads), executor.reads).batch)
    empty = [row for row, one in enumerate(records) if one["y"] == []]
    assert sorted(result.failed) == empty
    assert all('Key "y" holds an empty list' in str(result.failed[row]) for row in empty)


def test_a_broken_image_is_told_as_an_image_also_beside_arrays() -> None:
    records: list[dict[str, Any]] = [{"a": Image(b"broken")}, {"a": 1.0}, {"a": [1.0]}]
    for chosen in (records, records[:1]):
        assert '"a" is an image, and a number is needed' in arrays(Features(["a"]), *chosen)[0]


def test_rows_of_other_lengths_share_a_batch() -> None:
    records = [{"v": np.ones(n, "f4"), "a": n} for n in (2, 3, 2)]
    assert arrays(Features(["v", "a"]), *records) == [[1, 1, 2], [1, 1, 1, 3], [1, 1, 2]]


def test_a_value_that_the_element_type_cannot_hold_fails_its_record() -> None:
    step = Features(["a"], dtype="INT32")
    assert arrays(step, {"a": 7}, {"a": 2.0})[0] == [7]
    found = arrays(step, {"a": 2**40}, {"a": 2.5}, {"a": 3.0}, {"a": math.nan})
    assert found[2] == [3]
    assert all("does not fit int32" in found[at] for at in (0, 1, 3))
    (beyond,) = arrays(Features(["a"]), {"a": 1e300})
    assert '"a" is 1e+300, which does not fit float32' in beyond
    (among,) = arrays(Features(["b", "a"], dtype="INT64"), {"a": 2.5, "b": [1, 2]})
    assert '"a" is 2.5, which does not fit int64' in among


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("hot", "is a text, and a number is needed; oneHot: [...] makes numbers of categories"),
        ("30", "is a text, and a number is needed; it looks like a number: have it sent as one"),
        (Data({"b": 1}), "is nested data (an object), and a number is needed"),
        (b"30", "is bytes, and a number is needed"),
    ],
)
@pytest.mark.parametrize("at", [0, 998])
def test_a_value_that_is_no_number_is_told_with_its_type(value: Any, told: str, at: int) -> None:
    records: list[dict[str, Any]] = [{"a": float(i)} for i in range(999)]
    records[at]["a"] = value
    found = arrays(Features(["a"]), *records)
    assert f'"a" {told}' in found[at]
    assert sum(isinstance(one, str) for one in found) == 1
    assert told in arrays(Features(["a"]), {"a": value})[0]


def test_a_default_with_a_fraction_fails_no_large_integer_and_no_neighbour_of_one() -> None:
    step = Features(["x", {"field": "z", "default": 0.5}], output="X", dtype="DOUBLE")
    large = {"x": 0, "z": 2**53 + 1}
    assert arrays(step, large, {"x": 0, "z": 1}) == [[0.0, float(2**53)], [0.0, 1.0]]
    assert arrays(step, {"x": 0}, large, {"x": 0, "z": 1}) == [[0.0, 0.5], [0.0, float(2**53)], [0.0, 1.0]]


def test_an_empty_list_fails_also_when_its_neighbours_have_failed_before_it() -> None:
    step = Features(["x", {"field": "z", "default": 0.5}], output="X")
    (empty, lacking) = arrays(step, {"x": 0, "z": []}, {"z": 0})
    assert 'Key "z" holds an empty list' in empty
    assert 'Value not found for key "x"' in lacking


@given(st.lists(st.tuples(st.integers(-(2**53), 2**53), st.floats(allow_nan=False)), min_size=1, max_size=30))
def test_any_numbers_come_out_as_numpy_stacks_them(rows: list[tuple[int, float]]) -> None:
    found = arrays(Features(["a", "b"], dtype="DOUBLE"), *({"a": a, "b": b} for a, b in rows))
    assert found == [[float(a), b] for a, b in rows]


def test_a_batch_without_rows_is_no_error() -> None:
    runner = FeaturesRunner(Features(["a"]), OpenContext())
    assert runner.run_batch(Batch.of([Data({"a": 1.0})]).take(np.zeros(0, np.int64))).batch.size == 0
    assert runner.reads == frozenset({"a"})


def test_definitions_are_written_as_short_as_they_were() -> None:
    text = """
steps:
- '@type': FEATURES
  fields:
  - temp
  - field: machine
    oneHot: [a, b]
  - field: hour
    default: 0.0
  output: X
"""
    pipeline = pipelines.loads(text)
    again = pipelines.loads(pipeline.to_json())
    assert again.to_json() == pipeline.to_json()
    assert '"temp"' in pipeline.to_json()
    assert '"default": 0.0' in pipeline.to_json()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "at least 1"),
        ([{"field": "a", "oneHot": []}], "at least 1"),
        ([{"field": "a", "oneHot": ["x", "x"]}], "twice"),
        ([{"field": "a", "oneHot": ["x"], "scale": 2}], "do not apply"),
        ([{"field": "a", "defualt": 2}], "default"),
    ],
)
def test_mistakes_in_fields_are_told(fields: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        pipelines.loads(json.dumps({"steps": [{"@type": "FEATURES", "fields": fields}]}))


@pytest.fixture
def doubling(tmp_path: Path) -> Path:
    """A model `Y = X + X` of four features, with a second input `bias [N, 1]`."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["X", "X"], ["twice"]), helper.make_node("Add", ["twice", "bias"], ["Y"])],
        "g",
        [
            helper.make_tensor_value_info("X", TensorProto.DOUBLE, ["N", 2]),
            helper.make_tensor_value_info("bias", TensorProto.DOUBLE, ["N", 1]),
        ],
        [helper.make_tensor_value_info("Y", TensorProto.DOUBLE, ["N", 2])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    path = tmp_path / "twice.onnx"
    onnx.save(made, path)
    return path


def test_onnx_takes_its_inputs_from_several_values(doubling: Path) -> None:
    step = Onnx(str(doubling), inputs={"X": ["temp", {"field": "hour", "default": 0}], "bias": "offset"})
    with pipelines.Sequence([step]).open() as executor:
        # Codecs keep what they learn about a set of keys.
        assert {executor.reads: 1} == {frozenset({"temp", "hour", "offset"}): 1}
        good, bad = executor.run_many([Data({"temp": 1.5, "offset": 1}), Data({"hour": 3, "offset": 0})])
    assert isinstance(good, Data)
    assert good["Y"].tolist() == [4.0, 1.0]
    assert 'Value not found for key "temp"' in str(bad)
    again = pipelines.loads(pipelines.Sequence([step]).to_json())
    assert again.to_json() == pipelines.Sequence([step]).to_json()


def test_an_input_that_cannot_be_filled_is_named_with_its_type_and_shape(doubling: Path) -> None:
    with pipelines.Sequence([Onnx(str(doubling))]).open() as executor:
        (found,) = executor.run_many([Data({"temp": 1.5, "bias": 1})])
    assert 'input "X" takes float64 [N, 2]' in str(found)
    assert "temp, bias" in str(found)


def test_inputs_that_the_model_lacks_are_told_when_it_opens(doubling: Path) -> None:
    with pytest.raises(pipelines.StreamerError, match='no input "Z"'):
        pipelines.Sequence([Onnx(str(doubling), inputs={"Z": ["a"]})]).open()


def _same(element: int, count: int) -> bytes:
    """A model that gives back what it takes, `[N, count]`."""
    inside = [helper.make_tensor_value_info(name, element, ["N", count]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", inside[:1], inside[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    content: bytes = model.SerializeToString()
    return content


@pytest.mark.parametrize("element", [TensorProto.INT32, TensorProto.UINT8, TensorProto.UINT64])
def test_a_model_of_integers_is_given_no_number_with_its_fraction_cut_off(tmp_path: Path, element: int) -> None:
    (tmp_path / "m.onnx").write_bytes(_same(element, 2))
    with pipelines.Sequence([Onnx("m.onnx", inputs={"x": ["a", "b"]})], base=tmp_path).open() as executor:
        failed, found = executor.run_many([Data({"a": 1.5, "b": 2}), Data({"a": 2.0, "b": 2})])
    assert isinstance(failed, StepError)
    assert '"a" is 1.5, which does not fit' in str(failed)
    assert isinstance(found, Data)
    assert found["y"].tolist() == [2, 2]


def test_more_values_than_the_model_takes_are_wrong_before_the_first_record(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(_same(TensorProto.FLOAT, 2))
    step = Onnx("m.onnx", inputs={"x": ["a", {"field": "kind", "one_hot": ["lathe", "mill"]}]})
    with pytest.raises(StepError, match=r"takes float32 \[N, 2\], 2 numbers of a record, and the step names 3 for it"):
        pipelines.Sequence([step], base=tmp_path).open()


def test_a_record_that_lacks_a_value_is_told_of_its_own_keys_not_of_those_of_others() -> None:
    records: tuple[dict[str, Any], ...] = ({"a": 1, "left": 2}, {"a": 1, "b": 2}, {"b": 1, "right": 2}, {})
    first, second, third, fourth = arrays(Features(["a", "b"]), *records)
    assert second == [1.0, 2.0]
    assert first.endswith('Value not found for key "b"; there are a, left')
    assert third.endswith('Value not found for key "a"; there are b, right')
    assert fourth.endswith('Value not found for key "a"; the record is empty')


def test_a_text_under_a_key_that_others_lack_fails_its_own_row_alone() -> None:
    step = pipelines.Features(fields=["t", {"field": "h", "default": 0}], output="x")
    rows: list[dict[str, Any]] = [{"t": 1}, {"t": 2, "h": "7"}, {"t": 3}, {"t": 4, "h": "x"}, {"t": 5}]
    with pipelines.Sequence([step]).open() as executor:
        found = executor.run_many(rows)
    assert [one["x"].tolist() for one in found if isinstance(one, Data)] == [[1, 0], [3, 0], [5, 0]]
    assert [row for row, one in enumerate(found) if not isinstance(one, Data)] == [1, 3]
    assert "it looks like a number" in str(found[1])


def test_a_list_where_a_category_is_needed_is_told_as_such() -> None:
    step = pipelines.Features(fields=[{"field": "m", "one_hot": ["a", "b"]}], output="x")
    with pipelines.Sequence([step]).open() as executor:
        good, bad = executor.run_many([Data({"m": "a"}), Data({"m": ["a"]})])
    assert isinstance(good, Data)
    assert good["x"].tolist() == [1, 0]
    assert '"m" is a list, which is not a category' in str(bad)


def test_a_value_that_is_no_known_boolean_is_told_with_booleans_as_they_are_written_in_files() -> None:
    step = pipelines.Features(fields=[{"field": "m", "one_hot": [True, False]}], output="x")
    with pipelines.Sequence([step]).open() as executor:
        good, number, nested = executor.run_many([Data({"m": False}), Data({"m": 0}), Data({"m": Data({"a": 1})})])
    assert isinstance(good, Data)
    assert good["x"].tolist() == [0, 1]
    assert "\"m\" is '0', which is not one of true, false; add it to oneHot" in str(number)
    assert '"m" is nested data (an object), which is not a category' in str(nested)
