"""What is known of a key's state, record by record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.runners.keyed.standing import LOW, News, Rules, Standing
from pipelines.runners.state.recordkeys import distinct

RECORDS = st.lists(st.tuples(st.sampled_from([None, True, False, 1, "on"]), st.integers(0, 5000)), max_size=20)


@pytest.mark.parametrize("rules", [Rules(2, None, 1000, ()), Rules(1, 2000, None, ())], ids=["records", "time"])
@given(records=RECORDS)
def test_all_that_is_known_is_known_again_after_a_restart(rules: Rules, records: list[tuple[Any, int]]) -> None:
    standing = Standing(None)
    for value, time in records:
        standing.heard(distinct(value), time, rules)
        assert Standing.load(json.loads(json.dumps(standing.saved()))) == standing


def test_a_state_that_has_come_is_no_longer_one_that_may_come() -> None:
    standing = Standing(None)
    assert standing.heard("on", 5, Rules(1, None, None, ())) is not None
    assert (standing.state, standing.pending) == ("on", None)


def test_news_of_a_change_has_both_states_and_counts_from_where_the_new_one_began() -> None:
    standing = Standing(None)
    rules = Rules(3, None, None, ())
    assert [standing.heard("idle", time, rules) for time in (3, 4, 5)] == [None, None, News("idle", None, 3, 3)]
    # A record that came late began it; booleans are values again.
    news = News(True, "idle", 8, 3)
    assert [standing.heard(distinct(True), time, rules) for time in (9, 8, 10)] == [None, None, news]
    assert (standing.state, standing.since, standing.count, standing.reported) == (distinct(True), 8, 3, 10)
    assert standing.pending is None


def test_a_reminder_has_the_state_twice_and_the_next_one_is_as_long_after_it() -> None:
    standing = Standing(distinct(False))
    rules = Rules(1, None, 10, (LOW,))
    times = (100, 109, 111, 120, 121)
    assert [standing.heard(distinct(True), time, rules) for time in times] == [
        News(True, False, 100, 1),
        None,
        News(True, True, 100, 3),
        None,
        News(True, True, 100, 5),
    ]
    assert standing.reported == 121
