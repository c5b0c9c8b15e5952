"""Expressions over batches: a record gets what it would get alone, whatever stands beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.data import Data
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import RowsFailed
from pipelines.expressions.evaluation import Evaluation
from pipelines.expressions.expression import Expression
from pipelines.expressions.results import column_of
from pipelines.values import Image, ValueType

TEXTS = (
    "a * 1.8 + 32",
    "a > b",
    "lower(a)",
    "coalesce(a, b, 7)",
    "a is null or b = 'x'",
    "case when a > 1 then 'high' when b is null then 'none' end",
    "TRY_CAST(a AS BIGINT)",
    "a || '-' || b",
    "not (a = b)",
    "nullif(a, 2)",
    "'constant'",
)
VALUES = st.one_of(
    st.just(MISSING),
    st.none().map(lambda _: MISSING),
    st.integers(-5, 5),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 2**62]),
    st.floats(-5, 5),
    st.sampled_from([math.nan, math.inf, -math.inf]),
    st.sampled_from(["x", "X", "", "7", "ß", "a\x00b", "\ud800"]),
    st.booleans(),
    st.sampled_from([[1], ["x"], [1.5, 2.0], b"x", np.array([1.5]), np.array([1, 2]), np.array(3), Data({"x": 1})]),
)


def outcomes(evaluation: Evaluation, rows: Sequence[tuple[Any, Any]]) -> list[str]:
    """What each row gets, or the text of its error."""
    batch = Batch({key: Column.of([row[place] for row in rows]) for place, key in enumerate("ab")}, len(rows))
    failures: dict[int, Exception] = {}
    shown = [""] * len(rows)
    for part in evaluation.run(batch, failures):
        positions = range(len(rows)) if part.rows is None else part.rows.tolist()
        columns = [column_of(each) for each in part.results]
        for place, row in enumerate(positions):
            assert not shown[row]
            shown[row] = repr([column[place] for column in columns])
    for row, error in failures.items():
        assert not shown[row]
        shown[row] = f"{type(error).__name__}: {error}"
    assert all(shown)
    return shown


EVALUATIONS = [Evaluation([Expression(text)]) for text in TEXTS]
EVALUATIONS.append(Evaluation([Expression(text) for text in ("a * 2", "lower(b)", "'constant'")]))


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=12), st.sampled_from(EVALUATIONS), st.randoms())
def test_a_record_gets_the_same_alone_in_any_batch_and_any_order(
    rows: list[tuple[Any, Any]], evaluation: Evaluation, random: Any
) -> None:
    alone = [outcomes(evaluation, [row])[0] for row in rows]
    assert outcomes(evaluation, rows) == alone
    order = list(range(len(rows)))
    random.shuffle(order)
    assert outcomes(evaluation, [rows[row] for row in order]) == [alone[row] for row in order]
    assert outcomes(evaluation, rows * 50) == alone * 50


def result(text: str, **values: Any) -> Any:
    """The result for one record with these values, or its error as a text."""
    batch = Batch({key: Column.of([value]) for key, value in values.items()}, 1)
    failures: dict[int, Exception] = {}
    for part in Evaluation([Expression(text)]).run(batch, failures):
        return column_of(part.results[0])[0]
    return str(failures[0])


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("n * 2", {"n": 2**53}, 2.0**54),
        ("n * 1.8", {"n": 10}, 18.0),
        ("n + 1", {"n": 31}, 32.0),
        ("n + 1", {"n": 31.0}, 32.0),
        ("TRY_CAST(n AS BIGINT)", {"n": "9007199254740993"}, 9007199254740993),
        ("TRY_CAST(n AS BIGINT)", {"n": "1.5"}, MISSING),
        ("TRY_CAST(n AS DOUBLE)", {"n": " 23.5 "}, MISSING),
        ("length(t)", {"t": "abc"}, 3),
        ("n / 0", {"n": 1}, math.inf),
        ("0 / n", {"n": 0}, MISSING),
        ("n + m", {"n": 1, "m": MISSING}, MISSING),
        ("n + m", {"n": 1}, MISSING),
        ("n + 1", {"n": math.nan}, MISSING),
        ("n is null", {"n": math.nan}, True),
        ("n > 1", {"n": np.array([2.5], np.float32)}, True),
        ("n > 1", {"n": np.array([[2]], np.uint8)}, True),
        ("t = 'x'", {"t": "x"}, True),
        ("n = 't'", {"n": 1}, "\"n\" is a number; n = 't' needs a text"),
        ("temp * 2", {"temp": "5"}, '"temp" is a text; temp * 2 needs a number (types: {temp: number} of the codec)'),
        ("temp * 2", {"temp": True}, 2),
        ("lower(temp)", {"temp": True}, '"temp" is a boolean; lower(temp) needs a text'),
        (
            "n + 1",
            {"n": 2**53 + 1},
            '"n" is 9007199254740993, an integer beyond 2^53, which expressions would round; compare it exactly with '
            "{n: 9007199254740993}",
        ),
        (
            "tags = 'x'",
            {"tags": ["x", "y"]},
            '"tags" is of type LIST, and an expression reads numbers, texts and booleans; of an element the codec '
            "makes a value: fields: {tags_0: /tags/0}",
        ),
        (
            "o is null",
            {"o": Data({"x": 1})},
            '"o" is of type DATA, and an expression reads numbers, texts and booleans; of a value inside it the codec '
            "makes a value: fields: {NAME: /o/NAME}",
        ),
    ],
    ids=str,
)
def test_numbers_missing_values_and_types_are_as_documented(text: str, values: dict[str, Any], expected: Any) -> None:
    got = result(text, **values)
    assert (got, type(got)) == (expected, type(expected))


def test_arrays_images_and_bytes_fail_their_records() -> None:
    picture = Image(np.zeros((1, 1, 3), np.uint8))
    for value, name in ((np.zeros(3), "NDARRAY of shape [3]"), (b"x", "BYTES"), (picture, "IMAGE")):
        assert f'"v" is of type {name}, and an expression reads numbers' in result("v is null", v=value)


def test_a_value_that_cannot_be_decoded_fails_its_record_alone() -> None:
    def decode(entries: Any) -> Column:
        bad: dict[int, Exception] = {row: ValueError("broken") for row, each in enumerate(entries) if each == b"bad"}
        if bad:
            raise RowsFailed(bad)
        return Column.of([MISSING if each is None else float(each) for each in entries])

    batch = Batch({"n": WireColumn([b"1", b"bad", None, b"3"], decode)}, 4)
    failures: dict[int, Exception] = {}
    (part,) = Evaluation([Expression("n + 1")]).run(batch, failures)
    assert part.rows is not None
    assert (part.rows.tolist(), part.results[0].to_list()) == ([0, 2, 3], [2.0, None, 4.0])
    assert "broken" in str(failures[1])


def test_only_integers_are_too_large_not_the_numbers_beside_them_or_what_stands_in_for_missing_ones() -> None:
    beyond = 2.0**54
    numbers = NumbersColumn(np.array([1.0, beyond, beyond]), np.array([True, False, True]))
    gaps = DenseColumn(np.array([1, 2**54, 2**54]), ValueType.INT64, np.array([True, False, True]))
    for column, expected in ((numbers, [2.0, beyond]), (gaps, [2.0, None])):
        failures: dict[int, Exception] = {}
        (part,) = Evaluation([Expression("n + 1")]).run(Batch({"n": column}, 3), failures)
        assert part.rows is not None
        assert (part.rows.tolist(), part.results[0].to_list()) == ([0, 1], expected)
        assert list(failures) == [2]


def test_an_empty_batch_has_no_results() -> None:
    assert list(Evaluation([Expression("a + 1")]).run(Batch({}, 0), {})) == []
