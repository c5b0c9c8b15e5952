"""Rows that lack a value, and numbers of two types: no row gets a value that it has not got, none fails for another."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import numpy as np
import pytest
from codecsupport import block

import pipelines
from connectors.codecs.registry import codec_of
from pipelines import Batch, Data, DenseColumn, ObjectColumn, StepError, ValueNotFoundError, ValueType, WrongTypeError
from pipelines.data.columns import MISSING, Column, RaggedColumn
from pipelines.errors import RowsFailed
from pipelines.wire.columns import decode_columns, encode_columns
from protos import data_pb2 as pb

pytestmark = pytest.mark.usefixtures("hot_path")

Make = Callable[[Sequence[Data]], Batch]


def decoded_late(datas: Sequence[Data]) -> Batch:
    """From messages, nothing decoded yet."""
    return read(datas, frozenset())


def decoded_early(datas: Sequence[Data]) -> Batch:
    """From messages, all keys decoded."""
    return read(datas, frozenset(key for data in datas for key in data))


def read(datas: Sequence[Data], wanted: frozenset[str]) -> Batch:
    found = decode_columns([data.to_bytes() for data in datas], wanted)
    assert not found.failed
    return Batch(found.columns, len(datas))


@pytest.fixture(params=[Batch.of, decoded_late, decoded_early], ids=["records", "late", "early"])
def make(request: pytest.FixtureRequest) -> Make:
    """Batches of records: made of them, and decoded from messages."""
    made: Make = request.param
    return made


def run(batch: Batch, function: Callable[[Batch], Batch]) -> list[Any]:
    with pipelines.Sequence([pipelines.batched(function)]).open() as executor:
        result = executor.run_batch(batch)
    found: list[Any] = [None] * batch.size
    for row, error in result.failed.items():
        found[row] = error
    for position, row in enumerate(result.rows.tolist()):
        found[row] = result.batch.row(position)
    return found


VALUES: dict[str, list[Any]] = {
    "DOUBLE": [1.5, 2.5],
    "INT64": [1, 2],
    "BOOLEAN": [True, False],
    "both": [1, 2.5],
    "arrays": [np.array([1.5, 2.5]), np.array([3.5, 4.5])],
    "float32": [np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32)],
}


@pytest.mark.parametrize("kind", VALUES)
def test_the_array_of_a_column_with_gaps_fails_the_rows_without_a_value_and_only_them(make: Make, kind: str) -> None:
    a, b = VALUES[kind]
    batch = make([Data({"t": a}), Data({"u": 1.0}), Data({"t": b}), Data({"u": 2.0, "t": a})])
    found = run(batch, lambda batch: batch.select({"y": DenseColumn(batch.column("t").array * 1)}))
    for place, value in ((0, a), (2, b), (3, a)):
        np.testing.assert_array_equal(found[place]["y"], np.asarray(value) * 1)
    assert isinstance(found[1], StepError)
    assert str(found[1]) == '0:FUNCTION: ValueNotFoundError: Value not found for key "t"'


def test_unequal_arrays_with_gaps_fail_the_rows_without_a_value_and_only_them(make: Make) -> None:
    rows = [np.zeros((1, 2)), np.zeros((3, 2)), np.zeros((1, 2)), np.zeros(5)]
    batch = make([*(Data({"t": row}) for row in rows), Data({"u": 1})])
    found = run(batch, lambda batch: batch.select({"y": DenseColumn(batch.column("t").array + 1)}))
    assert [one["y"].shape for one in found[:4]] == [row.shape for row in rows]
    assert 'Value not found for key "t"' in str(found[4])


def test_a_key_that_no_row_has_fails_all_of_them_at_once(make: Make) -> None:
    calls = 0

    def function(batch: Batch) -> Batch:
        nonlocal calls
        calls += 1
        return batch.select({"y": batch.column("tt")})

    found = run(make([Data({"t": 1.0})] * 50), function)
    assert {str(one) for one in found} == {
        '0:FUNCTION: ValueNotFoundError: Value not found for key "tt"; did you mean "t"?'
    }
    assert calls == 1


def test_present_says_which_rows_have_a_value_also_when_all_do(make: Make) -> None:
    some = make([Data({"t": 1.5}), Data({"u": 1.0})])
    assert some.column("t").present.tolist() == [True, False]
    every = make([Data({"t": 1.5}), Data({"t": 1.0})])
    assert every.column("t").present.tolist() == [True, True]
    assert some.get("never").present.tolist() == [False, False]
    for batch in (some, every):
        with pytest.raises(ValueError, match="read-only"):
            batch.column("t").present[0] = False


@pytest.mark.parametrize(
    ("kind", "value", "wanted", "dtype"),
    [
        ("DOUBLE", 0.0, [1.5, 0.0, 2.5], "f8"),
        ("DOUBLE", 7, [1.5, 7.0, 2.5], "f8"),
        ("INT64", 0, [1, 0, 2], "i8"),
        ("INT64", 0.5, [1, 0.5, 2], "f8"),
        ("BOOLEAN", False, [True, False, False], "?"),
        ("both", math.inf, [1, math.inf, 2.5], "f8"),
        ("arrays", 0, [[1.5, 2.5], [0, 0], [3.5, 4.5]], "f8"),
        ("arrays", [8, 9], [[1.5, 2.5], [8, 9], [3.5, 4.5]], "f8"),
        ("float32", math.inf, [[[1, 2]], [[math.inf, math.inf]], [[3, 4]]], "f4"),
    ],
)
def test_filled_gives_the_value_that_is_meant(make: Make, kind: str, value: Any, wanted: Any, dtype: str) -> None:
    a, b = VALUES[kind]
    found = make([Data({"t": a}), Data({"u": 1}), Data({"t": b})]).column("t").filled(value)
    assert found.dtype == dtype
    assert found.tolist() == wanted
    # The type does not depend on whether a row of the batch lacks the value.
    whole = make([Data({"t": a}), Data({"t": b})]).column("t").filled(value)
    assert whole.dtype == dtype
    assert whole.tolist() == [wanted[0], wanted[2]]


def test_filled_does_not_depend_on_whether_any_row_has_the_key(make: Make) -> None:
    def function(batch: Batch) -> Batch:
        return batch.select({"y": DenseColumn(batch.get("t").filled(0.25), ValueType.DOUBLE)})

    datas = [Data({"t": 1.5}), Data({"u": 1.0}), Data({"t": 3})]
    together = run(make(datas), function)
    alone = [run(make([data]), function)[0] for data in datas]
    assert together == alone == [Data({"y": 1.5}), Data({"y": 0.25}), Data({"y": 3.0})]
    assert make([Data({"u": 1})] * 2).get("t").filled(np.zeros(3, "f4")).shape == (2, 3)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("float32", 1e300), ("arrays", np.zeros(3)), ("arrays", "x"), ("INT64", 2**70), ("BOOLEAN", None)],
)
def test_a_value_that_does_not_fit_a_column_is_refused(kind: str, value: Any) -> None:
    a, b = VALUES[kind]
    with pytest.raises((WrongTypeError, TypeError)):
        Batch.of([Data({"t": a}), Data({"u": 1}), Data({"t": b})])["t"].filled(value)


@pytest.mark.parametrize("values", [["a", "b"], [b"a", b"b"], [["a"], ["b"]], [[1], ["a"]], ["a", 1.5], [True, 1]])
def test_values_that_are_no_numbers_make_no_array_and_say_so(make: Make, values: list[Any]) -> None:
    column = make([Data({"t": value}) for value in values]).column("t")
    with pytest.raises(WrongTypeError, match=r'the values of "t" are .* and make no array; values\(\) gives them'):
        _ = column.array


@pytest.mark.parametrize("odd", ["x", {"b": 1}, ["a"], [], [[1]], [1.5], True])
@pytest.mark.parametrize("codec", ["json", "konduit-json", "msgpack", "protodata"])
def test_lists_of_numbers_are_arrays_whatever_another_record_has_there(codec: str, odd: Any) -> None:
    rows: list[Any] = [[1.5, 2.5], odd, [3.5, 4.5], None, [1, 2]]
    records = [{} if row is None else {"t": row} for row in rows]
    payloads = [
        Data(one).to_bytes()
        if codec == "protodata"
        else msgpack.packb(one)
        if codec == "msgpack"
        else json.dumps(one).encode()
        for one in records
    ]
    batch = codec_of(codec).decode(block(payloads), frozenset({"t"})).batch
    found = run(batch, lambda batch: batch.select({"y": DenseColumn(batch["t"].array * 2.0)}))
    assert [found[place]["y"].tolist() for place in (0, 2, 4)] == [[3.0, 5.0], [7.0, 9.0], [2.0, 4.0]]
    assert isinstance(found[3], StepError)


def test_lists_of_several_lengths_are_arrays_by_group(make: Make) -> None:
    batch = make([Data({"t": value}) for value in ([1, 2], [3], [4.5, 5.0], ["a"], [6])])
    with pytest.raises(WrongTypeError, match="LIST and make no array"):
        _ = batch["t"].array
    with pytest.raises(WrongTypeError, match=r"batch.groups\(\[key\]\) gives those of each"):
        _ = batch.take([0, 1])["t"].array
    parts = [(rows.tolist(), part["t"].array.tolist()) for rows, part in batch.take([0, 1, 2, 4]).groups(["t"])]
    assert parts == [([0, 2], [[1, 2], [4.5, 5]]), ([1, 3], [[3], [6]])]


def test_an_integer_among_floats_is_one_array_of_floats(make: Make) -> None:
    batch = make([Data({"t": 30.5}), Data({"t": 30}), Data({"t": -0.0}), Data({"t": 2**53}), Data({"t": -(2**60)})])
    array = batch.column("t").array
    assert array.dtype == np.float64
    assert array.tolist() == [30.5, 30.0, -0.0, 2.0**53, -(2.0**60)]
    ((positions, part),) = batch.groups(["t"])
    assert positions.tolist() == [0, 1, 2, 3, 4]
    assert part["t"].array.tolist() == array.tolist()

    calls = 0

    def function(batch: Batch) -> Batch:
        nonlocal calls
        calls += 1
        return batch.with_columns({"t": DenseColumn(batch.column("t").array * 2, ValueType.DOUBLE)})

    assert [one["t"] for one in run(batch, function)] == (array * 2).tolist()
    assert calls == 1


def test_an_integer_among_floats_goes_out_as_it_came(make: Make) -> None:
    datas = [Data({"t": 30.5, "n": 1}), Data({"t": 30, "n": 2}), Data({"n": 3})]
    found = run(make(datas), lambda batch: batch.with_columns({"n": batch.column("n")}))
    assert [one.get("t") for one in found] == [30.5, 30, None]
    assert type(found[1]["t"]) is int

    def reading(batch: Batch) -> Batch:
        assert batch.column("t").filled(0.0).tolist() == [30.5, 30.0, 0.0]
        return batch

    with pipelines.Sequence([pipelines.batched(reading)]).open() as executor:
        batch = executor.run_batch(make(datas)).batch
    written = encode_columns(batch)
    assert not written.failed
    again = [Data.from_bytes(message or b"") for message in written.messages]
    assert again == datas
    assert type(again[1]["t"]) is int


def test_an_integer_that_would_lose_digits_among_floats_keeps_them_and_fails_nobody(make: Make) -> None:
    large = 2**53 + 1
    batch = make([Data({"t": 30.5}), Data({"t": large}), Data({"t": 1}), Data({"t": 2.5}), Data({"t": -large})])
    with pytest.raises(WrongTypeError, match=f'the values of "t" make no array: {large} would lose digits'):
        _ = batch.column("t").array
    found = run(batch, lambda batch: batch.select({"y": DenseColumn(batch.column("t").array + 0)}))
    assert [one["y"].tolist() for one in found] == [30.5, large, 1, 2.5, -large]
    kinds = {tuple(positions.tolist()): part["t"].array.dtype for positions, part in batch.groups(["t"])}
    assert kinds == {(0, 2, 3): np.dtype("f8"), (1, 4): np.dtype("i8")}


def test_a_boolean_is_no_number_among_numbers(make: Make) -> None:
    batch = make([Data({"t": 30.5}), Data({"t": True}), Data({"t": 1})])
    assert [positions.tolist() for positions, _ in batch.groups(["t"])] == [[0, 2], [1]]
    found = run(batch, lambda batch: batch.select({"y": DenseColumn(batch.column("t").array)}))
    assert [one["y"].dtype for one in found] == [np.dtype("f8"), np.dtype("?"), np.dtype("i8")]


def test_arrays_of_several_types_are_not_made_one(make: Make) -> None:
    rows = [np.ones(2, "f4"), np.ones(2, "f8"), np.ones(2, "i8")]
    batch = make([Data({"t": row}) for row in rows])
    message = r'"t" are arrays of several kinds, float32\[2\] and float64\[2\]; batch.groups\(\[key\]\)'
    with pytest.raises(WrongTypeError, match=message):
        _ = batch.column("t").array
    found = run(batch, lambda batch: batch.select({"y": DenseColumn(batch.column("t").array)}))
    assert [one["y"].dtype for one in found] == [row.dtype for row in rows]


def test_a_part_that_a_function_makes_does_not_blame_the_rows_that_stand_in_its_places(make: Make) -> None:
    datas = [Data({"kind": row % 2, "t": 1.0 * row} if row != 5 else {"kind": 1}) for row in range(8)]

    def function(batch: Batch) -> Batch:
        odd = batch.take(batch.column("kind").array == 1)
        _ = odd.column("t").array
        return batch

    found = run(make(datas), function)
    assert [isinstance(one, StepError) for one in found] == [row == 5 for row in range(8)]


def test_a_part_with_a_value_that_cannot_be_decoded_does_not_blame_others() -> None:
    good = [Data({"kind": row % 2, "t": np.ones(2)}).to_bytes() for row in range(8)]
    good[5] = with_broken_array(Data({"kind": 1}), "t")
    found = decode_columns(good, frozenset(["kind"]))
    batch = Batch(found.columns, len(good))
    assert len(found.rows) == 8

    def function(batch: Batch) -> Batch:
        for row in np.flatnonzero(batch.column("kind").array == 1).tolist():
            _ = batch.take([row]).column("t").array
            _ = batch.column("t")[row]
        return batch

    assert [isinstance(one, StepError) for one in run(batch, function)] == [row == 5 for row in range(8)]


def with_broken_array(data: Data, key: str) -> bytes:
    """A message with an array that has fewer bytes than its shape needs."""
    message = pb.DataMap.FromString(data.to_bytes())
    scheme = message.mapItems[key]
    scheme.type = pb.DataScheme.NDARRAY
    scheme.ndValue.shape.append(5)
    scheme.ndValue.array.append(bytes(4))
    return bytes(message.SerializeToString())


def test_a_column_that_is_renamed_is_told_by_its_new_name(make: Make) -> None:
    batch = make([Data({"t": 1.5}), Data({"u": 1.0})])
    renamed = batch.with_columns({"v": batch.column("t"), "w": batch.column("t")})
    for key in ("v", "t", "w"):
        with pytest.raises(RowsFailed, match=f'"{key}"'):
            _ = renamed.column(key).array
        with pytest.raises(RowsFailed, match=f'"{key}"'):
            _ = renamed[key].array


@pytest.mark.parametrize(
    "column",
    [
        DenseColumn(np.zeros(2), ValueType.DOUBLE, np.array([True, False])),
        RaggedColumn(np.zeros((3, 2)), np.array([0, 3, 3]), np.array([True, False])),
        ObjectColumn(["a", MISSING]),
        Column.of([1.5, MISSING]),
        Column.absent(2),
    ],
    ids=["dense", "ragged", "objects", "made", "absent"],
)
def test_a_column_that_is_in_no_batch_fails_its_rows_too(column: Column) -> None:
    with pytest.raises(RowsFailed) as caught:
        _ = column.array
    assert 1 in caught.value.failures
    assert isinstance(caught.value.failures[1], ValueNotFoundError)


def test_rows_of_no_number_have_an_empty_array() -> None:
    assert Column.of([]).array.shape == (0,)
    assert Column.of([]).filled(1.0).shape == (0,)
    assert Column.absent(0).array.shape == (0,)
    assert DenseColumn(np.zeros((0, 3))).array.shape == (0, 3)


def test_an_array_that_was_asked_for_cannot_be_written(make: Make) -> None:
    batch = make([Data({"t": 1, "x": np.zeros(2)}), Data({"t": 2.5, "x": np.ones(2)})])
    for key in ("t", "x"):
        with pytest.raises(ValueError, match="read-only"):
            batch.column(key).array[0] = 5


@pytest.mark.parametrize(
    ("array", "kind", "wanted"),
    [
        (np.array([1, 2]), ValueType.DOUBLE, [1.0, 2.0]),
        (np.array([0.5], np.float32), ValueType.DOUBLE, [0.5]),
        (np.array([1, 255], np.uint8), ValueType.INT64, [1, 255]),
        (np.array([1], np.uint64), ValueType.INT64, [1]),
    ],
)
def test_numbers_are_put_into_the_type_that_a_column_says(array: Any, kind: ValueType, wanted: list[Any]) -> None:
    column = DenseColumn(array, kind)
    assert column.values() == wanted
    assert [type(one) for one in column.values()] == [type(one) for one in wanted]
    written = encode_columns(Batch({"t": column}, len(wanted)))
    assert [Data.from_bytes(message or b"")["t"] for message in written.messages] == wanted


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.array([0.5]), ValueType.INT64),
        (np.array([1]), ValueType.BOOLEAN),
        (np.array([True]), ValueType.INT64),
        (np.array([[1.0]]), ValueType.DOUBLE),
        (np.array(1.0), ValueType.DOUBLE),
        (np.array([2**63], np.uint64), ValueType.INT64),
        (np.array([2**53 + 1]), ValueType.DOUBLE),
        (np.array(["1"]), ValueType.DOUBLE),
    ],
)
def test_an_array_that_does_not_fit_the_type_of_its_column_is_refused_when_it_is_made(
    array: Any, kind: ValueType
) -> None:
    with pytest.raises(WrongTypeError):
        DenseColumn(array, kind)
