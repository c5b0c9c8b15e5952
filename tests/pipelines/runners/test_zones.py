"""ZONES: each event once, counts that agree with where objects really were."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from camerarecords import box, frame
from hypothesis import given
from hypothesis import strategies as st
from outcomes import result_of, results_of
from pydantic import ValidationError

import pipelines
from pipelines import BoundingBox, Data, StepError, Zones
from pipelines.runners.video.places import Area, Gate
from pipelines.runners.video.visits import Sighting, Totals, Visits, WatchedLine, WatchedZone

YARD = {"yard": {"points": [[0.4, 0.0], [0.6, 0.0], [0.6, 1.0], [0.4, 1.0]]}}
DOOR = {"door": {"start": [0.5, 0.2], "end": [0.5, 0.8]}}
"""Seen from its start above, what comes from the right of the picture comes from the left."""

Way = Sequence[float]
Place = tuple[float, float]


def at(*xs: float | None, y: float = 0.5, start: float = 0.0, rate: float = 10, track: int = 1, **fields: Any) -> Any:
    """Frames of one track whose anchor goes through these places."""
    found = []
    for number, x in enumerate(xs):
        seen = {"boxes": [] if x is None else [box(x, y, label="cat")], "ids": [] if x is None else [track]}
        found.append(frame(seen, start + number / rate, **fields))
    return found


def watched(records: Sequence[Data], **fields: Any) -> list[Data]:
    with pipelines.Sequence([Zones(**{"anchor": "CENTER", **fields})]).open() as executor:
        return results_of(executor.run_many(list(records)))


def events(records: Sequence[Data], **fields: Any) -> list[list[str]]:
    return [
        [" ".join([one["event"], *([one["direction"]] if "direction" in one else [])]) for one in found["events"]]
        for found in watched(records, **fields)
    ]


def flat(found: Iterable[list[str]]) -> list[str]:
    return [one for each in found for one in each]


def test_a_track_enters_and_leaves_once() -> None:
    found = watched(at(0.2, 0.35, 0.45, 0.5, 0.55, 0.65, 0.8), zones=YARD)
    assert [[one["event"] for one in each["events"]] for each in found] == [[], [], ["enter"], [], [], ["leave"], []]
    enter, leave = found[2]["events"][0], found[5]["events"][0]
    assert enter == Data({"event": "enter", "place": "yard", "id": 1, "label": "cat", "time": 1_700_000_000_200})
    assert leave["seconds"] == pytest.approx(0.3)
    assert [each["counts"]["yard"]["inside"] for each in found] == [0, 0, 1, 1, 1, 0, 0]
    assert found[-1]["counts"]["yard"] == Data({"inside": 0, "entered": 1, "left": 1})


def test_a_line_is_crossed_in_two_directions() -> None:
    found = watched(at(0.8, 0.6, 0.4, 0.2, 0.4, 0.6), lines=DOOR)
    assert [[one["direction"] for one in each["events"]] for each in found] == [[], [], ["in"], [], [], ["out"]]
    assert found[-1]["counts"]["door"] == Data({"in": 1, "out": 1})


def test_a_box_that_trembles_on_an_edge_is_counted_once() -> None:
    trembling = [0.5 + 0.008 * (-1) ** number for number in range(20)]
    assert flat(events(at(0.8, *trembling, 0.2), lines=DOOR)) == ["cross in"]
    assert flat(events(at(0.8, *trembling, 0.8), lines=DOOR)) == []
    edge = [0.4 + 0.008 * (-1) ** number for number in range(20)]
    assert flat(events(at(0.2, *edge, 0.5, *edge, 0.2), zones=YARD)) == ["enter", "leave"]
    assert len(flat(events(at(0.8, *trembling, 0.2), lines=DOOR, margin=0.0))) == 19


def test_an_object_that_goes_around_a_line_does_not_cross_it() -> None:
    around = [(0.8, 0.5), (0.8, 0.1), (0.2, 0.1), (0.2, 0.5)]
    records = [frame({"boxes": [box(*one)], "ids": [1]}, number / 10) for number, one in enumerate(around)]
    assert flat(events(records, lines=DOOR)) == []


def test_a_track_that_is_not_confirmed_never_counts() -> None:
    assert flat(events(at(0.2, 0.5, 0.8, track=0), zones=YARD, lines=DOOR)) == []
    found = watched(at(0.5, track=0), zones=YARD)
    assert found[0]["counts"]["yard"]["inside"] == 0
    # Confirmed behind the line, it was not seen to cross it.
    assert flat(events([*at(0.8, 0.6, 0.45, track=0), *at(0.4, 0.2, start=0.3)], lines=DOOR)) == []


def test_an_object_that_the_detector_misses_leaves_its_zone_only_once_it_is_lost() -> None:
    given = at(0.5, None, None, 0.5, *[None] * 30)
    found = events(given, zones=YARD)
    assert found[:10] == [["enter"]] + [[]] * 9
    lost = [number for number, each in enumerate(found) if each]
    assert lost == [0, 24]
    event = watched(given, zones=YARD)[24]["events"][0]
    assert (event["event"], event["lost"], event["seconds"]) == ("leave", True, pytest.approx(0.3))


def test_a_crossing_between_two_sightings_counts() -> None:
    assert flat(events(at(0.9, None, None, 0.1), lines=DOOR)) == ["cross in"]


def test_dwelling_is_told_once_a_stay() -> None:
    zone = {"yard": {**YARD["yard"], "dwell": 0.5}}
    stay = [0.5] * 9
    found = watched(at(0.2, *stay, 0.2, *stay), zones=zone)
    assert flat(events(at(0.2, *stay, 0.2, *stay), zones=zone)) == ["enter", "dwell", "leave", "enter", "dwell"]
    assert found[6]["events"][0]["seconds"] == pytest.approx(0.5)


def test_labels_and_cameras_have_their_own_places() -> None:
    only = {"yard": {**YARD["yard"], "labels": ["dog"]}, "side": {**YARD["yard"], "cameras": ["dock"]}}
    found = watched([*at(0.5), *at(0.5, camera="dock", lane=("dock", 1))], zones=only)
    assert found[0]["events"] == []
    assert list(found[0]["counts"]) == ["yard"]
    assert [one["place"] for one in found[1]["events"]] == ["side"]
    assert list(found[1]["counts"]) == ["yard", "side"]


def test_cameras_do_not_share_counts_and_a_connection_goes_on_with_them() -> None:
    with pipelines.Sequence([Zones(zones=YARD, lines=DOOR, anchor="CENTER")]).open() as executor:
        first = results_of(executor.run_many([*at(0.8, 0.6, 0.45), *at(0.5, camera="dock", lane=("dock", 1))]))
        assert first[2]["counts"]["yard"]["inside"] == 1
        assert first[3]["counts"]["door"] == Data({"in": 0, "out": 0})
        executor.forget([("gate", 1)])
        (again,) = results_of(executor.run_many(at(0.9, track=7, lane=("gate", 2), start=60.0)))
    (left,) = again["events"]
    assert (left["event"], left["id"], left["lost"]) == ("leave", 1, True)
    assert again["counts"] == Data(
        {"yard": Data({"inside": 0, "entered": 1, "left": 1}), "door": Data({"in": 1, "out": 0})}
    )


def test_a_camera_may_be_told_by_its_key() -> None:
    only = {"yard": {**YARD["yard"], "cameras": ["north"]}}
    given = [*at(0.5, key=b"north"), *at(0.5, key=b"south"), *at(0.5, key=b"north", start=0.1)]
    found = watched(given, zones=only, by_key=True)
    assert [list(one["counts"]) for one in found] == [["yard"], [], ["yard"]]
    assert [len(one["events"]) for one in found] == [1, 0, 0]


def test_a_clock_that_goes_back_gives_no_negative_times() -> None:
    zone = {"yard": {**YARD["yard"], "dwell": 0.2}}
    found = watched([*at(0.5, 0.5), *at(0.5, 0.5, 0.5, 0.2, start=-3600.0)], zones=zone)
    assert all(one["seconds"] > 0 for each in found for one in each["events"] if "seconds" in one)
    assert flat([one["event"] for one in each["events"]] for each in found) == ["enter", "dwell", "leave"]


def test_the_anchor_is_the_point_of_a_box_that_counts() -> None:
    zone = {"floor": {"points": [[0, 0.5], [1, 0.5], [1, 1], [0, 1]]}}
    given = [frame({"boxes": [BoundingBox.corners(0.4, 0.6, 0.2, 0.7)], "ids": [1]})]
    found = {anchor: bool(events(given, zones=zone, anchor=anchor)[0]) for anchor in ("BOTTOM_CENTER", "CENTER")}
    assert found == {"BOTTOM_CENTER": True, "CENTER": False}


@pytest.mark.parametrize(
    ("points", "text"),
    [
        ([[0, 0], [1, 1], [1, 0], [0, 1]], r"edge from \[0, 0\] to \[1, 1\] crosses that from \[1, 0\] to \[0, 1\]"),
        ([[0, 0], [0.5, 0.5], [1, 1]], "on one line"),
        ([[0.1, 0.2], [0.1, 0.2], [0.1, 0.5], [0.1, 0.9]], "on one line"),
    ],
)
def test_corners_in_a_wrong_order_and_areas_of_nothing_are_refused(points: Any, text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Zones(zones={"yard": {"points": points}})


def test_areas_may_be_hollow_and_touch_themselves() -> None:
    Zones(zones={"u": {"points": [[0, 0], [0, 1], [1, 1], [1, 0], [0.8, 0], [0.8, 0.8], [0.2, 0.8], [0.2, 0]]}})
    Zones(zones={"ring": {"points": [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0], [0.2, 0.2], [0.2, 0.8], [0.8, 0.8]]}})


def test_zones_in_pixels_and_boxes_in_fractions_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    yard = {"yard": {"points": [[0, 0], [320, 0], [320, 360]]}}
    watched(at(0.2, 0.35, 0.45), zones=yard)
    assert caplog.text.count('"yard" goes to 360, and the first boxes to 0.') == 1
    caplog.clear()
    watched(at(0.2, 0.35, 0.45), zones=YARD, lines=DOOR)
    watched(at(200, 350, 450, y=100), zones=yard)
    assert "goes to" not in caplog.text
    watched(at(200, 350, 450, y=100), zones=YARD)
    assert caplog.text.count("in fractions of the picture") == 1


def test_rows_that_cannot_be_used_fail_alone() -> None:
    rows = at(0.2, 0.5)
    wrong = [
        frame({"boxes": [box(0.5, 0.5)]}),
        frame({"boxes": [box(0.5, 0.5)], "ids": [1, 2]}),
        frame({"boxes": [box(0.5, 0.5)], "ids": ["a"]}),
        frame({"boxes": [box(0.5, 0.5)] * 2, "ids": [3, 3]}),
        frame({"ids": [1]}),
    ]
    with pipelines.Sequence([Zones(zones=YARD, anchor="CENTER")]).open() as executor:
        found = executor.run_many([rows[0], *wrong, rows[1]])
    assert [isinstance(one, StepError) for one in found] == [False, *[True] * 5, False]
    for part, one in zip(['"ids"', "has 2 ids", "list of integers", "3 twice", "ounding box"], found[1:6], strict=True):
        assert part in str(one)
    assert result_of(found[6])["counts"]["yard"] == Data({"inside": 1, "entered": 1, "left": 0})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"zones": {"a": {"points": [[0, 0], [1, 1]]}}},
        {"zones": {"a": {"points": [[0, 0], [1, 1], [0, 0]]}}},
        {"lines": {"a": {"start": [0, 0], "end": [0, 0]}}},
        {"zones": YARD, "lines": {"yard": DOOR["door"]}},
        {"zones": {"a": {"points": [[0, 0], [1, 1], [float("nan"), 0]]}}},
    ],
)
def test_invalid_zones_and_lines_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Zones(**fields)


# Ground truth

number = st.integers(-30, 30).map(lambda whole: whole / 10)
place = st.tuples(number, number)
way = st.lists(place, min_size=2, max_size=12)


def truth(line: tuple[Place, Place], points: Sequence[Place]) -> tuple[int, int]:
    """How often a way crosses a line from left to right and back, in exact fractions: a point on it is to its right."""
    (ax, ay), (bx, by) = (tuple(map(Fraction, one)) for one in line)
    counts = [0, 0]
    for before, after in itertools.pairwise(points):
        (px, py), (qx, qy) = (tuple(map(Fraction, one)) for one in (before, after))
        first = (bx - ax) * (py - ay) - (by - ay) * (px - ax)
        second = (bx - ax) * (qy - ay) - (by - ay) * (qx - ax)
        if (first < 0) == (second < 0):
            continue
        part = first / (first - second)
        x, y = px + part * (qx - px) - ax, py + part * (qy - py) - ay
        if 0 <= x * (bx - ax) + y * (by - ay) <= (bx - ax) ** 2 + (by - ay) ** 2:
            counts[first >= 0] += 1
    return counts[0], counts[1]


def visits(zones: dict[str, Area], lines: dict[str, Gate], margin: float) -> Visits:
    return Visits(
        {name: WatchedZone(area, None, None) for name, area in zones.items()},
        {name: WatchedLine(gate, None) for name, gate in lines.items()},
        margin,
        2.0,
        Totals({name: Counter() for name in (*zones, *lines)}),
    )


@given(place, place, way)
def test_a_line_counts_what_crosses_it(start: Place, end: Place, points: list[Place]) -> None:
    if start == end:
        return
    gate = Gate(start, end)
    # Rounding may decide where a way touches the very end of a line: such ways prove nothing.
    exact = truth((start, end), points)
    if any(truth((_moved(start, end, by), _moved(end, start, by)), points) != exact for by in (1e-9, -1e-9)):
        return
    ways = [gate.passed(a, b) for a, b in itertools.pairwise(points)]
    assert (ways.count(1), ways.count(-1)) == exact


def _moved(one: Place, other: Place, by: float) -> Place:
    return one[0] + by * (other[0] - one[0]), one[1] + by * (other[1] - one[1])


@pytest.mark.slow
@given(st.lists(st.integers(-20, 20).filter(bool), min_size=1, max_size=15), st.randoms(use_true_random=False))
def test_noise_below_the_margin_changes_no_count(sides: list[int], random: Any) -> None:
    """A track that stops at places clearly left or right of a line, and trembles by less than the margin anywhere."""
    seen = visits({"right": Area([(0, -5), (50, -5), (50, 5), (0, 5)])}, {"line": Gate((0, 5), (0, -5))}, 0.4)
    kinds: Counter[str] = Counter()
    clock = 0.0
    for side in sides:
        for _ in range(3):
            clock += 0.1
            point = (side + random.uniform(-0.39, 0.39), random.uniform(-0.39, 0.39))
            kinds.update(
                f"{one.kind} {one.direction or ''}".strip() for one in seen.update([Sighting(1, None, point)], clock)
            )
    signs = [side > 0 for side in sides]
    into = sum(not a and b for a, b in itertools.pairwise(signs))
    out = sum(a and not b for a, b in itertools.pairwise(signs))
    assert kinds["enter"] == into + signs[0]
    assert kinds["leave"] == out
    assert kinds["cross in"] == into
    assert kinds["cross out"] == out


@given(st.lists(st.tuples(st.integers(1, 3), place, st.booleans()), max_size=40))
def test_an_object_that_entered_and_has_not_left_is_inside(sightings: list[tuple[int, Place, bool]]) -> None:
    square = Area([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    seen = visits({"a": square}, {}, 0.05)
    inside: set[int] = set()
    for clock, (track, point, late) in enumerate(sightings):
        for event in seen.update([Sighting(track, None, point)], clock * (3.0 if late else 0.5)):
            assert (event.kind == "enter") != (event.track in inside)
            inside.symmetric_difference_update({event.track})
        assert seen.inside()["a"] == len(inside)
        if abs(square.depth(point)) > 0.05:
            assert (track in inside) == (square.depth(point) > 0)
    counts = seen.totals.counts["a"]
    assert counts["entered"] - counts["left"] == len(inside)


@given(place, st.integers(3, 8))
def test_depth_is_the_distance_to_the_edge(point: Place, corners: int) -> None:
    """A regular polygon around the origin, whose edges lie as far from it as the cosine of half their angle."""
    angles = [2 * math.pi * corner / corners for corner in range(corners)]
    area = Area([(2 * math.cos(angle), 2 * math.sin(angle)) for angle in angles])
    normals = [angle + math.pi / corners for angle in angles]
    apothem = 2 * math.cos(math.pi / corners)
    expected = min(apothem - point[0] * math.cos(one) - point[1] * math.sin(one) for one in normals)
    depth = area.depth(point)
    if expected > 1e-9:
        assert depth == pytest.approx(expected)
    elif expected < -1e-9:
        assert depth <= expected + 1e-9
