"""IMAGE_TO_NDARRAY: values by hand on small pictures, lists, names, metadata, and a batch as its rows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outcomes import result_of, results_of
from pydantic import ValidationError

import pipelines
from examples import examples
from pipelines import (
    Batch,
    BoundingBox,
    Data,
    DenseColumn,
    Image,
    ImageNormalization,
    ImageToNDArray,
    ImageToNDArrayConfig,
    StepError,
    ValueType,
    image_to_ndarray,
)
from pipelines.errors import StreamerError
from pipelines.runners.images.fitting import crop_region
from pipelines.runners.images.imagetondarray import ImageToNDArrayRunner
from pipelines.runners.images.scaling import cast
from pipelines.runners.runner import OpenContext
from pipelines.values.lists import TypedList

BLUE, GREEN, RED = [255, 0, 0], [0, 255, 0], [0, 0, 255]
NONE = {"type": "NONE"}


def picture(*rows: Any) -> Image:
    return Image(np.array(rows, np.uint8))


def plain(image: Image, **fields: Any) -> Any:
    """Pixel values as they are, `[H, W, C]` uint8."""
    given = {"normalization": NONE, "data_type": "UINT8", "format": "CHANNELS_LAST", "include_minibatch_dim": False}
    return image_to_ndarray(image, **{**given, **fields}).tolist()


def ran(data: Data, config: dict[str, Any] | None = None, **fields: Any) -> Any:
    with pipelines.Sequence([ImageToNDArray(config=config, **fields)]).open() as executor:
        (found,) = executor.run_many([data])
    return found


def failure(data: Data, config: dict[str, Any] | None = None, **fields: Any) -> str:
    found = ran(data, config, **fields)
    assert isinstance(found, StepError)
    return str(found)


def test_the_default_is_rgb_channels_first_float_from_minus_one_to_one() -> None:
    found = image_to_ndarray(picture([[0, 51, 255], [255, 102, 0]]))
    assert (found.shape, found.dtype) == ((1, 3, 1, 2), np.dtype(np.float32))
    third = np.float32(51) / np.float32(127.5) - np.float32(1)
    assert found[0, :, 0].tolist() == [[1, -1], [third, np.float32(102) / np.float32(127.5) - np.float32(1)], [-1, 1]]


@pytest.mark.parametrize(
    ("layout", "pixel"),
    [
        ("RGB", [3, 2, 1]),
        ("BGR", [1, 2, 3]),
        ("RGBA", [3, 2, 1, 255]),
        ("BGRA", [1, 2, 3, 255]),
        ("GRAYSCALE", [2]),
    ],
)
def test_channels_come_in_the_order_of_the_layout(layout: str, pixel: list[int]) -> None:
    # 0.299 * 3 + 0.587 * 2 + 0.114 * 1 = 2.185
    assert plain(picture([[1, 2, 3]]), channel_layout=layout) == [[pixel]]
    first = plain(picture([[1, 2, 3]]), channel_layout=layout, format="CHANNELS_FIRST")
    assert first == [[[value]] for value in pixel]


@pytest.mark.parametrize(("layout", "pixel"), [("RGB", [7] * 3), ("BGRA", [7, 7, 7, 255]), ("GRAYSCALE", [7])])
def test_a_gray_picture_is_repeated_in_every_colour(layout: str, pixel: list[int]) -> None:
    assert plain(picture([[7]]), channel_layout=layout) == [[pixel]]


def test_gray_is_weighed_as_opencv_does() -> None:
    # 0.114, 0.587 and 0.299 of 255, rounded
    assert plain(picture([BLUE, GREEN, RED]), channel_layout="GRAYSCALE") == [[[29], [150], [76]]]


def test_center_crop_takes_the_middle() -> None:
    wide = picture([[value] * 3 for value in (1, 2, 3, 4, 5)])
    assert plain(wide, height=1, width=2, channel_layout="GRAYSCALE") == [[[2], [3]]]
    tall = Image(np.arange(5, dtype=np.uint8).reshape(5, 1))
    assert plain(tall, height=1, width=1, channel_layout="GRAYSCALE") == [[[2]]]


def test_stretch_takes_everything() -> None:
    # OpenCV's bilinear from 4 to 2 columns averages pairs.
    wide = picture([[value] * 3 for value in (0, 10, 20, 40)])
    assert plain(wide, height=1, width=2, channel_layout="GRAYSCALE", aspect_ratio_handling="STRETCH") == [[[5], [30]]]


def test_pad_adds_black_on_both_sides() -> None:
    wide = picture([[9] * 3, [9] * 3])
    padded = plain(wide, height=2, width=2, channel_layout="GRAYSCALE", aspect_ratio_handling="PAD")
    # One row of two goes to a canvas of two rows; of an odd rest the smaller half is on top.
    assert padded == [[[9], [9]], [[0], [0]]]
    tall = Image(np.full((3, 1), 9, np.uint8))
    padded = plain(tall, height=3, width=3, channel_layout="GRAYSCALE", aspect_ratio_handling="PAD")
    assert padded == [[[0], [9], [0]]] * 3


def test_only_one_side_given_keeps_the_other() -> None:
    assert image_to_ndarray(Image(np.zeros((4, 6, 3), np.uint8)), width=3).shape == (1, 3, 4, 3)


F = np.float32


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"type": "NONE"}, [200, 100, 50]),
        ({"type": "SCALE"}, [F(200) / F(127.5) - 1, F(100) / F(127.5) - 1, F(50) / F(127.5) - 1]),
        ({"type": "SCALE", "max_value": 200}, [1, 0, -0.5]),
        ({"type": "SCALE_01"}, [F(200) / F(255), F(100) / F(255), F(50) / F(255)]),
        ({"type": "SCALE_01", "max_value": 200}, [1, 0.5, 0.25]),
        ({"type": "INCEPTION", "max_value": 200}, [1, 0, -0.5]),
        ({"type": "SUBTRACT_MEAN", "mean_rgb": [100, 50, 25]}, [100, 50, 25]),
        ({"type": "STANDARDIZE", "mean_rgb": [100, 50, 25], "std_rgb": [2, 4, 5]}, [50, 12.5, 5]),
        ({"type": "VGG_SUBTRACT_MEAN"}, [F(200) - F(123.68), F(100) - F(116.779), F(50) - F(103.939)]),
        (
            {"type": "IMAGE_NET"},
            [F(200) - F(0.485) / F(0.229), F(100) - F(0.456) / F(0.224), F(50) - F(0.406) / F(0.225)],
        ),
    ],
    ids=str,
)
def test_a_normalization_is_its_formula_in_float32(fields: dict[str, Any], wanted: list[Any]) -> None:
    image = picture([[50, 100, 200]])
    found = image_to_ndarray(image, normalization=fields)
    assert found.dtype == np.float32
    assert found[0, :, 0, 0].tolist() == [float(one) for one in wanted]
    swapped = image_to_ndarray(image, normalization=fields, channel_layout="BGR")
    assert swapped[0, :, 0, 0].tolist() == [float(one) for one in reversed(wanted)]
    with_alpha = image_to_ndarray(image, normalization=fields, channel_layout="RGBA", format="CHANNELS_LAST")
    assert with_alpha[0, 0, 0, :3].tolist() == [float(one) for one in wanted]


def test_gray_has_the_average_of_mean_and_deviation_and_alpha_has_none() -> None:
    how = {"type": "STANDARDIZE", "mean_rgb": [1, 2, 6], "std_rgb": [1, 2, 3]}
    image = picture([[9, 9, 9]])
    assert image_to_ndarray(image, normalization=how, channel_layout="GRAYSCALE").ravel().tolist() == [3]
    assert image_to_ndarray(image, normalization=how, channel_layout="RGBA").ravel().tolist() == [8, 3.5, 1, 255]


@pytest.mark.parametrize("fields", [{"type": "SUBTRACT_MEAN"}, {"type": "STANDARDIZE", "mean_rgb": [1, 2, 3]}])
def test_a_normalization_without_its_numbers_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r'needs "(mean|std)Rgb"'):
        ImageNormalization(**fields)


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        ("DOUBLE", [-1.5, 0.5, 300.25]),
        ("FLOAT16", [-1.5, 0.5, 300.25]),
        ("INT64", [-1, 0, 300]),
        ("INT32", [-1, 0, 300]),
        ("INT16", [-1, 0, 300]),
        ("INT8", [-1, 0, 44]),
        ("UINT64", [2**64 - 1, 0, 300]),
        ("UINT32", [2**32 - 1, 0, 300]),
        ("UINT16", [65535, 0, 300]),
        ("UINT8", [255, 0, 44]),
    ],
)
def test_integers_lose_the_fraction_and_narrow_ones_keep_the_low_bits(data_type: str, values: list[Any]) -> None:
    assert cast(np.array([-1.5, 0.5, 300.25], np.float32), data_type).tolist() == values


def test_a_normalised_value_beyond_a_float_type_fails_its_record_alone() -> None:
    how = {"type": "STANDARDIZE", "mean_rgb": [0, 0, 0], "std_rgb": [1e-3, 1e-3, 1e-3]}
    config = ImageToNDArrayConfig(normalization=how, data_type="FLOAT16", height=1, width=1)
    with pipelines.Sequence([ImageToNDArray(config=config)]).open() as executor:
        found = executor.run_many([Data({"image": picture([[value] * 3])}) for value in (1, 255, 2)])
    assert isinstance(found[1], StepError)
    assert "beyond the range of float16" in str(found[1])
    assert [one["image"].max() for one in results_of([found[0], found[2]])] == [1000, 2000]


def test_integers_end_at_the_range_of_32_or_64_bits() -> None:
    huge = np.array([3e9, -3e9, 1e20, np.nan], np.float32)
    top = 2**31 - 1
    assert cast(huge, "INT32").tolist() == [top, -(2**31), top, 0]
    assert cast(huge, "INT8").tolist() == [-1, 0, -1, 0]
    assert cast(huge, "INT64").tolist() == [3_000_000_000, -3_000_000_000, 2**63 - 1, 0]


def test_bfloat16_is_rounded_to_the_nearest_and_halves_to_even() -> None:
    # bfloat16 has 8 bits of precision: next to 256 come 258 and 260.
    found = cast(np.array([1.0, 257, 259, 258.5, -257], np.float32), "BFLOAT16").astype(np.float32)
    assert found.tolist() == [1, 256, 260, 258, -256]


def test_pixels_are_cast_without_a_detour_and_all_the_same() -> None:
    image = picture([[255, 128, 0]])
    for data_type in ("INT8", "UINT8", "FLOAT16", "INT64", "BFLOAT16", "UINT16"):
        direct = image_to_ndarray(image, normalization=NONE, data_type=data_type)
        scaled = image_to_ndarray(image, normalization={"type": "SCALE_01", "max_value": 1}, data_type=data_type)
        assert direct.dtype == scaled.dtype
        assert direct.tobytes() == scaled.tobytes()


def test_the_quantised_trap_is_as_documented() -> None:
    # SCALE gives -1 to 1: as UINT8 only 255 (from -1), 0 and 1 are left.
    found = image_to_ndarray(picture([[0, 100, 255]]), data_type="UINT8")
    assert found.ravel().tolist() == [1, 0, 255]


@pytest.mark.parametrize("data_type", ["BOOL", "UTF8", "float"])
def test_other_element_types_are_refused(data_type: str) -> None:
    with pytest.raises(ValidationError, match="dataType"):
        ImageToNDArrayConfig(data_type=data_type)


def test_null_means_no_normalization_and_channels_last_and_survives_a_file() -> None:
    text = '{"steps": [{"@type": "IMAGE_TO_NDARRAY", "config": {"normalization": null, "format": null}}]}'
    pipeline = pipelines.loads(text)
    assert pipelines.loads(pipeline.to_json()) == pipeline
    with pipeline.open() as executor:
        found = result_of(executor.run(Data({"a": picture([[1, 2, 3], [4, 5, 6]])})))
    assert found["a"].tolist() == [[[[3, 2, 1], [6, 5, 4]]]]


def test_the_plain_function_takes_what_images_are_made_of() -> None:
    image = picture([[1, 2, 3]])
    config = ImageToNDArrayConfig(include_minibatch_dim=False)
    arrays = [image_to_ndarray(one, config) for one in (image, image.get_as("numpy"), image.get_as("png"))]
    assert all(array.shape == (3, 1, 1) and np.array_equal(array, arrays[0]) for array in arrays)
    with pytest.raises(TypeError, match="not both"):
        image_to_ndarray(image, config, height=3)


def test_all_images_are_converted_and_come_before_the_rest() -> None:
    data = Data({"id": 7, "a": picture([[1, 2, 3]]), "text": "x", "b": picture([[4, 5, 6]])})
    data.metadata = Data({"kept": 1})
    found = ran(data)
    assert list(found) == ["a", "b", "id", "text"]
    assert found["b"].shape == (1, 3, 1, 1)
    assert found.metadata == Data({"kept": 1})
    assert list(ran(data, keep_other_values=False)) == ["a", "b"]


def test_keys_choose_and_output_names_rename() -> None:
    data = Data({"a": picture([[1, 2, 3]]), "b": picture([[4, 5, 6]]), "x": "old"})
    found = ran(data, keys=["b"], output_names=["x"])
    # Konduit fails without names for the keys; ours are then the images' own.
    assert list(found) == ["x", "a"]
    assert isinstance(found["a"], Image)
    assert list(ran(data, keys=["b"])) == ["b", "a", "x"]
    assert list(ran(data, output_names=["p", "q"])) == ["p", "q", "x"]


def test_wrong_names_are_told() -> None:
    data = Data({"photo": picture([[1, 2, 3]]), "n": 1})
    assert 'Value not found for key "foto"; did you mean "photo"?' in failure(data, keys=["foto"])
    assert 'key "n": requested type IMAGE or a list of them, actual type INT64' in failure(data, keys=["n"])
    assert '"outputNames" has 2 names, but the record has 1 images: photo' in failure(data, output_names=["a", "b"])
    assert "no image to convert" in failure(Data({"n": 1}))
    with pytest.raises(StreamerError, match='"keys" has 1 names and "outputNames" 2'):
        ImageToNDArrayRunner(ImageToNDArray(image_names=["a"], output_names=["b", "c"]), OpenContext())


def test_records_with_other_keys_share_a_batch_and_a_bad_one_fails_alone() -> None:
    one, two = picture([[1, 2, 3]]), picture([[4, 5, 6], [7, 8, 9]])
    datas = [
        Data({"a": one, "n": 1}),
        Data({"b": two}),
        Data({"n": 2}),
        Data({"a": Image(b"junk")}),
        Data({"a": two, "b": one}),
        Data({"b": "text", "a": one}),
    ]
    with pipelines.Sequence([ImageToNDArray()]).open() as executor:
        crowd = executor.run_many(datas)
        alone = [executor.run_many([data])[0] for data in datas]
    assert [isinstance(found, StepError) for found in crowd] == [False, False, True, True, False, False]
    assert [str(found) for found in crowd] == [str(found) for found in alone]
    assert [found for found in crowd if isinstance(found, Data)] == [f for f in alone if isinstance(f, Data)]
    assert list(result_of(crowd[5])) == ["a", "b"]


def test_equal_sizes_become_one_dense_column() -> None:
    images = [Image(np.full((4, 6, 3), value, np.uint8)) for value in (1, 2, 3)]
    batch = Batch.of([Data({"a": image}) for image in images])
    runner = ImageToNDArrayRunner(
        ImageToNDArray(config={"height": 2, "width": 2, "normalization": NONE}), OpenContext()
    )
    column = runner.run_batch(batch).batch.column("a")
    assert isinstance(column, DenseColumn)
    assert column.array.shape == (3, 1, 3, 2, 2)
    assert column.array[:, 0, 0, 0, 0].tolist() == [1, 2, 3]


def test_a_list_is_handled_as_asked() -> None:
    small, large = picture([[1, 2, 3]]), picture([[4, 5, 6], [7, 8, 9]])
    data = Data({"a": [small, small], "id": 1})
    assert 'set "listHandling"' in failure(data, keys=["a"])
    assert "no image to convert" in failure(data)
    assert ran(data, {"listHandling": "BATCH"})["a"].shape == (2, 3, 1, 1)
    assert ran(data, {"listHandling": "BATCH", "includeMinibatchDim": False})["a"].shape == (2, 3, 1, 1)
    assert [one.shape for one in ran(data, {"listHandling": "LIST_OUT"})["a"]] == [(1, 3, 1, 1)] * 2
    # Konduit returns at once with FIRST, and loses the other keys.
    first = ran(data, {"listHandling": "FIRST"})
    assert (first["a"].shape, first["id"]) == ((1, 3, 1, 1), 1)
    alone = Data({"a": [small]})
    assert ran(alone, {"listHandling": "BATCH", "includeMinibatchDim": False})["a"].shape == (3, 1, 1)
    mixed = Data({"a": [small, large]})
    assert "shapes [3, 1, 1], [3, 1, 2]" in failure(mixed, {"listHandling": "BATCH"})
    assert [one.shape[3] for one in ran(mixed, {"listHandling": "LIST_OUT"})["a"]] == [1, 2]


def test_an_empty_list_gives_an_empty_array() -> None:
    empty = Data({"a": TypedList(ValueType.IMAGE)})
    sized = {"height": 2, "width": 3}
    assert ran(empty, {"listHandling": "BATCH", **sized})["a"].shape == (0, 3, 2, 3)
    assert ran(empty, {"listHandling": "FIRST", **sized})["a"].shape == (0, 3, 2, 3)
    assert ran(empty, {"listHandling": "LIST_OUT"})["a"] == []
    assert 'give "height" and "width"' in failure(empty, {"listHandling": "BATCH"})
    assert "no first image" in failure(empty, {"listHandling": "FIRST", "includeMinibatchDim": False, **sized})


def test_metadata_says_where_the_array_came_from() -> None:
    # Konduit records it and then loses the array.
    data = Data({"a": Image(np.zeros((4, 6, 3), np.uint8))})
    found = ran(data, {"height": 2, "width": 2}, output_names=["x"], metadata=True, metadata_key="m")
    assert found["x"].shape == (1, 3, 2, 2)
    assert found.metadata is not None
    entry = found.metadata["m"]
    assert {key: entry[key] for key in entry if key != "crop_region"} == {
        "in_name": "a",
        "out_name": "x",
        "image_height": 4,
        "image_width": 6,
    }
    assert entry["crop_region"] == BoundingBox.corners(1 / 6, 5 / 6, 0, 1, "", 0.0)


def test_metadata_of_several_images_is_lists_and_lists_of_images_have_none() -> None:
    image = Image(np.zeros((4, 6, 3), np.uint8))
    found = ran(Data({"a": image, "b": image, "c": [image]}), {"listHandling": "BATCH"}, metadata=True)
    entry = found.metadata["@ImageToNDArrayStepMetadata"]
    assert (entry["in_name"], entry["out_name"], entry["image_width"]) == (["a", "b"], ["a", "b"], [6, 6])
    assert entry["crop_region"] == [BoundingBox.corners(0, 1, 0, 1, "", 0.0)] * 2


def test_the_crop_region_of_an_odd_rest_is_one_pixel_larger_and_that_of_a_padded_image_reaches_beyond() -> None:
    assert crop_region(5, 2, 2, 2, "CENTER_CROP") == BoundingBox.corners(0.2, 0.8, 0, 1, "", 0.0)
    assert crop_region(2, 5, 2, 2, "CENTER_CROP") == BoundingBox.corners(0, 1, 0.2, 0.8, "", 0.0)
    assert crop_region(4, 2, 8, 8, "PAD") == BoundingBox.corners(0, 1, -0.5, 1.5, "", 0.0)
    assert crop_region(2, 4, 8, 8, "PAD") == BoundingBox.corners(-0.5, 1.5, 0, 1, "", 0.0)
    assert crop_region(4, 2, 8, 8, "STRETCH") == BoundingBox.corners(0, 1, 0, 1, "", 0.0)


def by_name(data: Data) -> dict[str, tuple[Any, ...]]:
    """What the metadata says of each image. In which order the keys of a record stand, a batch does not know."""
    if data.metadata is None:
        return {}
    entry = data.metadata["@ImageToNDArrayStepMetadata"]
    columns = [value if isinstance(value, list) else [value] for value in entry.values()]
    return {name: tuple(rest) for name, *rest in zip(*columns, strict=True)}


sides = st.integers(1, 9)
pictures = st.builds(
    lambda height, width, channels, seed: Image(
        np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    ),
    sides,
    sides,
    st.sampled_from([1, 3]),
    st.integers(0, 99),
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from("ab"), pictures | st.lists(pictures, max_size=2)), min_size=1, max_size=5),
    st.fixed_dictionaries(
        {
            "height": st.none() | sides,
            "width": st.none() | sides,
            "aspectRatioHandling": st.sampled_from(["CENTER_CROP", "PAD", "STRETCH"]),
            "format": st.sampled_from(["CHANNELS_FIRST", "CHANNELS_LAST"]),
            "channelLayout": st.sampled_from(["RGB", "RGBA", "BGR", "BGRA", "GRAYSCALE"]),
            "dataType": st.sampled_from(["FLOAT", "UINT8", "INT64", "FLOAT16"]),
            "normalization": st.sampled_from([{"type": "SCALE"}, {"type": "NONE"}, {"type": "IMAGE_NET"}]),
            "listHandling": st.sampled_from(["NONE", "BATCH", "LIST_OUT", "FIRST"]),
            "includeMinibatchDim": st.booleans(),
        }
    ),
)
def test_a_batch_gives_what_its_rows_give(rows: list[dict[str, Any]], config: dict[str, Any]) -> None:
    datas = [Data(row) for row in rows]
    with pipelines.Sequence([ImageToNDArray(config=config, metadata=True)]).open() as executor:
        crowd = executor.run_many(datas)
        alone = [executor.run_many([data])[0] for data in datas]
    for found, wanted in zip(crowd, alone, strict=True):
        if isinstance(wanted, StepError):
            # Which of several bad images is named, and so its shape, goes by the order of the batch's keys.
            assert isinstance(found, StepError)
            assert type(found.__cause__) is type(wanted.__cause__)
        else:
            assert found == wanted
            assert by_name(result_of(found)) == by_name(result_of(wanted))
