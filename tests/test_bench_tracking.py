"""TRACK keeps the ids of objects as well as is told: IDF1 is counted right, and does not fall."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tracking.identity import Identity, identity, together
from benchmarks.tracking.ours import tracked
from benchmarks.tracking.run import OURS, RESULTS, THEIRS, Scores, text
from benchmarks.tracking.scenes import Frame, scenes
from pipelines import StepError

ROOT = Path(__file__).parents[1]


def seen(*objects: int, boxes: Sequence[int] | None = None) -> Frame:
    """A frame with these objects, each at a place of its own; `boxes` are the places where something was found."""
    places = [[100.0 * one, 0.0, 100.0 * one + 50, 50.0] for one in objects]
    found = [[100.0 * one, 0.0, 100.0 * one + 50, 50.0] for one in (objects if boxes is None else boxes)]
    size = (-1, 4)
    corners = np.array(found).reshape(size)
    return Frame(0.0, np.array(objects, np.int64), np.array(places).reshape(size), corners, np.ones(len(found)))


@pytest.mark.parametrize(
    ("frames", "ids", "count"),
    [
        ([seen(1, 2)] * 4, [[7, 8]] * 4, (8, 8, 8, 0)),
        # Two objects change their ids half way: half of each is right.
        ([seen(1, 2)] * 4, [[7, 8], [7, 8], [8, 7], [8, 7]], (4, 8, 8, 0)),
        # One object has two tracks: the longer one is right.
        ([seen(1)] * 4, [[7], [7], [7], [8]], (3, 4, 4, 0)),
        # What is missed, made up or without a track.
        ([seen(1), seen(1, boxes=[]), seen(1, boxes=[1, 5]), seen(1)], [[7], [], [7, 9], [0]], (2, 4, 3, 1)),
        # Half of a track, and more than half of another one, is of nothing.
        ([seen(1, boxes=[1, 5]), seen(1, boxes=[6, 5])], [[7, 9], [7, 9]], (1, 2, 4, 1)),
        ([seen(), seen()], [[], []], (0, 0, 0, 0)),
    ],
)
def test_ids_are_right_where_object_and_track_are_a_pair(
    frames: list[Frame], ids: list[list[int]], count: tuple[int, int, int, int]
) -> None:
    found = identity(frames, [np.array(one, np.int64) for one in ids])
    assert found == Identity(*count)
    assert found.idf1 == (2 * count[0] / (count[1] + count[2]) if any(count) else 1.0)


@pytest.mark.parametrize("name", OURS)
def test_idf1_of_track_does_not_fall(name: str) -> None:
    counts = {}
    for scene, sequence in scenes().items():
        frames = sequence(0)
        counts[scene] = identity(frames, tracked(frames, **OURS[name]))
    told = {scene: round(count.idf1, 3) for scene, count in counts.items()}
    assert min(told.values()) > 0.9, told
    assert together(counts.values()).idf1 > 0.945, told


def test_the_page_shows_the_results_of_the_file() -> None:
    found = Scores(**json.loads(RESULTS.read_text(encoding="utf-8")))
    assert text(found) in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


def test_by_default_track_is_not_below_the_package_with_the_same_thresholds_or_its_own() -> None:
    found = Scores(**json.loads(RESULTS.read_text(encoding="utf-8")))
    assert OURS["TRACK, BYTE_TRACK"] == {}
    for ours in ("TRACK, BYTE_TRACK", "TRACK, SORT"):
        for theirs in THEIRS:
            assert found.idf1[ours]["all of them"] >= found.idf1[theirs]["all of them"], f"{ours}, {theirs}"


def test_a_frame_that_fails_is_not_left_out_of_the_score() -> None:
    frames = [seen(1), seen(1)._replace(boxes=np.array([[0.0, 0.0, np.nan, 50.0]])), seen(1)]
    with pytest.raises(StepError, match="finite"):
        tracked(frames)
