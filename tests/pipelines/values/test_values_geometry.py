"""Boxes and points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.errors import DataError, ValueNotFoundError, WrongTypeError
from pipelines.values import BoundingBox, Point


def test_a_centre_box_answers_its_corners() -> None:
    box = BoundingBox.center(0.5, 0.4, 0.2, 0.6, "cat", 0.9)
    assert (box.x1, box.x2, box.y1, box.y2) == pytest.approx((0.2, 0.8, 0.3, 0.5))
    assert (box.cx, box.cy, box.width, box.height) == (0.5, 0.4, 0.6, 0.2)
    assert (box.form, box.label, box.probability) == ("CHW", "cat", 0.9)


def test_a_corner_box_answers_its_centre_and_size() -> None:
    box = BoundingBox.corners(0.8, 0.2, 0.3, 0.5)
    assert (box.cx, box.cy, box.width, box.height) == pytest.approx((0.5, 0.4, 0.6, 0.2))
    assert (box.x1, box.x2) == (0.8, 0.2)
    assert (box.form, box.label, box.probability) == ("XY", None, None)


def test_a_box_can_be_made_by_keyword_in_either_form() -> None:
    assert BoundingBox(x1=0, x2=1, y1=0, y2=2) == BoundingBox.corners(0, 1, 0, 2)
    assert BoundingBox(cx=0, cy=1, h=2, w=3, label="a") == BoundingBox.center(0, 1, 2, 3, "a")


@pytest.mark.parametrize(
    "given", [{}, {"x1": 0}, {"cx": 0, "cy": 0, "h": 0}, {"x1": 0, "x2": 0, "y1": 0, "y2": 0, "w": 1}]
)
def test_a_box_of_half_a_form_or_both_is_refused(given: dict[str, float]) -> None:
    with pytest.raises(DataError, match="either x1, x2, y1 and y2, or cx, cy, h and w"):
        BoundingBox(**given)  # type: ignore[arg-type]


def test_both_forms_of_the_same_box_are_equal() -> None:
    assert BoundingBox.center(0.5, 0.5, 0.2, 0.4) == BoundingBox.corners(0.3, 0.7, 0.4, 0.6)


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (BoundingBox.corners(0.1 + 9e-6, 1, 0.2, 0.9, "a", 0.5), True),
        (BoundingBox.corners(0.1 + 2e-5, 1, 0.2, 0.9, "a", 0.5), False),
        (BoundingBox.corners(0.1, 1, 0.2, 0.9, "a", 0.5 + 9e-6), True),
        (BoundingBox.corners(0.1, 1, 0.2, 0.9, "a", 0.6), False),
        (BoundingBox.corners(0.1, 1, 0.2, 0.9, "a", None), False),
        (BoundingBox.corners(0.1, 1, 0.2, 0.9, "b", 0.5), False),
        (BoundingBox.corners(0.1, 1, 0.2, 0.9, None, 0.5), False),
    ],
)
def test_boxes_are_equal_within_a_tolerance(other: BoundingBox, equal: bool) -> None:
    box = BoundingBox.corners(0.1, 1, 0.2, 0.9, "a", 0.5)
    assert (box == other) is equal
    assert (other == box) is equal


def test_a_point_names_its_coordinates() -> None:
    point = Point([1, 2, 3], "nose", 0.5)
    assert (point.x, point.y, point.z, point.dimensions) == (1.0, 2.0, 3.0, 3)
    assert (point.label, point.probability) == ("nose", 0.5)
    with pytest.raises(ValueNotFoundError, match="a point of 1 coordinates has no y"):
        _ = Point([1]).y


def test_a_point_without_coordinates_is_refused() -> None:
    with pytest.raises(DataError):
        Point([])


@pytest.mark.parametrize(
    ("coords", "absolute"),
    [
        ([0.5, 0.25], [50, 50]),
        ([0.0, 1.0], [0, 200]),
        ([0.5, 17.0], [0.5, 17.0]),
        ([3, 4], [3, 4]),
    ],
)
def test_a_relative_point_is_scaled_and_an_absolute_one_is_not(coords: list[float], absolute: list[float]) -> None:
    point = Point(coords, "a", 0.5).to_absolute(100, 200)
    assert point == Point(absolute, "a", 0.5)


def test_sizes_must_match_the_dimensions_of_a_point() -> None:
    with pytest.raises(DataError, match="needs as many sizes"):
        Point([0.5, 0.5]).to_absolute(100)


def test_points_are_equal_within_a_tolerance() -> None:
    assert Point([0.1, 0.2], "a", 0.5) == Point([0.1 + 9e-6, 0.2], "a", 0.5)
    assert Point([0.1, 0.2]) != Point([0.1, 0.2 + 2e-5])
    assert Point([0.1, 0.2]) != Point([0.1])
    assert Point([0.1], "a") != Point([0.1])
    assert Point([0.1]) != [0.1]


def test_a_coordinate_that_is_nan_equals_nan_only_as_values_of_records_do() -> None:
    nan = float("nan")
    assert BoundingBox.corners(nan, 1, 0, 1, "a", nan) == BoundingBox.corners(nan, 1, 0, 1, "a", nan)
    assert BoundingBox.corners(nan, 1, 0, 1) != BoundingBox.corners(0, 1, 0, 1)
    assert Point([nan, 0.5]) == Point([nan, 0.5])
    assert Point([0.5, nan]) != Point([nan, 0.5])


@pytest.mark.parametrize(
    "make",
    [
        lambda label: BoundingBox.corners(0, 1, 0, 1, label),
        lambda label: BoundingBox.center(0.5, 0.5, 1, 1, label),
        lambda label: BoundingBox(x1=0, x2=1, y1=0, y2=1, label=label),
        lambda label: Point([0.5], label),
    ],
)
@pytest.mark.parametrize("number", [0, 7, 1.5])
def test_the_number_of_a_class_is_no_label(make: Callable[[Any], BoundingBox | Point], number: float) -> None:
    """JSON would be written that no reader takes, and protobuf would lose the class 0."""
    with pytest.raises(WrongTypeError, match=rf"^a label must be a string, got {number}; str\(\.\.\.\) makes one"):
        make(number)


def test_their_text_form_shows_what_was_given() -> None:
    assert repr(BoundingBox.corners(0, 1, 0, 0.5, "cat", 0.25)) == (
        "BoundingBox(x1=0, x2=1, y1=0, y2=0.5, label='cat', probability=0.25)"
    )
    assert repr(Point([0.5, 1])) == "Point([0.5, 1])"
