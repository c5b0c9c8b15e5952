"""Which variant of the models a record gets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.codec import RecordsOrigin
from connectors.records import Lane, Records, Span
from pipelines import Batch, Data
from pipelines.data.columns import ObjectColumn
from pipelines.errors import RowsFailed, StreamerError
from streamer.models.choice import Choice

ROWS = itertools.count(1000, 1_000_003)


def batch_of(count: int, first: int = 0, keys: list[bytes | None] | None = None, **values: object) -> Batch:
    """Records that follow each other on their bus."""
    places = np.arange(first, first + count)
    lane = Lane("kafka", "t", 0)
    records = Records("kafka", [b""] * count, keys, places, [Span(lane, 0, count)], ["t"], [0], 0)
    datas = [Data({name: each[at] for name, each in values.items() if each[at] is not None}) for at in range(count)]  # type: ignore[index]
    # Row numbers go on while positions come again.
    row = next(ROWS)
    return Batch.of(datas, row).with_origin(RecordsOrigin(records, row))


def codes(choice: Choice, batch: Batch) -> list[int]:
    chosen = choice.codes(batch)
    return [chosen] * batch.size if isinstance(chosen, int) else chosen.tolist()


def test_records_are_divided_as_the_weights_say() -> None:
    counts = np.bincount(codes(Choice({"current": 90, "next": 10}), batch_of(2084)))
    # Within four standard deviations.
    assert 154 <= counts[1] <= 263


def test_a_record_that_is_delivered_again_gets_the_same_variant_in_whatever_batch_it_is() -> None:
    choice = Choice({"current": 50, "next": 50})
    whole = codes(choice, batch_of(100))
    assert codes(choice, batch_of(40, first=60)) == whole[60:]
    assert set(whole) == {0, 1}


def test_sticky_records_of_one_key_get_one_variant_and_few_change_it_when_weights_do() -> None:
    choice = Choice({"current": 90, "next": 10}, "key")
    keys: list[bytes | None] = [b"device %d" % (number % 500) for number in range(1000)]
    before = codes(choice, batch_of(1000, keys=keys))
    assert before[:500] == before[500:]
    choice.weigh("next", 20)
    after = codes(choice, batch_of(1000, keys=keys))
    assert 20 < sum(after[:500]) - sum(before[:500]) < 90
    assert all(new for old, new in zip(before, after, strict=True) if old), "what it had stays with it"


VALUES = st.one_of(st.none(), st.text(max_size=3), st.integers(-99, 99), st.floats(), st.booleans())


@given(st.lists(VALUES, min_size=1))
def test_sticky_values_may_be_of_any_type_or_missing(values: list[object]) -> None:
    choice = Choice({"current": 1, "next": 1}, "values.device")
    assert codes(choice, batch_of(len(values), device=values)) == codes(choice, batch_of(len(values), device=values))


def test_a_value_that_cannot_be_read_costs_only_its_own_record_its_place() -> None:
    choice = Choice({"current": 1, "next": 1}, "values.device")
    batch = batch_of(40, device=[f"d{number}" for number in range(40)])
    whole = codes(choice, batch)

    class Broken(ObjectColumn):
        def values(self) -> list[object]:
            raise RowsFailed({3: ValueError("half of a number")})

    column = batch.column("device")
    broken = batch.with_columns({"device": Broken([column[row] for row in range(40)])})
    made = codes(choice, broken)
    assert [*made[:3], *made[4:]] == [*whole[:3], *whole[4:]]


def test_sticky_records_without_a_key_are_divided_by_their_positions() -> None:
    keys: list[bytes | None] = [None, *[b"one"] * 2] * 100
    made = codes(Choice({"current": 1, "next": 1}, "key"), batch_of(300, keys=keys))
    assert set(made[::3]) == {0, 1}
    assert len({*made[1::3], *made[2::3]}) == 1
    assert set(codes(Choice({"current": 1, "next": 1}, "key"), batch_of(300))) == {0, 1}


@pytest.mark.parametrize("weights", [{"a": 0, "b": 3, "c": 0}, {"a": 0, "b": 1, "c": 1}, {"a": 2, "b": 0, "c": 5}])
def test_a_variant_without_a_weight_gets_no_record(weights: dict[str, float]) -> None:
    made = set(codes(Choice(weights), batch_of(2000)))
    assert made == {number for number, weight in enumerate(weights.values()) if weight}


@pytest.mark.parametrize(
    ("name", "weight", "error"),
    [
        ("nxt", 5, 'there is no variant "nxt"; did you mean "next"'),
        ("next", -1, "is no weight"),
        ("next", float("nan"), "is no weight"),
        ("next", float("inf"), "is no weight"),
    ],
)
def test_a_weight_that_is_none_changes_nothing(name: str, weight: float, error: str) -> None:
    choice = Choice({"current": 1, "next": 1})
    with pytest.raises(StreamerError, match=error):
        choice.weigh(name, weight)
    assert choice.weights == {"current": 1, "next": 1}


def test_the_last_weight_cannot_become_0() -> None:
    choice = Choice({"current": 1, "next": 1})
    choice.weigh("current", 0)
    with pytest.raises(StreamerError, match="all weights would be 0"):
        choice.weigh("next", 0)
    assert codes(choice, batch_of(3)) == [1, 1, 1]
