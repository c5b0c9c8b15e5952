"""IMAGE_RESIZE, IMAGE_CROP, GRAY_SCALE and SHOW_IMAGE: pixels by hand, and a batch as its rows."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import result_of

import pipelines
from examples import examples
from pipelines import BoundingBox, Data, GrayScale, Image, ImageCrop, ImageResize, Point, ShowImage, Step, StepError
from pipelines.errors import DataError, StreamerError
from pipelines.runners.images.imagecrop import crop
from pipelines.runners.images.showimage import ShowImageRunner, no_windows
from pipelines.runners.runner import OpenContext

pytestmark = pytest.mark.usefixtures("rarity")


def gray(*rows: list[int]) -> Image:
    return Image(np.array(rows, np.uint8))


def blank(width: int, height: int) -> Image:
    return Image(np.zeros((height, width, 3), np.uint8))


def values(image: Image) -> Any:
    """The first channel."""
    return image.get_as("numpy")[:, :, 0].tolist()


def ran(step: Step, data: Data) -> Any:
    with pipelines.Sequence([step]).open() as executor:
        (found,) = executor.run_many([data])
    return found


def failure(step: Step, data: Data) -> str:
    found = ran(step, data)
    assert isinstance(found, StepError)
    return str(found)


def cannot_open(step: Step) -> str:
    with pytest.raises(StreamerError) as caught:
        pipelines.Sequence([step]).open()
    return str(caught.value)


@pytest.mark.parametrize("step", [ImageResize(width=2), pipelines.ImageToNDArray(config={"height": 2, "width": 2})])
def test_of_several_images_the_broken_one_is_named(step: Step) -> None:
    data = Data({"front": blank(4, 4), "back": Image(b"RIFF\x10\0\0\0WAVEfmt ")})
    assert 'DataError: key "back": the image\'s 16 bytes are not a PNG' in failure(step, data)


# IMAGE_RESIZE


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({"width": 3}, (3, 2)),
        ({"height": 8}, (12, 8)),
        ({"width": 5}, (5, 3)),  # 5 / 1.5 = 3.33
        ({"width": 1}, (1, 1)),
        ({"width": 4, "height": 4}, (4, 4)),
        ({"width": 2, "height": 5, "aspect_ratio_handling": "CENTER_CROP"}, (2, 5)),
        ({"width": 2, "height": 5, "aspect_ratio_handling": "PAD"}, (2, 5)),
        ({"width": 6, "height": 4}, (6, 4)),
    ],
)
def test_an_image_gets_the_size_that_is_asked_for(fields: dict[str, Any], size: tuple[int, int]) -> None:
    found = ran(ImageResize(**fields), Data({"a": blank(6, 4)}))["a"]
    assert (found.width, found.height) == size


def test_other_proportions_are_stretched_cropped_or_padded() -> None:
    wide = Data({"a": gray([10, 20, 30, 40], [10, 20, 30, 40])})
    both = {"width": 2, "height": 2}
    assert values(ran(ImageResize(**both), wide)["a"]) == [[15, 35]] * 2
    assert values(ran(ImageResize(**both, aspect_ratio_handling="CENTER_CROP"), wide)["a"]) == [[20, 30]] * 2
    padded = ran(ImageResize(width=4, height=4, aspect_ratio_handling="PAD"), wide)["a"]
    assert values(padded) == [[0] * 4, [10, 20, 30, 40], [10, 20, 30, 40], [0] * 4]


def test_a_tall_image_is_padded_to_an_output_that_is_no_square() -> None:
    # Konduit swaps width and height here.
    tall = Data({"a": gray([1], [2])})
    padded = ran(ImageResize(width=4, height=2, aspect_ratio_handling="PAD"), tall)["a"]
    assert values(padded) == [[0, 1, 0, 0], [0, 2, 0, 0]]


def test_all_images_and_lists_are_resized_and_all_else_stays_in_its_place() -> None:
    data = Data({"n": 1, "a": blank(4, 2), "list": [blank(2, 2), blank(6, 2)], "text": "x"})
    data.metadata = Data({"kept": True})
    found = ran(ImageResize(width=2), data)
    assert list(found) == ["n", "a", "list", "text"]
    assert [(one.width, one.height) for one in (found["a"], *found["list"])] == [(2, 1), (2, 2), (2, 1)]
    assert found.metadata == Data({"kept": True})
    assert ran(ImageResize(width=2, input_names=["a"]), data)["list"] is not None
    assert ran(ImageResize(width=2, input_names=["a"]), data)["list"][1].width == 6


def test_an_image_of_the_right_size_is_not_even_decoded() -> None:
    pixels = np.zeros((2, 2, 3), np.uint8)
    broken = Image(Image(pixels).get_as("png")[:-20])
    assert ran(ImageResize(width=2, height=2), Data({"a": broken}))["a"] is broken


def test_a_resize_that_cannot_work_is_told_with_the_reason() -> None:
    assert 'needs "height", "width" or both' in cannot_open(ImageResize())
    assert "no image and no list of images" in failure(ImageResize(width=2), Data({"n": 1}))
    step = ImageResize(width=2, input_names=["phoot"])
    assert 'did you mean "photo"?' in failure(step, Data({"photo": blank(2, 2)}))
    assert "actual type INT64" in failure(step, Data({"phoot": 1}))
    assert "Image.max_pixels" in failure(ImageResize(width=20000), Data({"a": blank(1, 4)}))


# IMAGE_CROP

SQUARE = np.arange(1, 17, dtype=np.uint8).reshape(4, 4, 1)


@pytest.mark.parametrize(
    ("corners", "wanted"),
    [
        ((0, 0, 4, 4), SQUARE[:, :, 0].tolist()),  # Konduit loses the last row and column
        ((1, 2, 3, 4), [[10, 11], [14, 15]]),
        ((-1, 2, 1, 4), [[0, 9], [0, 13]]),
        ((3, 3, 5, 6), [[16, 0], [0, 0], [0, 0]]),  # Konduit swaps rows and columns of the canvas
        ((-1, 1, 5, 2), [[0, 5, 6, 7, 8, 0]]),  # black in Konduit, as it lies outside on both sides
        ((7, 7, 9, 8), [[0, 0]]),
        ((-5, -5, -3, -4), [[0, 0]]),
        ((0.5, 0.49, 1.5, 1.4), [[2]]),  # halves up
    ],
)
def test_a_rectangle_in_pixels_is_cut_out_and_black_outside(corners: Any, wanted: Any) -> None:
    found = crop(SQUARE, corners, pixels=True)
    assert found[:, :, 0].tolist() == wanted


def test_fractions_are_of_the_image() -> None:
    assert crop(SQUARE, (0.25, 0.5, 0.75, 1.0), pixels=False)[:, :, 0].tolist() == [[10, 11], [14, 15]]


@pytest.mark.parametrize(
    "fields",
    [
        {"crop_box": BoundingBox.corners(0.25, 0.75, 0.5, 1)},
        {"crop_box": BoundingBox.center(0.5, 0.75, 0.5, 0.5), "crop_name": "nothing"},
        {"crop_points": [Point([0.75, 0.5]), Point([0.25, 1])]},
        {"crop_points": [{"coords": [1, 2]}, {"coords": [3, 4]}], "coords_are_pixels": True},
        {"crop_points": [{"@Coords": [1, 2]}, {"@Coords": [3, 4]}], "coords_are_pixels": True},
        {"crop_name": "box"},
        {"crop_name": "corners", "image_name": "a"},
    ],
)
def test_the_rectangle_comes_from_the_definition_or_from_the_record(fields: dict[str, Any]) -> None:
    corners = [Point([0.25, 0.5]), Point([0.75, 1])]
    data = Data({"a": Image(SQUARE), "box": BoundingBox.corners(0.25, 0.75, 0.5, 1), "corners": corners})
    step = ImageCrop(**fields)
    found = ran(step, data)
    assert values(found["a"]) == [[10, 11], [14, 15]]
    assert list(found) == ["a", "box", "corners"]
    again = pipelines.loads(pipelines.Sequence([step]).to_json())
    with again.open() as executor:
        assert executor.run(data) == found


def test_each_record_has_its_own_rectangle_and_a_list_is_cropped_one_by_one() -> None:
    boxes = [BoundingBox.corners(0, 1, 0, 1), BoundingBox.corners(0, 0, 0, 1), BoundingBox.corners(1, 2, 1, 3)]
    datas = [Data({"a": [Image(SQUARE)] * 2, "box": box}) for box in boxes]
    with pipelines.Sequence([ImageCrop(crop_name="box", coords_are_pixels=True)]).open() as executor:
        first, second, third = executor.run_many(datas)
    assert [values(one) for one in result_of(first)["a"]] == [[[1]]] * 2
    assert "has no pixels: its corners are (0, 0) and (0, 1), which is 0 x 1 pixels of an image of 4 x 4" in str(second)
    assert values(result_of(third)["a"][0]) == [[6], [10]]


def test_a_crop_that_cannot_work_is_told_with_the_reason() -> None:
    assert '"cropBox", "cropPoints" or "cropName"' in cannot_open(ImageCrop())
    assert "not a list of 1" in cannot_open(ImageCrop(crop_points=[Point([1, 2])]))
    box = BoundingBox.corners(0, 1, 0, 1)
    data = Data({"a": blank(2, 2), "b": blank(2, 2), "n": 3})
    text = failure(ImageCrop(crop_box=box), data)
    assert "imageName" in text
    assert "multiple Image fields exist: a and b" in text
    assert "no Image fields exist" in failure(ImageCrop(crop_box=box), Data({"n": 3}))
    assert "not INT64" in failure(ImageCrop(crop_name="n", image_name="a"), data)
    assert 'key "boks"' in failure(ImageCrop(crop_name="boks", image_name="a"), data)
    with pytest.raises(DataError, match=r"Image\.max_pixels"):
        crop(SQUARE, (0, 0, 1e5, 1e5), pixels=True)
    with pytest.raises(DataError, match="nan"):
        crop(SQUARE, (0, 0, float("nan"), 1), pixels=True)


# GRAY_SCALE


def test_colours_become_gray_by_their_weights() -> None:
    # 0.114 * 10 + 0.587 * 100 + 0.299 * 200 = 119.64
    data = Data({"a": Image(np.array([[[10, 100, 200]]], np.uint8)), "n": 1})
    one, three = ran(GrayScale(), data), ran(GrayScale(output_channels=3), data)
    assert one["a"].get_as("numpy").tolist() == [[[120]]]
    assert three["a"].get_as("numpy").tolist() == [[[120, 120, 120]]]
    assert one["n"] == 1


def test_a_gray_image_stays_and_a_list_is_done_one_by_one() -> None:
    # Konduit fails for gray images.
    data = Data({"a": [gray([1, 2]), Image(np.full((1, 1, 3), 9, np.uint8))]})
    assert [values(one) for one in ran(GrayScale(), data)["a"]] == [[[1, 2]], [[9]]]
    assert [one.channels for one in ran(GrayScale(output_channels=3), data)["a"]] == [3, 3]
    assert "no Image fields exist" in failure(GrayScale(), Data({"n": 1}))
    assert "actual type NDARRAY" in failure(GrayScale(image_name="n"), Data({"n": np.zeros(3)}))
    assert ran(GrayScale(image_name="n"), Data({"n": []})) == Data({"n": []})
    assert "actual type list of INT64" in failure(GrayScale(image_name="n"), Data({"n": [1]}))


# SHOW_IMAGE


class Recorded:
    """A screen that notes what it is shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, int, int]] = []
        self.closed = False

    def show(self, title: str, image: Image, width: int, height: int) -> None:
        self.shown.append((title, width, height))

    def close(self) -> None:
        self.closed = True


def shown(data: Data, **fields: Any) -> list[tuple[str, int, int]]:
    screen = Recorded()
    runner = ShowImageRunner(ShowImage(**fields), OpenContext(), screen)
    result = runner.run_batch(pipelines.Batch.of([data]))
    assert result.batch.to_list() == [data]
    runner.close()
    assert screen.closed
    return screen.shown


def test_an_image_is_shown_in_a_window_of_its_size_but_at_least_64() -> None:
    assert shown(Data({"image": blank(100, 20)})) == [("Image", 100, 64)]
    assert shown(Data({"x": blank(9, 9)}), image_name=None, width=50, height=30) == [("Image", 50, 30)]


def test_each_image_of_a_list_has_its_window_if_that_is_allowed() -> None:
    data = Data({"image": [blank(64, 64), blank(65, 64)]})
    assert shown(data, allow_multiple=True, display_name="cam") == [("cam_0", 64, 64), ("cam_1", 65, 64)]
    with pytest.raises(pipelines.RowsFailed, match="allowMultiple"):
        shown(data)


def test_without_a_display_records_pass_with_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    if not no_windows():
        pytest.skip("windows can be opened here without DISPLAY")
    datas = [Data({"image": Image(b"not even looked at")}), Data({"n": 1})]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pipelines.Sequence([ShowImage()]).open() as executor:
            assert executor.run_many(datas) == datas
            assert executor.run_many(datas) == datas
    assert [str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)] == [
        f"SHOW_IMAGE shows nothing and passes records on: {no_windows()}"
    ]


def test_the_image_of_no_name_survives_a_file() -> None:
    pipeline = pipelines.Sequence([ShowImage(image_name=None)])
    assert pipelines.loads(pipeline.to_json()) == pipeline
    assert pipelines.loads(pipeline.to_yaml()) == pipeline


# All

pictures = st.builds(
    lambda height, width, channels, seed: Image(
        np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    ),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from([1, 3]),
    st.integers(0, 99),
)
anything = pictures | st.lists(pictures, max_size=2) | st.integers(0, 3)
steps = st.sampled_from(
    [
        ImageResize(width=4),
        ImageResize(width=3, height=5, aspect_ratio_handling="PAD"),
        ImageResize(height=4, width=4, input_names=["a"], aspect_ratio_handling="CENTER_CROP"),
        ImageCrop(crop_box=BoundingBox.corners(0.2, 1.3, -0.1, 0.8)),
        ImageCrop(crop_points=[Point([1, 1]), Point([3, 4])], coords_are_pixels=True, image_name="b"),
        GrayScale(),
        GrayScale(image_name="a", output_channels=3),
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("ab"), anything), min_size=1, max_size=5), steps)
def test_a_batch_gives_what_its_rows_give(rows: list[dict[str, Any]], step: Step) -> None:
    datas = [Data(dict(sorted(row.items()))) for row in rows]
    with pipelines.Sequence([step]).open() as executor:
        crowd = executor.run_many(datas)
        alone = [executor.run_many([data])[0] for data in datas]
    for found, wanted in zip(crowd, alone, strict=True):
        if isinstance(wanted, StepError):
            # The names of keys may come in another order.
            assert isinstance(found, StepError)
            assert type(found.__cause__) is type(wanted.__cause__)
        else:
            assert found == wanted
