"""JOIN: records of several topics that belong together come out as one, however they are batched or restarted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statefulrun import Outcomes, StatefulRun, record

import pipelines
from pipelines import Data, Join
from pipelines.errors import DefinitionError, StreamerError
from pipelines.runners.keyed.join import MOST_AT_ONCE
from pipelines.runners.state.item import Item

TWO = {"left": "camera", "right": "torque"}
STEP = Join(by="part", topics=TWO, within=5, missing="emit")


def of(topic: str, part: Any, seconds: float | None, *, partition: int = 0, **values: Any) -> Data:
    """A record of a topic; each partition of a topic is a lane."""
    made = record({"part": part, **values}, seconds, lane=f"{topic}-{partition}", key=str(part).encode())
    assert made.record is not None
    return Data(made, record=replace(made.record, topic=topic, partition=partition))


def pairs(outcomes: Outcomes) -> list[tuple[Any, ...]]:
    """The numbers `n` of the records in each result, in the order of the topics; `None` for one that is missing."""
    return [
        tuple(
            each[side]["n"] if side in each else None
            for side in ("left", "right", "third")
            if side != "third" or side in each
        )
        for each in outcomes.values
    ]


def test_records_of_two_topics_are_one_record_of_the_one_that_came_last() -> None:
    run = StatefulRun(STEP)
    outcomes = run.run([of("camera", "p1", 0, ok=True), of("torque", "p1", 2, nm=3.5)])
    (result,) = outcomes.emitted
    assert result.row == 1
    assert result.values == {
        "part": "p1",
        "left": Data({"part": "p1", "ok": True}),
        "right": Data({"part": "p1", "nm": 3.5}),
    }
    assert outcomes.failed == {}


def test_it_does_not_matter_which_topic_is_first_and_arrays_keep_their_type() -> None:
    run = StatefulRun(STEP)
    trace = np.arange(6, dtype=np.float32).reshape(2, 3)
    run.run([of("torque", "p1", 1, trace=trace)])
    run.reload()
    outcomes = run.run([of("camera", "p1", 0)])
    (values,) = outcomes.values
    assert values["right"]["trace"].dtype == np.float32
    assert values["right"]["trace"].tolist() == trace.tolist()


def test_records_that_are_too_far_apart_are_not_joined() -> None:
    outcomes = StatefulRun(STEP).run([of("camera", "p", 0, n=0), of("torque", "p", 5.001, n=1)])
    assert outcomes.emitted == []
    outcomes = StatefulRun(STEP).run([of("camera", "p", 0, n=0), of("torque", "p", 5, n=1)])
    assert pairs(outcomes) == [(0, 1)]


def test_several_records_of_a_key_are_joined_in_their_order() -> None:
    records = [
        of("camera", "p", 0, n=0),
        of("camera", "p", 1, n=1),
        of("torque", "p", 2, n=2),
        of("torque", "p", 2, n=3),
    ]
    assert pairs(StatefulRun(STEP).run(records)) == [(0, 2), (1, 3)]


def test_keys_of_other_types_and_partitions_are_apart() -> None:
    records = [
        of("camera", 1, 0),
        of("torque", "1", 0),
        of("torque", True, 0),
        of("torque", 1, 0, partition=1),
        of("camera", 1, 0, partition=1),
    ]
    outcomes = StatefulRun(STEP).run(records)
    assert [each.row for each in outcomes.emitted] == [4]


def test_partitions_of_the_same_number_of_another_source_are_apart() -> None:
    other = of("torque", "p", 0)
    assert other.record is not None
    other = Data(other, record=replace(other.record, source="second", lane="second-0"))
    assert StatefulRun(STEP).run([of("camera", "p", 0), other]).emitted == []


def test_one_topic_for_both_lanes_of_a_bus_without_partitions_is_joined_too() -> None:
    lane = [of("camera", "p", 0, n=0), of("torque", "p", 0, n=1)]
    same = [Data(each, record=replace(each.record, lane="session")) for each in lane if each.record is not None]
    run = StatefulRun(STEP)
    run.run(same[:1])
    run.reload()
    assert pairs(run.run(same[1:])) == [(0, 1)]


def test_a_record_is_given_alone_once_the_other_topic_has_passed_it() -> None:
    run = StatefulRun(STEP)
    run.run([of("camera", "p", 0, n=0), of("torque", "p", 5.001, n=1)])
    assert pairs(run.tick(0)) == [(0, None)]
    assert run.outcomes.emitted[0].row == -1
    run.save()
    assert len(run.saved) == 1


def test_lateness_has_it_wait_longer_for_records_in_disorder() -> None:
    step = Join(by="part", topics=TWO, within=5, lateness=10, missing="emit")
    run = StatefulRun(step)
    run.run([of("camera", "p", 0, n=0), of("torque", "p", 9, n=1)])
    assert pairs(run.tick(0)) == []
    assert pairs(run.run([of("torque", "p", 4, n=2)])) == [(0, 2)]


def test_a_record_of_another_key_passes_nothing() -> None:
    run = StatefulRun(STEP)
    run.run([of("camera", "p", 0, n=0), of("torque", "q", 3000, n=1)])
    assert pairs(run.tick(0)) == []
    assert pairs(run.run([of("torque", "p", 1, n=2)])) == [(0, 2)]


def test_a_record_waits_by_the_clock_when_nothing_comes_and_a_restart_begins_anew() -> None:
    run = StatefulRun(Join(by="part", topics=TWO, within=5, wait=3, missing="emit"))
    run.run([of("camera", "p", 0, n=0)])
    for second in range(3):
        assert run.tick(second).emitted == []
    run.reload()
    for second in range(100, 103):
        assert run.tick(second).emitted == []
    assert pairs(run.tick(103)) == [(0, None)]
    run.save()
    assert run.saved == {}


def test_by_default_it_waits_ten_seconds_longer_than_the_records_may_be_apart() -> None:
    run = StatefulRun(STEP)
    run.run([of("camera", "p", 0, n=0)])
    for second in range(15):
        assert run.tick(second).emitted == []
    assert pairs(run.tick(15)) == [(0, None)]


def test_a_long_pause_is_not_waiting() -> None:
    run = StatefulRun(STEP)
    run.run([of("camera", "p", 0, n=0)])
    run.tick(0)
    assert run.tick(10_000).emitted == []


def test_a_record_waits_on_while_there_is_a_backlog() -> None:
    run = StatefulRun(Join(by="part", topics=TWO, within=5, wait=3, missing="emit"))
    run.tick(0)
    run.run([of("camera", "p", 0, n=0)])
    for second in range(1, 100):
        assert run.tick(second, 2.9).emitted == []
    assert pairs(run.tick(100, 3)) == [(0, None)]


def test_a_record_waits_on_while_the_other_topic_has_a_backlog() -> None:
    run = StatefulRun(Join(by="part", topics=TWO, within=5, wait=3, missing="emit"))
    run.tick(0)
    run.run([of("camera", "p", 1000, n=0)])
    for second in range(1, 100):
        run.run([of("torque", f"q{second}", 10 * second, n=-1)])
        assert (0, None) not in pairs(run.tick(second))
    assert (0, 7) in pairs(run.run([of("torque", "p", 1001, n=7)]))


@pytest.mark.parametrize(
    ("before", "after"),
    [([], [2000]), ([10], []), ([2000], [10])],
    ids=["later records come", "older records came before", "an older record comes late"],
)
def test_a_record_waits_no_longer_for_a_topic_that_is_not_behind_it(before: list[int], after: list[int]) -> None:
    run = StatefulRun(Join(by="part", topics=TWO, within=5, wait=3, missing="emit"))
    run.tick(0)
    run.run([of("torque", f"q{time}", time, n=-1) for time in before])
    run.tick(1)
    run.run([of("camera", "p", 1000, n=0)])
    run.tick(2)
    run.run([of("torque", f"q{time}", time, n=-1) for time in after])
    run.tick(3)
    assert (0, None) in pairs(run.tick(4))


def test_a_record_without_another_is_a_dead_letter_that_says_what_is_missing() -> None:
    step = Join(by=("line", "part"), topics=TWO, within=5)
    run = StatefulRun(step)
    run.run([of("camera", "p", 0, line=3, n=0)])
    result = run.runner.flush()
    (batch,) = result.timed
    assert (
        batch.to_list()[0].to_json()
        == Data({"line": 3, "part": "p", "left": Data({"part": "p", "line": 3, "n": 0})}).to_json()
    )
    (error,) = result.failed.values()
    assert str(error) == "there is no record of right (torque) with line 3, part 'p' within 5 s of it"
    assert [batch.row(0).record.key, batch.row(0).record.topic] == [b"p", "camera"]  # type: ignore[union-attr]


def test_what_is_missing_may_be_dropped() -> None:
    run = StatefulRun(Join(by="part", topics=TWO, within=5, missing="drop"))
    run.run([of("camera", "p", 0)])
    run.save()
    assert run.flush().emitted == []
    run.save()
    assert run.saved == {}


def test_three_topics_are_joined_when_the_last_of_the_three_comes() -> None:
    step = Join(by="part", topics={**TWO, "third": "^scale/"}, within=5, missing="emit")
    run = StatefulRun(step)
    outcomes = run.run([of("camera", "p", 0, n=0), of("scale/7", "p", 3, n=1)])
    assert outcomes.emitted == []
    assert pairs(run.run([of("torque", "p", 1, n=2)])) == [(0, 2, 1)]


def test_of_three_topics_all_have_to_be_within_the_time_of_each_other() -> None:
    step = Join(by="part", topics={**TWO, "third": "scale"}, within=5, missing="emit")
    records = [of("camera", "p", 6, n=0), of("scale", "p", 14, n=1), of("torque", "p", 10, n=2)]
    assert StatefulRun(step).run(records).emitted == []
    # A later one of the first topic fits both.
    assert pairs(StatefulRun(step).run([of("camera", "p", 9, n=3), *records])) == [(3, 2, 1)]


def test_a_record_of_another_topic_or_of_none_fails_with_the_names() -> None:
    outcomes = StatefulRun(STEP).run([of("cameras", "p", 0), of("camera", "p", 0)])
    assert outcomes.failed.keys() == {0}
    assert 'topic "cameras"; did you mean "camera"?' in outcomes.failed[0]
    assert "camera (left), torque (right)" in outcomes.failed[0]
    with pipelines.Sequence([STEP]).open() as executor:
        (outcome,) = executor.run_many([Data({"part": "p"})])
        assert "it has no topic" in str(outcome)


@pytest.mark.parametrize("place", [0, 500, 999])
def test_one_bad_record_of_a_thousand_fails_alone(place: int) -> None:
    records = [of(("camera", "torque")[n % 2], n // 2, 0) for n in range(1000)]
    del records[place]["part"]
    outcomes = StatefulRun(STEP).run(records)
    assert len(outcomes.emitted) == 499
    assert 'no value "part"' in outcomes.failed[place]


def test_a_record_of_the_future_and_one_whose_time_cannot_be_read_fail() -> None:
    step = Join(by="part", topics=TWO, within=5, time={"field": "at", "unit": "s"})
    outcomes = StatefulRun(step).run(
        [of("camera", "p", 0, at=1e11), of("torque", "p", 0, at="soon"), of("camera", "p", 0, at=1)]
    )
    assert outcomes.failed.keys() == {0, 1}
    assert "in the future" in outcomes.failed[0]


def test_beyond_most_the_one_that_waits_longest_waits_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    run = StatefulRun(Join(by="part", topics=TWO, within=5, most=2, missing="emit"))
    run.run([of("camera", name, 0, n=n) for n, name in enumerate("abc")])
    assert "more than 2 records" in caplog.text
    assert run.run([of("torque", "a", 0, n=9)]).emitted == []
    assert pairs(run.tick(0)) == [(0, None)]
    assert pairs(run.run([of("torque", "b", 0, n=8)]))[-1] == (1, 8)


def test_a_record_that_cannot_be_kept_fails_alone_and_waits_no_longer() -> None:
    run = StatefulRun(STEP)
    outcomes = run.run([of("camera", "p", 0, text="\ud800"), of("camera", "q", 0, n=1)])
    assert outcomes.failed.keys() == {0}
    assert 'key "text" cannot be written' in outcomes.failed[0]
    run.save()
    assert {key for _, key, _ in run.saved} == {'"q"'}
    assert run.run([of("torque", "p", 1, n=2)]).emitted == []
    assert pairs(run.run([of("torque", "q", 1, n=3)])) == [(1, 3)]


def test_a_record_that_cannot_be_kept_and_waits_no_longer_in_the_same_batch_fails() -> None:
    run = StatefulRun(Join(by="part", topics=TWO, within=5, most=1, missing="emit"))
    outcomes = run.run([of("camera", "p", 0, text="\ud800"), of("camera", "q", 0, n=1)])
    assert outcomes.failed.keys() == {0}
    assert run.tick(0).emitted == []
    assert pairs(run.flush()) == [(1, None)]


def test_a_record_that_cannot_be_kept_is_joined_within_its_batch() -> None:
    outcomes = StatefulRun(STEP).run([of("camera", "p", 0, n=0, text="\ud800"), of("torque", "p", 1, n=1)])
    assert (pairs(outcomes), outcomes.failed) == ([(0, 1)], {})


def test_how_far_a_partition_was_before_it_went_says_nothing_when_it_comes_again() -> None:
    run = StatefulRun(Join(by="part", topics=TWO, within=5, wait=3, missing="emit"))
    run.tick(0)
    run.run([of("torque", "p", 2000, n=-1), of("camera", "q", 2000, n=-1)])
    run.runner.forget([("torque-0", 0), ("camera-0", 0)])
    run.tick(1)
    run.run([of("camera", "p", 1000, n=0)])
    for second in range(2, 20):
        # These are behind it: the topic has a backlog.
        run.run([of("torque", f"r{second}", second, n=-1)])
        assert (0, None) not in pairs(run.tick(second))


def test_many_that_wait_in_vain_come_out_part_by_part() -> None:
    run = StatefulRun(Join(by="part", topics=TWO, within=5, wait=1, missing="emit"))
    run.run([of("camera", n, 0, n=n) for n in range(MOST_AT_ONCE + 1)])
    run.tick(0)
    assert len(run.tick(1).emitted) == MOST_AT_ONCE
    assert len(run.tick(1).emitted) == MOST_AT_ONCE + 1


def test_what_waited_in_vain_comes_out_after_a_restart_too() -> None:
    run = StatefulRun(STEP)
    run.run([of("camera", "p", 0, n=0), of("torque", "p", 6, n=1)])
    run.reload()
    # It is not joined any more, whatever comes.
    assert run.run([of("torque", "p", 1, n=2)]).emitted == []
    assert pairs(run.tick(0)) == [(0, None)]


def test_pairs_of_one_batch_are_never_saved() -> None:
    run = StatefulRun(STEP)
    run.run([of("camera", "p", 0), of("torque", "p", 0)])
    assert run.save() == 0


def test_a_lane_that_ended_is_forgotten_and_stays_in_the_store() -> None:
    run = StatefulRun(STEP)
    run.run([of("camera", "p", 0), of("torque", "q", 0)])
    run.save()
    run.runner.forget([("camera-0", 0)])
    assert list(run.runner.changes()) == []
    assert run.run([of("torque", "p", 0)]).emitted == []


def test_what_a_lane_that_ended_did_since_the_last_save_is_not_saved() -> None:
    run = StatefulRun(STEP)
    run.run([of("camera", "p", 0)])
    run.save()
    run.run([of("torque", "p", 0), of("camera", "q", 0)])
    run.runner.forget([("camera-0", 0)])
    assert list(run.runner.changes()) == []


def test_state_of_another_version_or_damaged_names_its_key() -> None:
    run = StatefulRun(STEP)
    run.run([of("camera", "p", 0)])
    run.save()
    (value,) = run.saved.values()
    with pytest.raises(StreamerError, match=r'key "p" are of another version'):
        run.runner.load("lane", [Item('"p"', 0, b"\x07" + value[1:])])
    for damaged in (value[:5], value[:20], value[:-3], value.replace(b"left", b"lift"), b"\x01"):
        with pytest.raises(StreamerError, match="damaged"):
            run.runner.load("lane", [Item('"p"', 0, damaged)])


class Arrival(NamedTuple):
    side: int
    key: str
    seconds: int


def expected(arrivals: Sequence[Arrival], within: int) -> list[tuple[int, int]]:
    """The pairs, as a person would find them: of those that wait and fit, the one with the earliest time."""
    waiting: list[int] = []
    made = []
    for n, (side, key, seconds) in enumerate(arrivals):
        others = [each for each in waiting if arrivals[each].key == key and arrivals[each].side != side]
        gone = [each for each in others if arrivals[each].seconds < seconds - within]
        waiting = [each for each in waiting if each not in gone]
        fits = [each for each in others if abs(arrivals[each].seconds - seconds) <= within]
        if fits:
            best = min(fits, key=lambda each: (arrivals[each].seconds, each))
            waiting.remove(best)
            made.append((best, n) if side else (n, best))
        else:
            waiting.append(n)
    return made


@settings(deadline=None)
@given(
    st.lists(st.builds(Arrival, st.integers(0, 1), st.sampled_from("ab"), st.integers(0, 30)), max_size=40),
    st.sampled_from([1, 7, 512]),
    st.sets(st.integers(0, 39)),
    st.booleans(),
)
def test_portions_and_restarts_make_no_difference(
    arrivals: list[Arrival], portion: int, reloads: set[int], ticks: bool
) -> None:
    records = [of(("camera", "torque")[side], key, seconds, n=n) for n, (side, key, seconds) in enumerate(arrivals)]
    run = StatefulRun(STEP)
    if ticks:
        for start in range(0, len(records), 7):
            run.run(records[start : start + 7], portion, {at - start for at in reloads if start <= at < start + 7})
            run.tick(0)
    else:
        run.run(records, portion, reloads)
    made = expected(arrivals, 5)
    assert [pair for pair in pairs(run.outcomes) if None not in pair] == made
    assert run.outcomes.failed == {}
    run.flush()
    # Each record is in one result, and nothing is left.
    numbers = [n for pair in pairs(run.outcomes) for n in pair if n is not None]
    assert sorted(numbers) == list(range(len(arrivals)))
    run.save()
    assert run.saved == {}


@settings(deadline=None)
@given(
    st.lists(st.builds(Arrival, st.integers(0, 2), st.just("a"), st.integers(0, 20)), max_size=30),
    st.sampled_from([1, 7]),
    st.sets(st.integers(0, 29)),
)
def test_three_topics_give_the_same_in_any_portions(arrivals: list[Arrival], portion: int, reloads: set[int]) -> None:
    step = Join(by="part", topics={**TWO, "third": "scale"}, within=5, missing="emit")
    topics = ("camera", "torque", "scale")
    records = [of(topics[side], key, seconds, n=n) for n, (side, key, seconds) in enumerate(arrivals)]
    at_once, run = StatefulRun(step), StatefulRun(step)
    at_once.run(records)
    run.run(records, portion, reloads)
    assert pairs(run.outcomes) == pairs(at_once.outcomes)
    for each in run.outcomes.values:
        seconds = [arrivals[each[side]["n"]].seconds for side in ("left", "right", "third")]
        assert max(seconds) - min(seconds) <= 5
    assert sorted(map(str, run.flush().values)) == sorted(map(str, at_once.flush().values))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"topics": {"left": "a"}}, "at least 2"),
        ({"topics": {"left": "a", "right": "a"}}, "stands twice"),
        ({"topics": {"left": "a", "part": "b"}}, "choose another name"),
        ({"topics": {"left": "a", "right": ""}}, "names no topic"),
        ({"topics": {"left": "a", "right": "^("}}, "no regular expression"),
        ({"topics": "a"}, "topics"),
        ({"within": 0}, "within"),
        ({"within": 0.0001}, "1ms"),
        ({"within": "soon"}, "within"),
        ({"missing": "ignore"}, "missing"),
        ({"most": 0}, "most"),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(fields: dict[str, Any], says: str) -> None:
    whole = {"@type": "JOIN", "by": "part", "topics": TWO, "within": "5s", **fields}
    with pytest.raises(DefinitionError, match=says):
        pipelines.loads(f"steps: [{whole}]".replace("'", '"'))
