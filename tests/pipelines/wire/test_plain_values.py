"""What plain values of parsers become in columns, and what values become when they are plain again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pipelines import Batch, BoundingBox, Data, Image, Point
from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import RowsFailed, ValueNotFoundError, WireError
from pipelines.values import ValueType
from pipelines.wire.limits import Limits
from pipelines.wire.plainvalues import PlainForm, PlainRules, plain_rows, read_column, read_rows, read_value


def column(values: list[Any]) -> Column:
    found, failed = read_column(values)
    assert not failed
    return found


@pytest.mark.parametrize(
    ("values", "kind", "dtype"),
    [
        ([1, 2], ValueType.INT64, np.int64),
        ([1.5, 2.0], ValueType.DOUBLE, np.float64),
        ([True, False], ValueType.BOOLEAN, np.bool_),
        ([2**63 - 1, -(2**63)], ValueType.INT64, np.int64),
    ],
)
def test_numbers_of_one_type_are_one_array(values: list[Any], kind: ValueType, dtype: Any) -> None:
    found = column(values)
    assert (found.type, found.array.dtype, found.values()) == (kind, dtype, values)


def test_an_integer_among_floats_is_a_float_of_the_column_and_an_integer_of_its_row() -> None:
    found = column([30.5, 30, None, 31])
    assert isinstance(found, NumbersColumn)
    assert found.values() == [30.5, 30, MISSING, 31]
    assert [type(value) for value in found.values()[:2]] == [float, int]
    assert (type(found[1]), found[2]) == (int, MISSING)
    taken = found.take(np.array([3, 1, 0]))
    assert taken.array.tolist() == [31.0, 30.0, 30.5]
    assert taken.array.dtype == np.float64
    assert found.take(np.array([1, 3])).type is ValueType.INT64
    assert found.take(np.array([0, 2])).type is ValueType.DOUBLE


def test_a_row_without_a_number_has_none() -> None:
    for values in ([1.5, None], [1, None], [1.5, 1, None], [[1.0], None], [[1.0, 2.0], [1], None]):
        found = column(values)
        assert found[len(values) - 1] is MISSING
        with pytest.raises(RowsFailed) as raised:
            _ = found.array
        assert list(raised.value.failures) == [len(values) - 1]
        assert isinstance(raised.value.failures[len(values) - 1], ValueNotFoundError)


def test_integers_that_a_float_would_round_stay_integers() -> None:
    values = [2**53 + 1, 0.5]
    assert column(values).values() == values
    assert column([[2**53 + 1], [0.5]]).values() == [[2**53 + 1], [0.5]]


def test_lists_of_numbers_are_lists_and_arrays() -> None:
    found = column([[1.5, 2.0], [3, 4], [5.0, 6]])
    assert isinstance(found, ListsColumn)
    assert found.values() == [[1.5, 2.0], [3, 4], [5.0, 6.0]]
    assert [type(one) for one in found.values()[1]] == [int, int]
    assert found.array.dtype == np.float64
    assert found.array.shape == (3, 2)
    assert column([[1, 2], [3, 4]]).array.dtype == np.int64
    unequal = column([[1, 2], [], [3]])
    assert unequal.values() == [[1, 2], [], [3]]
    assert unequal.take(np.array([2, 2])).array.tolist() == [[3], [3]]
    nested = column([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    assert nested.array.shape == (2, 2, 2)
    assert nested.values() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


def test_columns_of_two_blocks_are_joined_to_what_one_block_would_give() -> None:
    for values in ([1.5, 2, 3, 2.5], [[1.5], [2], [3, 4], [2.5]], [None, 2, None, 2.5], [[1, 2], None, [3], [4]]):
        joined = Column.concat([column(values[:2]), column(values[2:])])
        assert joined.values() == [MISSING if one is None else one for one in values]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (2**63, "64 bits"),
        (10**3000, "64 bits"),
        ([1, "a"], "one type"),
        ([1, None], "null"),
        ([1, True], "one type"),
        ({"a": [1, None]}, "null"),
        ("\ud800", "surrogate"),
        ([2**64], "64 bits"),
        ([2**64, 0.5], "64 bits"),
        ([[[[1]]]], "max_depth"),
        (object(), "type object"),
    ],
)
def test_a_plain_value_that_no_column_can_hold_fails_its_row_alone(value: Any, why: str) -> None:
    found, failed = read_column([7, value, None, 8], PlainRules(Limits(max_depth=3)))
    assert list(failed) == [1]
    assert why in str(failed[1])
    assert found.values() == [7, MISSING, MISSING, 8]


def test_a_key_that_nobody_asks_for_passes_through_unchanged() -> None:
    odd = {"mixed": [1, None, "a"], "large": 2**70}
    found = read_rows([{"a": 1, "odd": odd, "none": None}, {"a": 2, "odd": None}], frozenset({"a"}))
    assert not found.failed
    assert list(found.columns) == ["a", "odd"]
    batch = Batch(found.columns, 2)
    failed: dict[int, Exception] = {}
    assert plain_rows(batch, PlainForm(), failed) == [{"a": 1, "odd": odd}, {"a": 2}]
    assert not failed
    with pytest.raises(RowsFailed) as raised:
        batch["odd"].values()
    assert list(raised.value.failures) == [0]


def test_a_wanted_key_that_holds_no_value_is_told_by_row_and_name() -> None:
    found = read_rows([{"a": 1}, {"a": [1, "x"]}, {"a": 3}], frozenset({"a"}))
    assert list(found.failed) == [1]
    assert 'key "a"' in str(found.failed[1])
    assert found.columns["a"].values() == [1, MISSING, 3]


def test_rare_keys_cost_what_they_hold() -> None:
    rows: list[dict[str, Any]] = [{"common": row, f"own{row}": row} for row in range(40)]
    found = read_rows(rows, frozenset({"common"}))
    assert isinstance(found.columns["own3"], SparseColumn)
    assert Batch(found.columns, 40).row(3) == Data({"common": 3, "own3": 3})
    failed: dict[int, Exception] = {}
    assert plain_rows(Batch(found.columns, 40), PlainForm(), failed) == rows


def test_objects_are_nested_data_in_which_null_is_nothing() -> None:
    assert read_value({"b": {"@type": "x", "coords": [1, 2]}, "n": None}) == Data.trusted(
        {"b": Data.trusted({"@type": "x", "coords": [1, 2]})}
    )


def test_values_become_plain() -> None:
    form = PlainForm()
    assert form.value(np.array([0.1, 1e-8, 3e38, 1 / 3], np.float32)) == [0.1, 1e-8, 3e38, 0.33333334]
    assert form.value(np.array([[0.1]], np.float16)) == [[0.1]]
    assert form.value(np.array(0.1)) == 0.1
    assert form.value(np.array([True, False])) == [True, False]
    assert form.value(np.array([2**64 - 1], np.uint64)) == [2**64 - 1]
    assert form.value(b"\x00\xff") == "AP8="
    assert PlainForm(bytes_as_text=False).value(b"\x00\xff") == b"\x00\xff"
    assert PlainForm(shortest=False).value(np.array([0.1], np.float32)) == [0.10000000149011612]
    assert form.value(BoundingBox.center(1, 2, 3, 4, "a", 0.5)) == {
        "cx": 1.0, "cy": 2.0, "h": 3.0, "w": 4.0, "label": "a", "probability": 0.5,
    }  # fmt: skip
    assert form.value(Point([1, 2])) == {"coords": [1.0, 2.0]}
    assert form.value([Data({"x": np.arange(2)})]) == [{"x": [0, 1]}]
    image = form.value(Image(np.zeros((2, 2, 3), np.uint8)))
    assert (image["format"], image["base64"][:6]) == ("png", "iVBORw")


def test_all_float32_come_back_from_the_digits_they_are_written_with() -> None:
    numbers = np.random.default_rng(7).integers(0, 2**32, 20000, np.uint32).view(np.float32)
    numbers = numbers[np.isfinite(numbers)]
    assert (np.array(PlainForm().array(numbers), np.float32) == numbers).all()


def test_a_value_that_cannot_be_plain_fails_its_row() -> None:
    def refused(entries: Any) -> Column:
        raise RowsFailed({at: WireError("broken") for at, entry in enumerate(entries) if entry})

    failed: dict[int, Exception] = {}
    assert plain_rows(
        Batch({"b": Column.of([b"x", b"y"]), "a": WireColumn([None, b"1"], refused)}, 2), PlainForm(), failed
    )
    assert list(failed) == [1]


def test_a_column_of_arrays_is_written_at_once() -> None:
    failed: dict[int, Exception] = {}
    batch = Batch({"y": DenseColumn(np.array([[0.1], [0.7]], np.float32))}, 2)
    assert plain_rows(batch, PlainForm(), failed) == [{"y": [0.1]}, {"y": [0.7]}]


def test_too_many_keys_inside_are_an_error() -> None:
    with pytest.raises(WireError, match="max_keys"):
        read_value({str(number): 1 for number in range(20)}, PlainRules(Limits(max_keys=10)))


def test_infinite_numbers_are_values_where_a_form_has_them() -> None:
    for values in ([math.inf, 1.0], [1, math.inf], [[math.inf], [1.0]], [[[math.inf]], [[1.0]]], [{"a": math.inf}]):
        assert not read_column(values)[1]
        assert len(read_column(values, PlainRules(finite=True))[1]) == 1
