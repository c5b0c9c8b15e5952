"""TRACK: one object, one id, whatever the frames, cameras and clocks do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from camerarecords import box, frame
from hypothesis import given
from hypothesis import strategies as st
from outcomes import result_of, results_of
from pydantic import ValidationError

import pipelines
from pipelines import BoundingBox, Data, StepError, Track
from pipelines.runners.runner import OpenContext
from pipelines.runners.video import lanerunner
from pipelines.runners.video.association import assigned, overlaps
from pipelines.runners.video.kalman import PLACE_VARIANCE, SPEED_VARIANCE, BoxFilters
from pipelines.runners.video.laneclock import LaneClock
from pipelines.runners.video.track import TrackRunner
from pipelines.runners.video.tracker import Tracker, TrackerSettings

RATE = 30


def tracked(records: Sequence[Data], **fields: Any) -> list[Data]:
    with pipelines.Sequence([Track(**fields)]).open() as executor:
        return results_of(executor.run_many(list(records)))


def ids(records: Sequence[Data], **fields: Any) -> list[list[int]]:
    return [one["ids"] for one in tracked(records, **fields)]


def walk(count: int, x: float = 0.2, step: float = 0.01, **fields: Any) -> list[BoundingBox]:
    """A box that goes to the right."""
    return [box(x + step * at, 0.5, **fields) for at in range(count)]


def frames(*boxes: Sequence[BoundingBox], rate: float = RATE, start: float = 0.0, **fields: Any) -> list[Data]:
    """Frames with the boxes of several objects, of each one in turn."""
    listed = [[one for one in at if one is not None] for at in itertools.zip_longest(*boxes)]
    return [frame({"boxes": one}, start + at / rate, **fields) for at, one in enumerate(listed)]


def test_an_object_has_one_id_from_the_frame_that_confirms_it() -> None:
    assert ids(frames(walk(5))) == [[0], [1], [1], [1], [1]]
    assert ids(frames(walk(5)), hits=3) == [[0], [0], [1], [1], [1]]
    assert ids(frames(walk(3)), hits=1) == [[1], [1], [1]]


def test_ids_lie_beside_the_boxes_in_their_order_and_all_else_stays() -> None:
    first, second = walk(4), walk(4, x=0.8, step=-0.01)
    found = tracked([*frames(first, second)[:3], frame({"n": 7, "boxes": [second[3], first[3]]}, 3 / RATE)])
    assert sorted(found[3]) == ["boxes", "ids", "n"]
    assert found[2]["ids"] == [1, 2]
    assert found[3]["ids"] == [2, 1]
    assert found[3]["boxes"] == [second[3], first[3]]


@pytest.mark.parametrize("algorithm", ["SORT", "BYTE_TRACK"])
def test_an_object_that_the_detector_misses_for_some_frames_keeps_its_id(algorithm: str) -> None:
    given = frames(walk(12))
    for missed in (5, 6, 9):
        given[missed]["boxes"] = []
    found = ids(given, algorithm=algorithm)
    assert [found[at] for at in (4, 7, 8, 10, 11)] == [[1]] * 5
    assert found[5] == []


def test_a_box_that_is_seen_once_is_never_a_track() -> None:
    noise = [[box(0.1 * at, 0.1 * at)] for at in range(1, 9)]
    assert ids([frame({"boxes": one}, at / RATE) for at, one in enumerate(noise)]) == [[0]] * 8


def test_boxes_of_low_scores_go_on_with_a_track_and_never_begin_one() -> None:
    seen = [box(0.2 + 0.01 * at, 0.5, score=0.2 if at in (4, 5, 6) else 0.9) for at in range(9)]
    assert ids(frames(seen))[3:] == [[1]] * 6
    assert ids(frames(seen), algorithm="SORT")[3:] == [[1]] * 6
    assert ids(frames(seen), algorithm="SORT", low_threshold=0.5)[3:] == [[1], [0], [0], [0], [1], [1]]
    assert ids(frames(walk(6, score=0.3))) == [[0]] * 6
    assert ids(frames(walk(6, score=0.05))) == [[0]] * 6
    assert ids(frames(walk(4, score=None)))[3] == [1]


@pytest.mark.parametrize("algorithm", ["SORT", "BYTE_TRACK"])
def test_an_object_half_hidden_keeps_its_id_though_it_was_missed_meanwhile(algorithm: str) -> None:
    given = frames([box(0.2 + 0.01 * at, 0.5, score=0.2 if at > 4 else 0.9) for at in range(12)])
    given[6]["boxes"] = []
    assert [one for one in ids(given, algorithm=algorithm)[3:] if one] == [[1]] * 8


def test_boxes_of_another_label_are_another_object() -> None:
    given = [box(0.5, 0.5, label="cat" if at < 4 else "dog") for at in range(8)]
    assert ids(frames(given)) == [[0], [1], [1], [1], [0], [2], [2], [2]]


def test_an_object_that_is_gone_for_too_long_comes_back_as_another() -> None:
    still = [box(0.5, 0.5)] * 4
    assert ids([*frames(still), *frames(still, start=0.6)])[-1] == [1]
    assert ids([*frames(still), *frames(still, start=5.0)])[-1] == [2]
    assert ids([*frames(still), *frames(still, start=5.0)], max_age=10.0)[-1] == [1]


def test_dropped_frames_are_time_that_passed() -> None:
    """A fast object: after three frames of thirty a second, one after a quarter of a second has moved by 0.3."""
    times = [at / RATE for at in range(10)] + [9 / RATE + 0.25 * at for at in range(1, 4)]
    given = [frame({"boxes": [box(0.05 + 1.2 * at, 0.5)]}, at) for at in times]
    assert ids(given)[2:] == [[1]] * 11


def test_each_camera_has_its_own_tracks_and_ids_are_of_all() -> None:
    a = frames(walk(4), camera="a", lane=("a", 1))
    b = frames(walk(4), camera="b", lane=("b", 1))
    found = tracked([one for pair in zip(a, b, strict=True) for one in pair])
    assert [one["ids"] for one in found] == [[0], [0], [1], [2], [1], [2], [1], [2]]


def test_cameras_that_share_a_lane_are_told_by_their_topics_or_their_keys() -> None:
    """Devices of one MQTT session have topics of their own; in Kafka several may share a partition."""
    by_topic = [frames(walk(4), camera=name) for name in ("a", "b")]
    mixed = [one for pair in zip(*by_topic, strict=True) for one in pair]
    assert [one["ids"] for one in tracked(mixed)][-2:] == [[1], [2]]
    by_key = [frames(walk(4), key=name) for name in (b"a", b"b")]
    mixed = [one for pair in zip(*by_key, strict=True) for one in pair]
    assert [one["ids"] for one in tracked(mixed, by_key=True)][-2:] == [[1], [2]]
    assert [one["ids"] for one in tracked(mixed)][-2:] == [[1], [1]]


def test_cameras_without_end_take_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanerunner, "MOST_CAMERAS", 3)
    runner = TrackRunner(Track(by_key=True), OpenContext())
    for name in range(10):
        runner.run_batch(pipelines.Batch.of(frames(walk(3), key=b"%d" % name)))
    assert len(runner._cameras) == 3


def test_a_camera_that_connects_again_begins_anew_and_ids_are_not_used_again() -> None:
    found = ids([*frames(walk(4), lane=("gate", 1)), *frames(walk(4), lane=("gate", 2), start=0.2)])
    assert found == [[0], [1], [1], [1], [0], [2], [2], [2]]


def test_tracks_of_a_lane_are_forgotten_when_it_has_ended() -> None:
    with pipelines.Sequence([Track()]).open() as executor:
        assert executor.run_many(frames(walk(4)))[3]["ids"] == [1]  # type: ignore[index, call-overload]
        executor.forget([("gate", 1), ("unknown", 7)])
        again = results_of(executor.run_many(frames(walk(4), start=0.2)))
        assert [one["ids"] for one in again] == [[0], [2], [2], [2]]


@pytest.mark.parametrize("jump", [-0.4, -3600.0])
def test_a_clock_that_goes_back_loses_no_track(jump: float) -> None:
    given = frames(walk(5)) + frames(walk(10, x=0.25), start=5 / RATE + jump)
    assert ids(given)[2:] == [[1]] * 13


def test_records_without_timestamps_are_frames_of_the_rate_that_is_given() -> None:
    still = [frame({"boxes": [one]}, None) for one in walk(4, step=0.0)]
    gap = [frame({"boxes": []}, None) for _ in range(15)]
    again = [frame({"boxes": [one]}, None) for one in walk(4, step=0.0)]
    assert ids([*still, *gap, *again], frame_rate=30)[-1] == [1]
    assert ids([*still, *gap, *again], frame_rate=5)[-1] == [2]
    assert ids([Data({"boxes": [one]}) for one in walk(4)])[-1] == [1]


def test_fractions_and_pixels_give_the_same() -> None:
    def scaled(one: BoundingBox) -> BoundingBox:
        return BoundingBox.corners(one.x1 * 1920, one.x2 * 1920, one.y1 * 1080, one.y2 * 1080, None, 0.9)

    given = [*walk(8)]
    given[5] = box(0.9, 0.9)
    assert ids(frames(list(map(scaled, given)))) == ids(frames(given))


def test_a_single_box_and_boxes_by_their_centre_are_taken() -> None:
    given = [frame({"boxes": BoundingBox.center(0.5, 0.5, 0.2, 0.1)}, at / RATE) for at in range(4)]
    found = tracked(given)
    assert found[3]["ids"] == [1]
    assert found[3]["boxes"] == BoundingBox.center(0.5, 0.5, 0.2, 0.1)


def test_boxes_without_a_track_can_be_dropped() -> None:
    given = frames(walk(5), [box(0.8, 0.1), None, box(0.8, 0.9), None, box(0.1, 0.9)])  # type: ignore[list-item]
    found = tracked(given, unconfirmed="DROP")
    assert [len(one["boxes"]) for one in found] == [0, 1, 1, 1, 1]
    assert [one["ids"] for one in found] == [[], [1], [1], [1], [1]]


def test_a_track_that_coasts_has_a_box_where_it_is_expected() -> None:
    given = frames(walk(10, label="face"))
    for missed in (6, 7, 8, 9):
        given[missed]["boxes"] = []
    found = tracked(given, coast=2.5 / RATE)
    assert [one["ids"] for one in found[5:]] == [[1], [1], [1], [], []]
    expected = found[7]["boxes"][0]
    assert expected.cx == pytest.approx(0.27, abs=0.01)
    assert expected.label == "face"
    assert expected.probability is None


def test_rows_that_cannot_be_used_fail_alone_and_change_nothing() -> None:
    given = frames(walk(8))
    given[3] = frame({"x": 1}, 3 / RATE)
    given[4] = frame({"boxes": "none"}, 4 / RATE)
    given[5] = frame({"boxes": [box(0.2, 0.2), box(float("nan"), 0.5)]}, 5 / RATE)
    given[6] = frame({"boxes": [box(0.5, 0.5)] * 1001}, 6 / RATE)
    with pipelines.Sequence([Track(bbox_name="boxes")]).open() as executor:
        found = executor.run_many(given)
    errors = [str(one) for one in found if isinstance(one, StepError)]
    assert len(errors) == 4
    for part, text in zip(['"boxes"', "wrong type", "have to be finite", "1001 boxes"], errors, strict=True):
        assert part in text
    assert result_of(found[7])["ids"] == [1]


@pytest.mark.parametrize("number", [1e300, -1e12, float("inf"), float("nan")])
def test_numbers_without_measure_fail_their_own_row(number: float) -> None:
    given = frames(walk(5))
    given[2]["boxes"] = [box(0.5, 0.5), BoundingBox.corners(0, number, 0, 1)]
    with pipelines.Sequence([Track()]).open() as executor:
        found = executor.run_many(given)
    assert isinstance(found[2], StepError)
    assert "have to be finite, and below 1e9" in str(found[2])
    assert result_of(found[4])["ids"] == [1]


def test_boxes_without_area_and_turned_around_do_no_harm() -> None:
    flat = [BoundingBox.corners(0.5, 0.5, 0.5, 0.5, None, 0.9)] * 5
    assert ids(frames(flat)) == [[0]] * 5
    turned = [BoundingBox.corners(0.6, 0.5, 0.6, 0.5, None, 0.9)] * 4
    assert ids(frames(turned))[3] == [1]


def test_settings_that_contradict_each_other_are_refused() -> None:
    for fields in ({"low_threshold": 0.6}, {"coast": 3.0}, {"hits": 0}, {"overlap": 0.0}, {"frame_rate": 0}):
        with pytest.raises(ValidationError):
            Track(**fields)


def crossing(seed: int, count: int = 6, seconds: float = 8.0, rate: float = 30.0) -> Iterator[tuple[float, Any, Any]]:
    """Objects whose ways cross in the middle: time, which objects are seen, and their boxes, in no order.

    Of the boxes 5 % are missing, and a tenth of the frames; each number has an error of 2 % of the object's size.
    """
    random = np.random.default_rng(seed)
    middle, angle = random.uniform(0.4, 0.6, (count, 2)), random.uniform(0, 2 * np.pi, count)
    speed = np.column_stack([np.cos(angle), np.sin(angle)]) * random.uniform(0.05, 0.25, (count, 1))
    size = random.uniform(0.04, 0.12, (count, 1)) * random.uniform(0.8, 1.25, (count, 2))
    met = random.uniform(seconds * 0.3, seconds * 0.7, (count, 1))
    for time in np.arange(0, seconds, 1 / rate):
        if random.random() < 0.1:
            continue
        seen = random.permutation(np.flatnonzero(random.random(count) > 0.05))
        center = (middle + speed * (time - met))[seen] + random.normal(0, 0.02, (len(seen), 2)) * size[seen]
        half = size[seen] * (1 + random.normal(0, 0.02, (len(seen), 2))) / 2
        yield float(time), seen, np.hstack([center - half, center + half])


@pytest.mark.slow
@pytest.mark.parametrize("hits", [2, 3])
@pytest.mark.parametrize("two_stages", [False, True], ids=["SORT", "BYTE_TRACK"])
@pytest.mark.parametrize("rate", [30.0, 10.0])
def test_no_object_changes_its_id_where_ways_cross_and_boxes_are_missed(
    two_stages: bool, rate: float, hits: int
) -> None:
    for seed in range(3):
        settings = TrackerSettings(two_stages, high=0.5, low=0.1, overlap=0.2, hits=hits, max_age=1.0)
        tracker = Tracker(settings, itertools.count(1))
        known: dict[int, set[int]] = {}
        without = total = 0
        for time, seen, corners in crossing(seed, rate=rate):
            found = tracker.update(corners, np.full(len(seen), 0.9), np.full(len(seen), None), time)
            for one, number in zip(seen.tolist(), found.tolist(), strict=True):
                total += 1
                without += number == 0
                if number:
                    known.setdefault(one, set()).add(number)
        assert {one: len(numbers) for one, numbers in known.items()} == dict.fromkeys(range(6), 1)
        assert len(set.union(*known.values())) == 6
        assert without < 0.1 * total


class TestFilters:
    def test_the_same_time_in_one_step_or_in_many_is_the_same_prediction(self) -> None:
        one, many = BoxFilters(), BoxFilters()
        for filters in (one, many):
            filters.add(np.array([[0.1, 0.1, 0.2, 0.3]]))
            for at in range(1, 6):
                filters.predict(0.1)
                filters.correct(np.array([0]), np.array([[0.1, 0.1, 0.2, 0.3]]) + 0.02 * at)
        one.predict(1.0)
        for _ in range(10):
            many.predict(0.1)
        assert np.allclose(one.corners, many.corners)
        assert np.allclose(one._state, many._state)
        assert one.corners[0, 0] == pytest.approx(0.4, abs=0.02)

    @given(st.lists(st.tuples(st.floats(0, 2), st.lists(st.floats(-100, 100), min_size=4, max_size=4)), max_size=20))
    def test_numbers_stay_finite_and_variances_positive(self, steps: list[tuple[float, list[float]]]) -> None:
        filters = BoxFilters()
        filters.add(np.array([[0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 2.0, 2.0]]))
        for seconds, corners in steps:
            filters.predict(seconds)
            low, high = np.minimum(corners[:2], corners[2:]), np.maximum(corners[:2], corners[2:])
            filters.correct(np.array([0, 1]), np.tile(np.concatenate([low, high]), (2, 1)))
        assert np.isfinite(filters.corners).all()
        assert (filters._state[[PLACE_VARIANCE, SPEED_VARIANCE]] >= 0).all()


class TestAssignment:
    @given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 1000))
    def test_the_sum_of_overlaps_is_the_greatest(self, rows: int, columns: int, seed: int) -> None:
        overlap = np.random.default_rng(seed).random((rows, columns))
        found = assigned(overlap, 0.3)
        assert len(set(found[0].tolist())) == len(set(found[1].tolist())) == len(found[0])
        assert (overlap[found] >= 0.3).all()
        # What does not overlap enough counts nothing; what does counts by how much it is above the least.
        gain = np.maximum(overlap - 0.3, 0.0)
        best = 0.0
        small, large = (gain, columns) if rows <= columns else (gain.T, rows)
        for chosen in itertools.permutations(range(large), len(small)):
            best = max(best, sum(small[row, column] for row, column in enumerate(chosen)))
        assert (overlap[found] - 0.3).sum() == pytest.approx(best, abs=1e-9)

    def test_overlap_is_intersection_over_union(self) -> None:
        boxes: npt.NDArray[np.float64] = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [5, 5, 5, 5], [9, 9, 10, 10]], float)
        found = overlaps(boxes, boxes)
        assert found[0].tolist() == pytest.approx([1.0, 1 / 7, 0.0, 0.0])
        assert found[2].tolist() == [0.0, 0.0, 0.0, 0.0]


def test_the_time_of_a_camera_never_goes_back_whatever_its_clock_does() -> None:
    clock = LaneClock(10)
    stamps = [1000, 1100, 1050, 1200, None, 1300, 500_000, 100, 200, 150]
    times = [clock.advance(stamp) for stamp in stamps]
    assert times == sorted(times)
    assert np.diff(times).round(6).tolist() == [0.1, 0.0, 0.1, 0.1, 0.1, 498.7, 0.1, 0.1, 0.0]
