"""What counts as the same, and what is said where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelines import BoundingBox, Data, Image, Point
from pipelines.wire.json import value_from_plain, value_to_plain
from streamer.testing.differences import differences

BOX = BoundingBox.corners(0.0, 0.0, 1.0, 2.0, label="a", probability=0.5)


def found(expected: Any, got: Any, tolerance: float = 1e-4) -> list[str]:
    return differences({"v": expected}, Data({"v": got}), value_from_plain, tolerance=tolerance)


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, 1),
        (1, 1.0),
        (0.33333, 1 / 3),
        (0, 0.00005),
        (float("nan"), float("nan")),
        ("a", "a"),
        ([1, 2], [1, 2]),
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]], "f4")),
        ([0.1, 0.2], np.array([0.1, 0.2], "f4")),
        (5, np.array(5)),
        ([[True, False]], np.array([[True, False]])),
        (value_to_plain(np.arange(3, dtype="f4")), np.arange(3, dtype="f4")),
        (value_to_plain(BOX), BOX),
        ([value_to_plain(BOX)], [BOX]),
        (value_to_plain(Point((1.0, 2.0))), Point((1.0, 2.0))),
        (value_to_plain(Image(np.zeros((2, 2, 3), np.uint8))), Image(np.zeros((2, 2, 3), np.uint8))),
        ({"a": 1, "b": [0.5]}, Data({"a": 1, "b": [0.5]})),
        (True, True),
    ],
)
def test_equal_values_do_not_differ(expected: Any, got: Any) -> None:
    assert found(expected, got) == []


@pytest.mark.parametrize(
    ("expected", "got", "line"),
    [
        (1, 2, "v: expected 1, got 2"),
        (1, True, "v: expected 1, got True"),
        (0.5, 0.51, "v: expected 0.5, got 0.51"),
        ("a", 1, "v: expected 'a', got 1"),
        ([1, 2], [1, 2, 3], "v: expected [1, 2], got [1, 2, 3]"),
        ([1.0, 2.0], np.array([1.0, 2.5]), "v: 1 of 2 elements differ, the first at v[1]: expected 2, got 2.5"),
        ([[1.0]], np.array([1.0], "f4"), "v: expected an array [1, 1], got float32[1]"),
        ([1, [2]], np.array([1.0], "f4"), "v: expected [1, [2]], got float32[1]"),
        (1.0, Image(np.zeros((2, 3, 3), np.uint8)), "v: expected 1.0, got IMAGE 3x2x3"),
        ({"a": 1}, Data({"a": 2, "b": 1}), "v.a: expected 1, got 2"),
        (value_to_plain(BOX), BoundingBox.corners(0.0, 0.0, 1.0, 2.0, label="b", probability=0.5), "v: expected "),
        ("x" * 500, "y", f"v: expected '{'x' * 116}..., got 'y'"),
    ],
)
def test_values_that_differ_are_listed(expected: Any, got: Any, line: str) -> None:
    assert found(expected, got)[0].startswith(line)


def test_a_higher_tolerance_accepts_larger_differences() -> None:
    assert found(0.5, 0.51, 0.1) == []
    assert found([0.5], np.array([0.51]), 0.1) == []
    assert found(value_to_plain(BOX), BoundingBox.corners(0.01, 0.0, 1.0, 2.0, label="a", probability=0.5), 0.1) == []


def test_further_values_differ_only_where_all_are_expected() -> None:
    got = Data({"v": 1, "w": "x"})
    assert differences({"v": 1}, got, value_from_plain, tolerance=0) == []
    assert differences({"v": 1}, got, value_from_plain, tolerance=0, exact=True) == [
        "w: is there, 'x', and is not expected"
    ]
