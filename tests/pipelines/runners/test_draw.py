"""DRAW_BOUNDING_BOX, DRAW_POINTS, DRAW_HEATMAP, DRAW_GRID, DRAW_SEGMENTATION, DRAW_FACE_KEY_POINTS, and colours."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from outcomes import result_of

from pipelines import BoundingBox, Data, Image, Point, Sequence
from pipelines.errors import DefinitionError, StepError
from pipelines.runners.images.colors import LIME, color, random_colors
from pipelines.steps import (
    DrawBoundingBox,
    DrawFaceKeyPoints,
    DrawFixedGrid,
    DrawGrid,
    DrawHeatmap,
    DrawPoints,
    DrawSegmentation,
    ExtractBoundingBox,
    ImageToNDArrayConfig,
    Step,
)

WIDE = Image(np.zeros((20, 40, 3), np.uint8))
GREEN, RED, BLUE, BLACK = [0, 255, 0], [0, 0, 255], [255, 0, 0], [0, 0, 0]


def run(step: Step, data: dict[str, Any]) -> Data:
    with Sequence([step]).open() as executor:
        return result_of(executor.run(Data(data)))


def pixels(image: Image) -> np.ndarray:
    return image.get_as("numpy")


def lit(picture: np.ndarray) -> tuple[int, int, int, int]:
    """First and last line, first and last column with anything bright on them: soft edges do not count."""
    y, x = np.nonzero((picture > 99).any(axis=2))
    return int(y.min()), int(y.max()), int(x.min()), int(x.max())


@pytest.mark.parametrize(
    ("text", "bgr"),
    [
        ("Red", (0, 0, 255)),
        ("silver", (192, 192, 192)),
        ("rgb(1,2,3)", (3, 2, 1)),
        ("RGB(255,0,128)", (128, 0, 255)),
        # The reference reads what follows # as a decimal number.
        ("#123456", (0x56, 0x34, 0x12)),
        ("#788E87", (0x87, 0x8E, 0x78)),
        (None, LIME),
    ],
)
def test_a_colour_has_a_name_or_numbers(text: str | None, bgr: tuple[int, int, int]) -> None:
    assert color(text, LIME) == bgr


@pytest.mark.parametrize("text", ["pink", "#12345", "rgb(1, 2, 3)", "rgb(256,0,0)", "FF0000", ""])
def test_an_invalid_colour_is_refused_by_name(text: str) -> None:
    with pytest.raises(DefinitionError, match=f'Invalid color: "{text}"'.replace("(", r"\(").replace(")", r"\)")):
        color(text, LIME)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("step", "values", "told"),
    [
        (DrawBoundingBox(), {"b": [BoundingBox.corners(0, NAN, 0, 1)]}, 'box 0 of "b" is BoundingBox(x1=0, x2=nan,'),
        (DrawBoundingBox(), {"b": BoundingBox.corners(0, INF, 0, 1)}, 'box 0 of "b" is BoundingBox(x1=0, x2=inf,'),
        (
            DrawFaceKeyPoints(bbox_name="b"),
            {"b": BoundingBox.corners(0, NAN, 0, 1), "l": np.ones((1, 2))},
            'box 0 of "b" is BoundingBox(x1=0, x2=nan,',
        ),
        (
            DrawFaceKeyPoints(bbox_name="b"),
            {"b": BoundingBox.corners(0, 1, 0, 1), "l": np.array([[NAN, 1]])},
            "the landmarks have numbers that are not finite",
        ),
        (
            ExtractBoundingBox(),
            {"b": [BoundingBox.corners(0, 1, 0, 1), BoundingBox.corners(NAN, 1, 0, 1)]},
            'box 1 of "b" is BoundingBox(x1=nan,',
        ),
        (DrawPoints(image="i", points=["p"]), {"p": Point([NAN, 1])}, 'point 0 of "p" is Point([nan, 1]): its numbers'),
        (
            DrawPoints(image="i", points=["p"]),
            {"p": [Point([1, 1]), Point([1e300, 1])]},
            'point 1 of "p" is Point(',
        ),
        (
            DrawHeatmap(image="i", points=["p"]),
            {"p": Point([INF, 1])},
            'point 0 of "p" is Point([inf, 1])',
        ),
        (
            DrawGrid(grid_x=1, grid_y=1),
            {"p": [Point([0, 0]), Point([1, 0]), Point([0, 1]), Point([NAN, 1])]},
            'the points "p" are [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [nan, 1.0]]: their numbers have to be finite',
        ),
    ],
    ids=itertools.count(),
)
def test_numbers_that_no_picture_has_are_told_with_their_key(step: Step, values: dict[str, Any], told: str) -> None:
    with Sequence([step]).open() as executor:
        failed = executor.run_many([Data({"i": WIDE, **values})])[0]
    assert isinstance(failed, StepError)
    assert f"DataError: {told}" in str(failed)


def test_the_log_says_once_that_boxes_are_in_pixels(caplog: pytest.LogCaptureFixture) -> None:
    data = Data({"image": Image(np.zeros((40, 60, 3), np.uint8)), "boxes": [BoundingBox.corners(10, 20, 5, 15)]})
    with Sequence([DrawBoundingBox()]).open() as executor:
        executor.run_many([data, data])
    [said] = [one.getMessage() for one in caplog.records]
    assert said.startswith('"boxes" has BoundingBox(x1=10, x2=20, y1=5, y2=15), which is in pixels, it seems')


def test_a_box_far_beyond_the_picture_is_drawn_as_far_as_it_is_in_it() -> None:
    for far in (1.5, 1e8):
        found = run(DrawBoundingBox(), {"i": WIDE, "b": BoundingBox.corners(0.5, far, 0.5, far)})
        picture = pixels(found["i"])
        assert (picture[10, 20:] == GREEN).all()
        assert (picture[10:, 20] == GREEN).all()
        assert not picture[11:, 21:].any()
        assert not pixels(run(DrawBoundingBox(), {"i": WIDE, "b": BoundingBox.corners(far, 2 * far, 0, 1)})["i"]).any()


def test_random_colours_are_the_same_as_konduits() -> None:
    rgb = [(red, green, blue) for blue, green, red in itertools.islice(random_colors(), 12)]

    assert rgb[:4] == [(121, 100, 201), (153, 145, 19), (40, 87, 181), (234, 137, 72)]
    assert rgb[-1] == (100, 218, 80)


def test_a_box_is_drawn_in_the_colour_of_its_label() -> None:
    boxes = [
        BoundingBox(x1=0.1, x2=0.4, y1=0.2, y2=0.7, label="cat"),
        BoundingBox(x1=0.5, x2=0.9, y1=0.2, y2=0.7, label="dog"),
    ]

    found = run(DrawBoundingBox(class_colors={"cat": "red"}), {"frame": WIDE, "boxes": boxes, "n": 1})

    assert list(found) == ["frame"]
    picture = pixels(found["frame"])
    # x from 4, 12 wide; y from 4, 10 high.
    assert lit(picture[:, :20]) == (4, 13, 4, 15)
    assert picture[4, 4].tolist() == RED
    assert picture[13, 20].tolist() == GREEN
    assert picture[8, 8].tolist() == BLACK
    assert not pixels(WIDE).any()


def test_boxes_of_a_networks_input_are_drawn_where_the_network_saw_them() -> None:
    step = DrawBoundingBox(
        image_to_ndarray_config=ImageToNDArrayConfig(height=10, width=10), draw_crop_region=True, color="red"
    )

    picture = pixels(run(step, {"frame": WIDE, "box": BoundingBox(x1=0.25, x2=0.75, y1=0.25, y2=0.75)})["frame"])

    assert lit(picture) == (0, 19, 10, 29)
    assert picture[0, 10].tolist() == BLUE
    assert picture[5, 15].tolist() == picture[14, 24].tolist() == RED


@pytest.mark.parametrize(
    ("scale", "height", "width", "size"),
    [
        ("AT_LEAST", 40, 0, (40, 80)),
        ("AT_LEAST", 30, 100, (50, 100)),
        ("AT_LEAST", 10, 10, (20, 40)),
        ("AT_MOST", 10, 30, (10, 20)),
        ("AT_MOST", 100, 100, (20, 40)),
    ],
)
def test_a_picture_is_scaled_before_drawing_and_keeps_its_proportions(
    scale: Any, height: int, width: int, size: tuple[int, int]
) -> None:
    # The reference swaps width and height, and does not always keep to the bound.
    step = DrawBoundingBox(scale=scale, resize_h=height, resize_w=width)

    found = run(step, {"frame": WIDE, "box": BoundingBox(x1=0, x2=1, y1=0, y2=1)})["frame"]

    assert (found.height, found.width) == size
    assert lit(pixels(found)) == (0, size[0] - 1, 0, size[1] - 1)


def test_label_and_probability_are_written_above_the_box() -> None:
    frame = Image(np.zeros((100, 100, 3), np.uint8))
    box = BoundingBox(x1=0.1, x2=0.3, y1=0.5, y2=0.9, label="cat", probability=0.87)

    def above(**fields: bool) -> int:
        picture = pixels(run(DrawBoundingBox(**fields), {"frame": frame, "box": box})["frame"])
        return int(picture[:50].any(axis=2).any(axis=0).sum())

    plain, label, both = above(), above(draw_label=True), above(draw_label=True, draw_probability=True)
    assert 0 == plain < label < both


def test_a_gray_image_gets_coloured_boxes() -> None:
    gray = Image(np.full((20, 40), 9, np.uint8))

    picture = pixels(run(DrawBoundingBox(), {"frame": gray, "box": BoundingBox(x1=0, x2=1, y1=0, y2=1)})["frame"])

    assert (picture[0, 0].tolist(), picture[5, 5].tolist()) == (GREEN, [9, 9, 9])


def test_points_are_drawn_in_the_colour_of_their_label() -> None:
    # A label without a colour fails in the reference.
    step = DrawPoints(points=("a", "b"), class_colors={"nose": "red"}, no_class_color="blue", radius=2, image="frame")
    data = {"frame": WIDE, "a": [Point((0.25, 0.5), "nose"), Point((20, 10), "ear")], "b": Point((0.75, 0.5), "")}

    found = run(step, data)

    picture = pixels(found["image"])
    assert [picture[10, x].tolist() for x in (10, 20, 30)] == [RED, BLUE, BLUE]
    assert found["frame"] == WIDE
    assert lit(picture[:, :15])[:2] == (8, 12)


def test_points_without_an_image_are_drawn_onto_black() -> None:
    found = run(DrawPoints(points=("p",), width=8, height=6, radius=1, output_name="out"), {"p": Point((3, 2))})

    assert pixels(found["out"]).shape == (6, 8, 3)
    assert lit(pixels(found["out"])) == (1, 3, 2, 4)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (DrawPoints(points=("p",)), "image, or both width and height"),
        (DrawPoints(width=5, height=5), "points must name"),
        (DrawHeatmap(points=("p",), width=5), "image, or both width and height"),
        (DrawBoundingBox(color="pink"), 'Invalid color: "pink"'),
        (DrawBoundingBox(scale="AT_MOST", resize_h=5), "needs resizeH and resizeW"),
        (DrawFixedGrid(), "four points"),
    ],
)
def test_a_step_that_cannot_draw_does_not_open(step: Step, message: str) -> None:
    with pytest.raises(StepError, match=message):
        Sequence([step]).open()


def test_a_value_that_is_no_point_is_refused() -> None:
    with pytest.raises(StepError, match="a point or a list of points is needed, not STRING"):
        run(DrawPoints(points=("p",), width=5, height=5), {"p": "here"})


def test_a_heat_map_fades_and_is_hottest_where_points_are() -> None:
    step = DrawHeatmap(points=("p",), width=60, height=40, radius=2, fading_factor=0.5, output_name="map")
    with Sequence([step]).open() as executor:
        first = result_of(executor.run(Data({"p": Point((10, 20))})))
        second = result_of(executor.run(Data({"p": Point((50, 20))})))

    # OpenCV's TURBO: 255 is (4, 0, 122) in its BGR order reversed, dark red; 0 is dark blue.
    hot, half, cold = pixels(second["map"])[20, 50], pixels(second["map"])[20, 10], pixels(second["map"])[0, 30]
    assert pixels(first["map"])[20, 10].tolist() == hot.tolist()
    assert int(hot[2]) > int(hot[0])
    assert int(half[1]) > 200  # the middle of the scale is green
    assert cold.tolist() == pixels(first["map"])[0, 30].tolist()
    assert list(second) == ["p", "map"]


def test_a_heat_map_without_points_or_with_points_at_the_border_is_drawn() -> None:
    step = DrawHeatmap(points=("p",), image="frame", radius=1, keep_other_values=False)

    for points in ([], [Point((0, 0)), Point((40, 20)), Point((-5, 3)), Point((400, 3))]):
        found = run(step, {"frame": WIDE, "p": points})
        assert (found["image"].height, found["image"].width) == (20, 40)
        assert list(found) == ["image"]


def test_pictures_of_another_size_do_not_go_into_the_same_heat_map() -> None:
    with Sequence([DrawHeatmap(points=("p",), image="frame")]).open() as executor:
        executor.run(Data({"frame": WIDE, "p": Point((1, 1))}))
        with pytest.raises(StepError, match="the heat map has 40 x 20 pixels, this picture 5 x 5"):
            executor.run(Data({"frame": Image(np.zeros((5, 5, 3), np.uint8)), "p": Point((1, 1))}))


def test_a_grid_has_a_border_and_lines_inside() -> None:
    corners = [Point(one) for one in ((2, 2), (32, 2), (2, 17), (32, 17))]
    step = DrawGrid(grid_x=3, grid_y=2, coords_are_pixels=True, border_color="red", grid_color="blue")

    found = run(step, {"frame": WIDE, "corners": corners})

    picture = pixels(found["frame"])
    assert lit(picture) == (2, 17, 2, 32)
    assert picture[2, 5].tolist() == picture[17, 5].tolist() == RED
    assert [x for x in range(3, 32) if picture[5, x].tolist() == BLUE] == [12, 22]
    assert [y for y in range(3, 17) if picture[y, 5].tolist() == BLUE] == [9]
    assert found["corners"] == corners


def test_a_fixed_grid_may_be_given_in_fractions() -> None:
    corners = tuple(Point(one) for one in ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)))

    assert lit(pixels(run(DrawFixedGrid(points=corners), {"frame": WIDE})["frame"])) == (5, 15, 10, 30)


CLASSES = np.array([[[0, 1], [2, 1]]], np.int64)


def test_classes_have_the_given_colours_and_then_random_ones() -> None:
    step = DrawSegmentation(segment_array="classes", class_colors=("white", "red"))

    found = run(step, {"classes": CLASSES})

    assert pixels(found["image"]).tolist() == [[[255] * 3, RED], [[181, 87, 40], RED]]


def test_the_background_stays_black_without_an_image() -> None:
    # It has no effect in the reference.
    step = DrawSegmentation(segment_array="classes", background_class=1)

    assert pixels(run(step, {"classes": CLASSES})["image"])[:, 1].tolist() == [BLACK, BLACK]


def test_classes_are_blended_into_an_image_of_their_size() -> None:
    image = Image(np.full((2, 2, 3), 101, np.uint8))
    step = DrawSegmentation(
        class_colors=("black", "white", "red"), image="frame", background_class=0, opacity=0.25, output_name="out"
    )

    found = run(step, {"classes": CLASSES, "frame": image})

    # 0.25 * 255 + 0.75 * 101 = 139.5, the fraction dropped.
    assert pixels(found["out"]).tolist() == [[[101] * 3, [139] * 3], [[75, 75, 139], [139] * 3]]
    assert list(found) == ["out"]


def test_classes_of_a_crop_are_drawn_into_that_part_of_the_image() -> None:
    step = DrawSegmentation(
        class_colors=("red", "lime", "blue"),
        image="frame",
        opacity=1.0,
        image_to_ndarray_config=ImageToNDArrayConfig(height=2, width=2),
    )

    picture = pixels(run(step, {"classes": CLASSES.astype(np.int32), "frame": WIDE})["image"])

    assert lit(picture) == (0, 19, 10, 29)
    assert [picture[y, x].tolist() for y, x in ((9, 19), (9, 20), (10, 19), (10, 20))] == [RED, GREEN, BLUE, GREEN]


def test_classes_of_another_size_without_a_configuration_cover_the_image() -> None:
    # The reference fails here.
    picture = pixels(run(DrawSegmentation(image="frame"), {"classes": CLASSES, "frame": WIDE})["image"])

    assert picture.any(axis=2).all()


@pytest.mark.parametrize("dtype", ["f4", "f2", "i1"])
def test_scores_of_classes_are_drawn_as_the_class_with_the_highest_one(dtype: str) -> None:
    scores = np.where(np.arange(3).reshape(1, 3, 1, 1) == CLASSES[:, np.newaxis], 5, -3).astype(dtype)
    step = DrawSegmentation(class_colors=("white", "red", "blue"), activation="ARGMAX")
    plain = step.model_copy(update={"activation": "NONE"})

    drawn = pixels(run(step, {"scores": scores})["image"])

    assert drawn.tolist() == pixels(run(plain, {"classes": CLASSES})["image"]).tolist()
    with pytest.raises(StepError, match=r"shape \[2, 2\]; \[1, C, H, W\] is needed for ARGMAX"):
        run(step, {"scores": CLASSES[0]})
    scores = scores.astype("f4")
    scores[0, 1, 0, 0] = np.nan
    with pytest.raises(StepError, match="not a number"):
        run(step, {"scores": scores})


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 2, 2), "f4"), "float32; class numbers, integers, are needed"),
        (np.zeros((2, 2, 2), "i4"), r"shape \[2, 2, 2\]; \[1, H, W\] is needed"),
        (np.full((1, 2, 2), -1), "class numbers from -1 to -1"),
    ],
)
def test_an_array_that_is_no_picture_of_classes_is_refused(array: np.ndarray, message: str) -> None:
    with pytest.raises(StepError, match=message):
        run(DrawSegmentation(), {"classes": array})


def test_the_landmarks_of_each_face_are_drawn_into_its_box() -> None:
    # The reference draws the landmarks of all faces into each box.
    boxes = [BoundingBox(x1=0, x2=0.5, y1=0, y2=1), BoundingBox(x1=0.5, x2=1, y1=0, y2=1)]
    landmarks = np.array([[0.25, 0.5], [0.75, 0.5]], "f4")
    step = DrawFaceKeyPoints(landmark_array="marks", image="frame", point_size=1, draw_face_box=False)

    found = run(step, {"frame": WIDE, "marks": landmarks, "img_bbox": boxes})

    assert list(found) == ["image"]
    picture = pixels(found["image"])
    assert [picture[10, x].tolist() for x in (5, 15, 25, 35)] == [RED, BLACK, BLACK, RED]


def test_faces_have_boxes_of_two_pixels() -> None:
    data = {"frame": WIDE, "marks": np.array([[0.5, 0.5]], "f4"), "faces": BoundingBox(x1=0.1, x2=0.9, y1=0.2, y2=0.8)}

    picture = pixels(run(DrawFaceKeyPoints(bbox_name="faces", output_name="out"), data)["out"])

    assert picture[10, 4].tolist() == GREEN
    assert picture[10, 20].tolist() == RED


def test_landmarks_that_are_no_pairs_are_refused() -> None:
    data = {"frame": WIDE, "marks": np.zeros((1, 3), "f4"), "img_bbox": BoundingBox(x1=0, x2=1, y1=0, y2=1)}
    with pytest.raises(StepError, match=r"\[faces, 2 \* n\] are needed"):
        run(DrawFaceKeyPoints(), data)
