"""DRAW_BOUNDING_BOX with what TRACK and ZONES give: ids, zones, lines and counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from camerarecords import box, frame
from outcomes import result_of

import pipelines
from pipelines import Data, DrawBoundingBox, Image, StepError, Track, Zones
from pipelines.executors.executor import Outcome
from pipelines.values import TypedList, ValueType

Array = npt.NDArray[Any]
ZONE = {"yard": {"points": [[0.1, 0.1], [0.4, 0.1], [0.4, 0.9], [0.1, 0.9]]}}
LINE = {"door": {"start": [0.7, 0.1], "end": [0.7, 0.9]}}
COUNTS = Data({"yard": Data({"inside": 2, "entered": 5, "left": 3}), "door": Data({"in": 4, "out": 1})})


def outcome(values: dict[str, Any], camera: str = "gate", **fields: Any) -> Outcome:
    given = {"image": Image(np.zeros((200, 300, 3), np.uint8)), "boxes": TypedList(ValueType.BOUNDING_BOX), **values}
    with pipelines.Sequence([DrawBoundingBox(**fields)]).open() as executor:
        return executor.run_many([frame(given, camera=camera)])[0]


def drawn(values: dict[str, Any], camera: str = "gate", **fields: Any) -> Array:
    found: Array = result_of(outcome(values, camera, **fields))["image"].get_as("numpy")
    return found


def colors(picture: Array) -> set[tuple[int, ...]]:
    return set(map(tuple, picture.reshape(-1, 3)[picture.reshape(-1, 3).any(axis=1)].tolist()))


def test_an_id_is_written_above_its_box_and_gives_it_a_colour() -> None:
    boxes = [box(0.3, 0.5, 0.2), box(0.7, 0.5, 0.2)]
    plain = drawn({"boxes": boxes})
    found = drawn({"boxes": boxes, "ids": [1, 2]}, ids_name="ids")
    assert len(colors(plain)) == 1
    assert tuple(found[100, 60]) != tuple(found[100, 180]) != (0, 0, 0)
    assert found[:78].any()
    assert not plain[:78].any()
    again = drawn({"boxes": boxes[::-1], "ids": [2, 1]}, ids_name="ids")
    assert np.array_equal(again, found)


def test_a_label_keeps_its_colour_and_a_box_without_a_track_is_thin() -> None:
    boxes = [box(0.5, 0.5, 0.4, label="cat")]
    red: dict[str, Any] = {"class_colors": {"cat": "red"}, "line_thickness": 5, "ids_name": "ids"}
    tracked, loose = (drawn({"boxes": boxes, "ids": [one]}, **red) for one in (7, 0))
    assert tuple(tracked[100, 90]) == tuple(loose[100, 90]) == (0, 0, 255)
    assert tracked[100, 88].any()
    assert not loose[100, 88].any()
    assert np.array_equal(loose[:55], np.zeros((55, 300, 3)))


def test_zones_and_lines_are_drawn_with_what_was_counted() -> None:
    bare = drawn({}, zones=ZONE, lines=LINE, zone_color="white")
    assert bare[100, 30].min() > 200
    assert bare[100, 210].min() > 200
    # The way in is to the left in the picture: to the right of a line that goes down.
    assert bare[95:106, 195:208].any()
    assert not bare[95:106, 214:225].any()
    counted = drawn({"counts": COUNTS}, zones=ZONE, lines=LINE, zone_color="white", counts_name="counts")
    assert counted[:30].sum() > bare[:30].sum()


def test_zones_of_other_cameras_are_not_drawn() -> None:
    only = {"yard": {**ZONE["yard"], "cameras": ["dock"]}}
    assert not drawn({}, zones=only).any()
    assert drawn({}, zones=only, camera="dock").any()


def test_ids_and_counts_that_are_missing_or_do_not_fit_are_told() -> None:
    boxes = [box(0.5, 0.5)]
    given: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"boxes": boxes}, {"ids_name": "ids"}, '"ids"'),
        ({"boxes": boxes, "ids": [1, 2]}, {"ids_name": "ids"}, "has 2 ids"),
        ({}, {"zones": ZONE, "counts_name": "counts"}, '"counts"'),
        ({"counts": 3}, {"zones": ZONE, "counts_name": "counts"}, '"counts"'),
        ({"counts": Data({"yard": 3})}, {"zones": ZONE, "counts_name": "counts"}, "as ZONES gives it"),
        ({"counts": Data({"yard": Data({"n": 3})})}, {"zones": ZONE, "counts_name": "counts"}, "inside"),
    ]
    for values, fields, part in given:
        found = outcome(values, **fields)
        assert isinstance(found, StepError)
        assert part in str(found)


@pytest.mark.parametrize("far", [1e9, -1e9])
def test_places_far_outside_of_the_picture_do_no_harm(far: float) -> None:
    assert drawn(
        {}, zones={"a": {"points": [[far, 0], [1, 1], [0, far]]}}, lines={"b": {"start": [far, far], "end": [0, 0]}}
    ).shape


def test_tracks_zones_and_pictures_go_together() -> None:
    """From boxes to the picture in one pipeline; an image and its boxes pass through on the way."""
    steps = [
        Track(hits=1),
        Zones(zones=ZONE, lines=LINE, anchor="CENTER"),
        DrawBoundingBox(
            bbox_name="boxes", ids_name="ids", zones=ZONE, lines=LINE, counts_name="counts", draw_label=True
        ),
    ]
    with pipelines.Sequence(steps).open() as executor:
        black = Image(np.zeros((200, 300, 3), np.uint8))
        given = [
            frame({"image": black, "boxes": [box(0.8 - 0.02 * at, 0.5, label="cat")]}, at / 30) for at in range(12)
        ]
        given.append(frame({"image": black, "boxes": []}, 0.5))
        found = executor.run_many(given)
    pictures = [result_of(one)["image"].get_as("numpy") for one in found]
    assert not np.array_equal(pictures[0][:40], pictures[11][:40])
