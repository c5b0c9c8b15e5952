"""Rows are chosen by comparing their values with those of a mapping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipelines.conditions.condition import condition
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DefinitionError, RowsFailed
from pipelines.values import BoundingBox


def batch_of(**columns: list[Any]) -> Batch:
    return Batch({key: Column.of(values) for key, values in columns.items()}, len(next(iter(columns.values()))))


def chosen(when: Any, **columns: list[Any]) -> list[int]:
    mask, failures = condition(when).rows(batch_of(**columns))
    assert failures == {}
    assert mask.dtype == np.bool_
    positions: list[int] = np.flatnonzero(mask).tolist()
    return positions


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({"label": "cat"}, [0, 3]),
        ({"label": ["cat", "dog"]}, [0, 1, 3]),
        ({"label": {"ne": "cat"}}, [1, 2]),
        ({"label": []}, []),
        ({"prob": {"gt": 0.5}}, [0, 3]),
        ({"prob": {"ge": 0.5}}, [0, 1, 3]),
        ({"prob": {"lt": 0.5}}, [2]),
        ({"prob": {"ge": 0.5, "lt": 0.9}}, [1, 3]),
        ({"prob": {"ge": "0.5"}}, [0, 1, 3]),
        ({"n": 2}, [1]),
        ({"n": [1, 4, "x"]}, [0, 3]),
        ({"n": {"le": 2.5}}, [0, 1]),
        ({"n": "2"}, []),
        ({"label": {"ge": "d"}}, [1, 2]),
        ({"sure": True}, [0, 2]),
        ({"label": "cat", "prob": {"gt": 0.8}}, [0]),
        ({}, [0, 1, 2, 3]),
    ],
)
def test_rows_are_chosen_by_their_values(when: Any, expected: list[int]) -> None:
    found = chosen(
        when,
        label=["cat", "dog", "emu", "cat"],
        prob=[0.9, 0.5, 0.1, 0.7],
        n=[1, 2, 3, 4],
        sure=[True, False, True, False],
    )
    assert found == expected


def test_an_array_of_one_number_counts_as_that_number() -> None:
    arrays = [np.array([value], np.float32) for value in (0.8, 0.79, 0.81)]
    assert chosen({"prob": {"ge": 0.8}}, prob=arrays) == [0, 2]
    ragged = [*arrays[:2], np.array(0.9, np.float32)]
    assert chosen({"prob": {"ge": 0.8}}, prob=ragged) == [0, 2]


@pytest.mark.parametrize("other", [[0.9], [[0.9]], 0.9, [0.9, 0.8], np.float64(0.9)], ids=str)
@pytest.mark.parametrize("test", [{"ge": 0.9}, {"lt": 0.9}, 0.9, {"ne": 0.9}, [0.9]], ids=str)
def test_whether_a_row_is_chosen_does_not_depend_on_the_rows_beside_it(test: Any, other: Any) -> None:
    # The nearest float32 is a little less than 0.9.
    value = np.array([0.9], np.float32)
    alone = condition({"p": test})
    beside = other if isinstance(other, float) else np.array(other, np.float32)
    expected = alone.rows(batch_of(p=[value]))[0][0]
    assert expected == (test in ({"ge": 0.9}, 0.9, [0.9]))
    assert alone.rows(batch_of(p=[value, beside]))[0][0] == expected
    assert alone.rows(batch_of(p=[value, MISSING, beside]))[0][0] == expected


@pytest.mark.parametrize("other", [1.5, 2, MISSING, "x"], ids=str)
@pytest.mark.parametrize("name", ["eq", "ne", "ge", "lt", "in"])
@pytest.mark.parametrize(
    ("value", "wanted"),
    [(2.0**53, 2**53 + 1), (2**53 + 1, 2.0**53 + 2), (2**63 - 1, 2.0**63), (2**53 + 1, 2**53 + 1)],
    ids=str,
)
def test_an_id_beyond_53_bits_is_compared_exactly_whatever_stands_beside_it(
    value: float, wanted: float, name: str, other: Any
) -> None:
    compared = {"ne": value != wanted, "ge": value >= wanted, "lt": value < wanted}
    written = {"eq": wanted, "in": [wanted]}
    when = condition({"id": written.get(name, {name: wanted})})
    expected = compared.get(name, value == wanted)
    assert when.rows(batch_of(id=[value]))[0][0] == expected
    assert when.rows(batch_of(id=[value, other]))[0][0] == expected


def test_an_id_from_the_environment_is_compared_with_all_its_digits() -> None:
    assert chosen({"id": {"gt": "9007199254740993"}}, id=[2**53, 2**53 + 1, 2**53 + 2]) == [2]


def test_a_row_without_the_value_is_chosen_by_exists_false_only() -> None:
    values = [1, MISSING, 3]
    assert chosen({"n": {"exists": False}}, n=values) == [1]
    assert chosen({"n": {"exists": True}}, n=values) == [0, 2]
    assert chosen({"n": {"ne": 1}}, n=values) == [2]
    assert chosen({"n": {"ge": 0}}, n=values) == [0, 2]
    assert chosen({"none": {"exists": False}}, n=values) == [0, 1, 2]
    assert chosen({"none": {"ne": 5}}, n=values) == []


def test_a_list_is_true_if_it_has_values() -> None:
    boxes: list[Any] = [[BoundingBox.corners(0, 1, 0, 1)], [], MISSING, [False]]
    assert chosen({"faces": True}, faces=boxes) == [0, 3]
    assert chosen({"faces": False}, faces=boxes) == [1]
    assert chosen({"faces": {"ne": False}}, faces=boxes) == [0, 3]
    # Of one type in every row, a column may be of another form.
    assert chosen({"faces": True}, faces=[["a"], ["b", "c"]]) == [0, 1]


def test_whether_a_value_exists_decodes_nothing() -> None:
    def never(entries: Sequence[bytes | None]) -> Column:
        raise AssertionError("decoded")

    batch = Batch({"image": WireColumn([b"x", None], never)}, 2)
    made = condition({"image": {"exists": True}})
    assert made.rows(batch)[0].tolist() == [True, False]


def test_a_row_that_cannot_be_decoded_fails_and_its_neighbours_do_not() -> None:
    def decode(entries: Sequence[bytes | None]) -> Column:
        bad: dict[int, Exception] = {row: ValueError("broken") for row, entry in enumerate(entries) if entry == b"bad"}
        if bad:
            raise RowsFailed(bad)
        return Column.of([float(entry or 0) for entry in entries])

    made = condition({"p": {"gt": 1}})
    mask, failures = made.rows(Batch({"p": WireColumn([b"2", b"bad", b"0.5"], decode)}, 3))
    assert mask.tolist() == [True, False, False]
    assert list(failures) == [1]


@pytest.mark.parametrize(
    ("when", "values", "text"),
    [
        ({"v": {"gt": 0.5}}, ["high", 0.7], "STRING and cannot be compared; text is compared with text"),
        ({"v": {"gt": "b"}}, [0.7, "c"], "DOUBLE and cannot be compared; text is compared with text"),
        (
            {"v": {"gt": 0.5}},
            [np.zeros(3), np.ones(1)],
            r"NDARRAY of shape \[3\] and cannot be compared; have a F",
        ),
        ({"v": "cat"}, [["cat"], "cat"], "LIST and cannot be compared; write v: true for lists with values"),
        ({"v": {"gt": True}}, [["cat"], 2.0], "LIST and cannot be compared"),
    ],
)
def test_a_value_that_cannot_be_compared_fails_its_row(when: Any, values: list[Any], text: str) -> None:
    made = condition(when)
    mask, failures = made.rows(batch_of(v=values))
    assert mask.tolist() == [False, True]
    assert list(failures) == [0]
    with pytest.raises(Exception, match=text):
        raise failures[0]


@pytest.mark.parametrize(
    ("when", "text"),
    [
        ({"p": {"gte": 1}}, "p: gte: no such comparison; there are gt, ge, lt"),
        ({"p": {}}, "p: nothing to compare with"),
        ({"p": None}, "exists: false"),
        ({"p": {"in": ["cat"]}}, "p: in: write the list itself, {p: [VALUE, VALUE]}"),
        ({"p": {"eq": "cat"}}, "p: eq: write the value itself, {p: VALUE}"),
        ({"p": {"exists": 1}}, "p: exists: true or false"),
        ({"p": [["a"]]}, "p: a list of texts, numbers and booleans is needed"),
        (
            "rules:urgent",
            '"rules:urgent" names a function, and a condition calls none: have a FUNCTION step',
        ),
    ],
)
def test_an_invalid_when_condition_is_refused_with_a_hint(when: Any, text: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        condition(when)
    assert text in str(raised.value)
