"""BLUR: what lies in boxes cannot be told any more, all else stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from outcomes import result_of, results_of

import pipelines
from pipelines import Blur, BoundingBox, Data, Image, StepError
from pipelines.values import TypedList, ValueType

Array = npt.NDArray[Any]


def picture(width: int = 120, height: int = 80, channels: int = 3) -> Array:
    """Noise: every pixel differs from its neighbours."""
    return np.random.default_rng(1).integers(0, 256, (height, width, channels), np.uint8)


def blurred(*boxes: BoundingBox, pixels: Array | None = None, **fields: Any) -> Array:
    pixels = picture() if pixels is None else pixels
    data = Data({"image": Image(pixels), "boxes": list(boxes) or TypedList(ValueType.BOUNDING_BOX)})
    with pipelines.Sequence([Blur(**fields)]).open() as executor:
        found: Array = result_of(executor.run(data))["image"].get_as("numpy")
    return found


def detail(pixels: Array) -> float:
    """How much neighbouring pixels differ."""
    return float(np.abs(np.diff(pixels.astype("f4"), axis=1)).mean())


@pytest.mark.parametrize("method", ["GAUSSIAN", "PIXELATE", "FILL"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_box_has_no_detail_left_and_the_rest_is_untouched(method: str, channels: int) -> None:
    pixels = picture(channels=channels)
    found = blurred(BoundingBox.corners(0.25, 0.5, 0.25, 0.75), pixels=pixels, method=method, grow=0.0)
    assert found.shape == pixels.shape
    assert detail(found[20:60, 30:60]) < 0.1 * detail(pixels[20:60, 30:60])
    mask = np.ones(pixels.shape[:2], bool)
    mask[20:60, 30:60] = False
    assert np.array_equal(found[mask], pixels[mask])


def test_a_part_may_be_larger_than_its_box() -> None:
    black = blurred(BoundingBox.corners(0.25, 0.5, 0.25, 0.75), method="FILL", grow=0.5) == 0
    rows, columns = np.where(black.all(axis=2))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (0, 79, 15, 74)


def test_boxes_at_and_beyond_the_border_are_cut() -> None:
    found = blurred(
        BoundingBox.corners(-0.5, 0.1, 0.9, 1.5), BoundingBox.corners(1.2, 1.5, 0, 1), method="FILL", grow=0
    )
    assert (found[72:, :12] == 0).all()
    assert np.array_equal(found[:72], picture()[:72])


@pytest.mark.parametrize("method", ["GAUSSIAN", "PIXELATE", "FILL"])
@pytest.mark.parametrize("box", [(0.5, 0.5, 0.5, 0.5), (0, 1, 0, 1), (0.5, 0.501, 0, 1), (0.6, 0.4, 0.6, 0.4)])
def test_boxes_of_any_size_are_hidden(method: str, box: tuple[float, float, float, float]) -> None:
    for grow in (0.0, 0.1):
        assert blurred(BoundingBox.corners(*box), method=method, grow=grow).shape == (80, 120, 3)
    for strength in (0.01, 1.0):
        assert blurred(BoundingBox.corners(*box), method=method, strength=strength).shape == (80, 120, 3)


def test_a_colour_and_labels_can_be_chosen() -> None:
    face, plate = (BoundingBox.corners(x, x + 0.2, 0, 0.5, label) for x, label in ((0.0, "face"), (0.5, "plate")))
    found = blurred(face, plate, method="FILL", color="red", labels=("plate",), grow=0)
    assert (found[:40, 60:84] == (0, 0, 255)).all()
    assert np.array_equal(found[:, :60], picture()[:, :60])
    with pytest.raises(StepError, match="Invalid color"), pipelines.Sequence([Blur(color="reddish")]).open():
        pass


def test_a_picture_without_boxes_is_passed_on_as_the_file_that_came_in() -> None:
    jpeg = Image(picture()).get_as("jpeg")
    with pipelines.Sequence([Blur()]).open() as executor:
        data = Data({"image": Image(jpeg), "boxes": TypedList(ValueType.BOUNDING_BOX)})
        assert result_of(executor.run(data))["image"].encoded == jpeg


def test_all_other_values_stay_and_the_picture_may_have_a_key_of_its_own() -> None:
    boxes = [BoundingBox.corners(0, 1, 0, 1)]
    with pipelines.Sequence([Blur(output_name="hidden")]).open() as executor:
        found = result_of(executor.run(Data({"image": Image(picture()), "boxes": boxes, "ids": [7]})))
    assert list(found) == ["image", "boxes", "ids", "hidden"]
    assert np.array_equal(found["image"].get_as("numpy"), picture())
    assert found["boxes"] == boxes


def test_no_picture_goes_on_whose_boxes_cannot_be_used() -> None:
    image = Image(picture())
    wrong = [
        Data({"image": image}),
        Data({"image": image, "boxes": [BoundingBox.corners(0, float("nan"), 0, 1)]}),
        Data({"image": image, "boxes": "x"}),
        Data({"boxes": [BoundingBox.corners(0, 1, 0, 1)]}),
    ]
    good = Data({"image": image, "boxes": [BoundingBox.corners(0, 1, 0, 1)]})
    with pipelines.Sequence([Blur(bbox_name="boxes")]).open() as executor:
        found = executor.run_many([*wrong, good])
    assert [isinstance(one, StepError) for one in found] == [True] * 4 + [False]


def test_boxes_in_pixels_would_hide_nothing_and_fail() -> None:
    with pytest.raises(StepError, match=r'"boxes" has .* in pixels, it seems: BLUR takes fractions'):
        blurred(BoundingBox.corners(0, 0.5, 0, 0.5), BoundingBox.corners(30, 60, 20, 60))
    # One that TRACK expects beside the picture is no mistake.
    assert np.array_equal(blurred(BoundingBox.corners(1.5, 2.5, 0.2, 0.8)), picture())


def test_blur_does_not_change_the_image_that_it_was_given() -> None:
    pixels = picture()
    image = Image(pixels)
    with pipelines.Sequence([Blur()]).open() as executor:
        results_of(executor.run_many([Data({"image": image, "boxes": [BoundingBox.corners(0, 1, 0, 1)]})]))
    assert np.array_equal(image.get_as("numpy"), picture())
