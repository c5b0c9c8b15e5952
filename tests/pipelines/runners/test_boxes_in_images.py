"""RELATIVE_TO_ABSOLUTE, PERSPECTIVE_TRANSFORM, EXTRACT_BOUNDING_BOX, CROP_GRID, CROP_FIXED_GRID."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from outcomes import result_of

from pipelines import BoundingBox, Data, Image, Point, Sequence
from pipelines.errors import StepError
from pipelines.steps import (
    CropFixedGrid,
    CropGrid,
    ExtractBoundingBox,
    ImageToNDArrayConfig,
    PerspectiveTransform,
    RelativeToAbsolute,
    Step,
)

CORNERS = (Point((0, 0)), Point((1, 0)), Point((0, 1)), Point((1, 1)))
SQUARE_INPUT = ImageToNDArrayConfig(height=100, width=100)


def run(step: Step, data: Data | dict[str, Any]) -> Data:
    with Sequence([step]).open() as executor:
        return result_of(executor.run(data if isinstance(data, Data) else Data(data)))


def numbered(height: int, width: int) -> Image:
    """A picture whose pixel at line y and column x is (y, x, 7)."""
    y, x = np.mgrid[:height, :width]
    return Image(np.stack([y, x, np.full_like(x, 7)], axis=2).astype(np.uint8))


def corner(image: Image) -> list[int]:
    """Line and column of the first pixel of a part of `numbered`."""
    y, x, _ = image.get_as("numpy")[0, 0]
    return [int(y), int(x)]


def size(image: Image) -> tuple[int, int]:
    return image.height, image.width


def test_fractions_of_an_image_become_pixels() -> None:
    data = {
        "image": numbered(20, 40),
        "point": Point((0.5, 0.25), "nose"),
        "boxes": [BoundingBox(x1=0.25, x2=0.75, y1=0, y2=0.5, label="cat", probability=0.5)],
    }

    found = run(RelativeToAbsolute(image_name="image"), data)

    assert found["point"] == Point((20, 5), "nose")
    assert found["boxes"] == [BoundingBox(x1=10, x2=30, y1=0, y2=10, label="cat", probability=0.5)]


def test_only_the_named_keys_are_converted() -> None:
    data = {"a": Point((0.5, 0.5)), "b": Point((0.5, 0.5))}

    found = run(RelativeToAbsolute(image_h=10, image_w=10, to_convert=("a",)), data)

    assert (found["a"], found["b"]) == (Point((5, 5)), Point((0.5, 0.5)))


def test_pixels_stay_as_they_are() -> None:
    data = {"point": Point((30, 0.5)), "box": BoundingBox(x1=2, x2=4, y1=6, y2=8)}

    assert run(RelativeToAbsolute(image_h=100, image_w=100), data) == Data(data)


def test_points_of_a_networks_input_are_scaled_once() -> None:
    # The reference scales them twice when the first pixel coordinate is below 1. The square is cut from the middle of
    # 200 x 100: fractions 0.25 to 0.75 across.
    step = RelativeToAbsolute(image_h=100, image_w=200, image_to_ndarray_config=SQUARE_INPUT)

    found = run(step, {"left": Point((0, 0.001)), "box": BoundingBox(cx=0.5, cy=0.5, h=0.2, w=0.2)})

    assert found["left"] == Point((50, 0.1))
    assert found["box"] == BoundingBox(cx=100, cy=50, h=20, w=20)


def test_a_size_or_an_image_must_be_given() -> None:
    with pytest.raises(StepError, match="imageName, or both imageH and imageW"):
        Sequence([RelativeToAbsolute(image_h=10)]).open()


def test_a_named_value_that_is_no_point_or_box_is_refused() -> None:
    with pytest.raises(StepError, match='"n": a point, a box or a list of them'):
        run(RelativeToAbsolute(image_h=10, image_w=10, to_convert=("n",)), {"n": 5})


def test_the_source_corners_come_to_lie_on_the_target_corners() -> None:
    source = (Point((10, 10)), Point((50, 20)), Point((0, 60)), Point((70, 70)))
    target = (Point((0, 0)), Point((100, 0)), Point((0, 50)), Point((100, 50)))

    found = run(PerspectiveTransform(source_points=source, target_points=target), {"p": list(source)})

    for got, wanted in zip(found["p"], target, strict=True):
        assert got.coords == pytest.approx(wanted.coords, abs=1e-9)


def test_target_points_of_the_record_are_targets() -> None:
    # The reference takes them for the source and fails.
    moved = [Point((x * 10, y * 10 + 5)) for x, y in ((0, 0), (1, 0), (0, 1), (1, 1))]
    step = PerspectiveTransform(source_points=CORNERS, target_points_name="to")

    found = run(step, {"p": Point((0.5, 0.5), "a", 0.5), "to": moved})

    assert found["p"] == Point((5, 10), "a", 0.5)
    assert found["to"] == moved


def test_without_a_target_the_shape_keeps_its_width_and_height() -> None:
    # The reference swaps them: its rectangle would be 2 wide and 4 high.
    source = tuple(Point(one) for one in ((1, 1), (5, 1), (1, 3), (5, 3)))

    found = run(PerspectiveTransform(source_points=source), {"p": list(source)})

    assert found["p"] == list(source)


def test_of_a_box_the_centre_moves_and_the_size_stays() -> None:
    target = tuple(Point((x * 2, y * 2)) for x, y in ((0, 0), (1, 0), (0, 1), (1, 1)))
    step = PerspectiveTransform(source_points=CORNERS, target_points=target)

    assert run(step, {"b": BoundingBox(cx=3, cy=4, h=1, w=2)})["b"] == BoundingBox(cx=6, cy=8, h=1, w=2)


def test_a_reference_size_moves_the_result_to_the_origin_and_makes_points_absolute() -> None:
    # x -> -x: a picture 10 wide would come to lie from -10 to 0.
    target = (Point((0, 0)), Point((-1, 0)), Point((0, 1)), Point((-1, 1)))
    step = PerspectiveTransform(source_points=CORNERS, target_points=target, reference_width=10, reference_height=4)

    assert run(step, {"p": Point((0.25, 0.5))})["p"] == Point((7.5, 2))


def test_an_image_is_warped_to_the_size_of_its_corners() -> None:
    mirrored = (Point((0, 0)), Point((-2, 0)), Point((0, 1)), Point((-2, 1)))
    image = numbered(6, 10)
    step = PerspectiveTransform(source_points=CORNERS, target_points=mirrored, reference_image="image")

    found = run(step, {"image": image})["image"]

    assert size(found) == (6, 20)
    assert found.get_as("numpy")[3, 18].tolist() == [3, 1, 7]


def test_results_go_under_their_own_names_and_other_keys_can_be_left_out() -> None:
    step = PerspectiveTransform(
        input_names=("p",),
        output_names=("q",),
        source_points=CORNERS,
        target_points=CORNERS,
        keep_other_fields=False,
    )

    assert run(step, {"p": Point((3, 4)), "n": 1}) == Data({"q": Point((3, 4))})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "exactly one of sourcePoints"),
        ({"source_points": CORNERS, "source_points_name": "s"}, "exactly one of sourcePoints"),
        ({"source_points": CORNERS[:3]}, "four points"),
        ({"source_points": CORNERS, "target_points": CORNERS, "target_points_name": "t"}, "only one of targetPoints"),
        ({"source_points": CORNERS, "input_names": ("a", "b"), "output_names": ("c",)}, "equally many"),
    ],
)
def test_a_transform_that_cannot_work_does_not_open(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(StepError, match=message):
        Sequence([PerspectiveTransform(**fields)]).open()


def test_three_points_on_a_line_are_refused() -> None:
    line = (Point((0, 0)), Point((1, 1)), Point((2, 2)), Point((3, 3)))
    with pytest.raises(StepError, match="three are on a line"):
        run(PerspectiveTransform(source_points=line, target_points=CORNERS), {"p": Point((1, 2))})


def test_nothing_to_transform_is_an_error() -> None:
    with pytest.raises(StepError, match="there is nothing to transform"):
        run(PerspectiveTransform(source_points=CORNERS, target_points=CORNERS), {"n": 1})


def test_the_part_in_a_box_is_cut_out() -> None:
    data = {"image": numbered(20, 40), "box": BoundingBox(x1=0.25, x2=0.5, y1=0.1, y2=0.5), "n": 1}

    found = run(ExtractBoundingBox(), data)

    assert list(found) == ["n", "image"]
    assert size(found["image"]) == (8, 10)
    assert corner(found["image"]) == [2, 10]


def test_a_list_of_boxes_gives_a_list_of_parts() -> None:
    boxes = [BoundingBox(cx=0.5, cy=0.5, h=0.5, w=0.5), BoundingBox(cx=0.25, cy=0.25, h=0.1, w=0.2)]

    found = run(ExtractBoundingBox(output_name="parts"), {"image": numbered(20, 40), "boxes": boxes})

    assert [size(part) for part in found["parts"]] == [(10, 20), (2, 8)]
    assert list(found) == ["parts"]


def test_the_part_of_a_box_outside_of_the_image_is_black() -> None:
    # The reference fails here, although its documentation allows it.
    found = run(ExtractBoundingBox(), {"image": numbered(10, 10), "box": BoundingBox(x1=-0.2, x2=0.3, y1=0.8, y2=1.2)})

    pixels = found["image"].get_as("numpy")
    assert pixels.shape == (4, 5, 3)
    assert pixels[:2, 2:, 2].tolist() == [[7, 7, 7]] * 2
    assert pixels[:, :2].sum() == pixels[2:].sum() == 0


def test_a_part_has_the_aspect_ratio_and_the_size_that_were_asked_for() -> None:
    # The reference takes height for width here. 10 x 10 pixels widened to 20 x 10.
    box = BoundingBox(x1=0.375, x2=0.625, y1=0.25, y2=0.75)
    data = {"image": numbered(20, 40), "box": box}

    wide = run(ExtractBoundingBox(aspect_ratio=2.0), data)["image"]
    sized = run(ExtractBoundingBox(resize_h=6, resize_w=30), data)["image"]

    assert (size(wide), corner(wide)) == ((10, 20), [5, 10])
    assert size(sized) == (6, 30)


def test_boxes_of_a_networks_input_are_found_in_the_image() -> None:
    step = ExtractBoundingBox(image_to_ndarray_config=SQUARE_INPUT)

    found = run(step, {"image": numbered(20, 40), "box": BoundingBox(x1=0, x2=1, y1=0, y2=1)})

    assert (size(found["image"]), corner(found["image"])) == ((20, 20), [0, 10])


def test_a_box_in_pixels_is_an_error_rather_than_a_large_black_picture() -> None:
    with pytest.raises(StepError, match=r'"box" has .* in pixels, it seems: EXTRACT_BOUNDING_BOX takes fractions'):
        run(ExtractBoundingBox(), {"image": numbered(30, 40), "box": BoundingBox.corners(10, 20, 5, 15)})


def test_a_box_without_pixels_is_an_error() -> None:
    with pytest.raises(StepError, match="no pixels"):
        run(ExtractBoundingBox(), {"image": numbered(9, 9), "box": BoundingBox(cx=0.5, cy=0.5, h=0, w=0.5)})


def test_the_cells_of_a_grid_come_line_by_line() -> None:
    step = CropFixedGrid(points=CORNERS, grid_x=3, grid_y=2, bounding_box_name="boxes")

    found = run(step, {"image": numbered(20, 30), "n": 1})

    assert [corner(part) for part in found["crops"]] == [[y, x] for y in (0, 10) for x in (0, 10, 20)]
    assert {size(part) for part in found["crops"]} == {(10, 10)}
    assert found["boxes"][5] == BoundingBox(x1=2 / 3, x2=1, y1=0.5, y2=1, label="", probability=0.0)
    assert "n" not in found


def test_corners_of_the_record_may_be_pixels() -> None:
    corners = [Point(one) for one in ((10, 4), (30, 4), (10, 14), (30, 14))]
    step = CropGrid(grid_x=2, grid_y=1, coords_are_pixels=True, keep_other_fields=True, output_name="parts")

    found = run(step, {"image": numbered(20, 40), "corners": corners})

    assert [(corner(part), size(part)) for part in found["parts"]] == [([4, 10], (10, 10)), ([4, 20], (10, 10))]
    assert list(found) == ["image", "corners", "parts"]


def test_a_cell_is_widened_to_the_aspect_ratio_and_cut_at_the_border() -> None:
    # Each cell is 10 x 10; with 2:1 it reaches from -5 to 15, and from 5 to 25 of 20.
    step = CropFixedGrid(points=CORNERS, grid_x=2, grid_y=1, aspect_ratio=2.0)

    found = run(step, {"image": numbered(10, 20)})

    assert [(corner(part), size(part)) for part in found["crops"]] == [([0, 0], (10, 15)), ([0, 5], (10, 15))]


def test_a_grid_in_a_leaning_quadrilateral_gives_the_rectangles_around_its_cells() -> None:
    corners = [Point(one) for one in ((10, 0), (30, 0), (0, 20), (20, 20))]

    found = run(CropGrid(grid_x=1, grid_y=2, coords_are_pixels=True), {"image": numbered(30, 40), "c": corners})

    assert [(corner(part), size(part)) for part in found["crops"]] == [([0, 5], (10, 25)), ([10, 0], (10, 25))]


def test_a_cell_outside_of_the_image_is_an_error() -> None:
    corners = [Point((x + 2, y)) for x, y in ((0, 0), (1, 0), (0, 1), (1, 1))]

    with pytest.raises(StepError, match="column 0 and line 0 of the grid has no pixel"):
        run(CropGrid(grid_x=1, grid_y=1), {"image": numbered(8, 8), "c": corners})


@pytest.mark.parametrize("points", [None, CORNERS[:2]])
def test_a_fixed_grid_needs_four_corners(points: Any) -> None:
    with pytest.raises(StepError, match="four points"):
        Sequence([CropFixedGrid(points=points, grid_x=1, grid_y=1)]).open()


def test_a_list_of_other_than_four_corners_is_an_error() -> None:
    with pytest.raises(StepError, match=r'the points "c": four points .* 3 values are given'):
        run(CropGrid(grid_x=1, grid_y=1), {"image": numbered(8, 8), "c": list(CORNERS[:3])})


def test_a_record_without_an_image_says_so() -> None:
    with pytest.raises(StepError, match="Image field name was not provided and could not be inferred: no Image"):
        run(CropGrid(grid_x=1, grid_y=1), {"c": list(CORNERS)})


def test_records_of_a_stream_do_not_touch_each_other() -> None:
    step = ExtractBoundingBox(output_name="part")
    datas = [
        Data({"image": numbered(20 + n, 30), "box": BoundingBox(cx=0.5, cy=0.5, h=0.1 * n, w=0.5)}) for n in range(1, 6)
    ]
    datas.insert(2, Data({"image": numbered(4, 4)}))

    with Sequence([step]).open() as executor:
        together = executor.run_many(datas)
        alone = [executor.run_many([data])[0] for data in datas]

    assert isinstance(together[2], StepError)
    assert str(together[2]) == str(alone[2])
    assert together[:2] + together[3:] == alone[:2] + alone[3:]
