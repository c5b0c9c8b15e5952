"""MOTION: frames in which nothing moves are dropped, those in which something does are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest
from camerarecords import frame
from outcomes import results_of
from pydantic import ValidationError

import pipelines
from pipelines import Data, Image, Motion, StepError
from pipelines.executors.executor import Outcome

Array = npt.NDArray[Any]
BACKGROUND = np.random.default_rng(5).integers(60, 90, (90, 160), np.uint8)


def scene(x: int | None = None, size: int = 16, light: int = 0) -> Array:
    """A gray picture, with a bright square whose left edge is at x."""
    pixels = BACKGROUND + np.uint8(light)
    if x is not None:
        pixels[40 : 40 + size, x : x + size] = 220
    return pixels


def frames(*scenes: Array, rate: float = 10, start: float = 0.0, **fields: Any) -> list[Data]:
    return [frame({"image": Image(one), "n": at}, start + at / rate, **fields) for at, one in enumerate(scenes)]


def outcomes(records: Sequence[Data], **fields: Any) -> list[Outcome]:
    with pipelines.Sequence([Motion(**fields)]).open() as executor:
        return executor.run_many(list(records))


def passed(records: Sequence[Data], **fields: Any) -> list[int]:
    """Numbers of the frames that pass."""
    return [one["n"] for one in outcomes(records, **fields) if isinstance(one, Data)]


def boxes(records: Sequence[Data], **fields: Any) -> list[Any]:
    return [one["moving"] for one in results_of(outcomes(records, gate=False, output_name="moving", **fields))]


def test_only_the_first_frame_of_a_still_scene_passes() -> None:
    assert passed(frames(*[scene()] * 20)) == [0]


def test_frames_with_motion_pass_and_those_shortly_after_it() -> None:
    given = frames(*[scene()] * 5, scene(20), scene(30), *[scene()] * 40)
    assert passed(given, hold=0.0)[:3] == [0, 5, 6]
    found = passed(given, hold=1.0)
    assert found == [0, *range(5, found[-1] + 1)]
    assert found[-1] == passed(given, hold=0.0)[-1] + 10


def test_noise_and_slow_changes_of_the_light_are_no_motion() -> None:
    random = np.random.default_rng(2)
    noisy = [scene() + random.integers(0, 8, (90, 160), np.uint8) for _ in range(20)]
    assert passed(frames(*noisy)) == [0]
    brighter = [scene(light=at // 4) for at in range(100)]
    assert passed(frames(*brighter), memory=2.0) == [0]


def test_boxes_are_where_something_moves() -> None:
    found = boxes(frames(*[scene()] * 3, scene(80), scene()))
    assert [len(one) for one in found[:4]] == [0, 0, 0, 1]
    (box,) = found[3]
    assert (box.x1, box.x2) == pytest.approx((0.5, 0.6), abs=0.04)
    assert (box.y1, box.y2) == pytest.approx((40 / 90, 56 / 90), abs=0.06)


def test_a_moving_object_below_min_area_is_no_motion() -> None:
    given = frames(*[scene()] * 3, scene(80, size=4))
    assert boxes(given, min_area=0.01)[3] == []
    assert len(boxes(given, min_area=0.0005)[3]) == 1


def test_an_object_that_stays_is_no_motion_after_a_while() -> None:
    given = frames(*[scene()] * 3, *[scene(80)] * 60)
    found = boxes(given, memory=1.0)
    assert len(found[4]) == 1
    assert found[-1] == []
    assert boxes(given, memory=600.0)[-1] != []


def test_a_frame_passes_now_and_then_if_that_is_asked_for() -> None:
    assert passed(frames(*[scene()] * 21), every=0.5) == [0, 5, 10, 15, 20]


def test_cameras_and_connections_have_scenes_of_their_own() -> None:
    a = frames(*[scene()] * 3, camera="a", lane=("a", 1))
    b = frames(*[scene(50)] * 3, camera="b", lane=("b", 1))
    assert passed([one for pair in zip(a, b, strict=True) for one in pair]) == [0, 0]
    assert passed([*frames(*[scene()] * 3), *frames(*[scene(50)] * 3, lane=("gate", 2), start=1.0)]) == [0, 0]


def test_a_picture_of_another_size_begins_anew() -> None:
    other = np.zeros((40, 120), np.uint8)
    given = frames(scene(), scene(), other, other)
    assert passed(given) == [0, 2]
    assert boxes(given) == [[], [], [], []]


def test_a_clock_that_goes_back_does_no_harm() -> None:
    assert passed([*frames(*[scene()] * 3), *frames(*[scene()] * 3, start=-3600)]) == [0]
    still = [frame({"image": Image(scene()), "n": at}, 1.0) for at in range(3)]
    assert passed([*frames(scene(), start=1.0), *still]) in ([0], [0, 0, 1, 2])


def test_video_frames_files_and_tiny_pictures_are_taken() -> None:
    color = np.repeat(scene()[:, :, np.newaxis], 3, axis=2)
    video = [av.VideoFrame.from_ndarray(color, format="bgr24").reformat(format="yuv420p") for _ in range(3)]
    assert passed([frame({"image": Image(one), "n": at}, at / 10) for at, one in enumerate(video)]) == [0]
    jpeg = Image(color).get_as("jpeg")
    assert passed([frame({"image": Image(jpeg), "n": at}, at / 10) for at in range(3)]) == [0]
    assert passed(frames(*[np.zeros((1, 1), np.uint8)] * 3)) == [0]


def test_rows_without_a_picture_fail_alone() -> None:
    given = frames(*[scene()] * 3)
    given[1] = frame({"n": 1}, 0.1)
    found = outcomes(given)
    assert isinstance(found[1], StepError)
    assert isinstance(found[0], Data)
    assert found[2] is None


def test_a_step_that_would_do_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="outputName"):
        Motion(gate=False)
