"""Boxes of a detector whose input is a padded, cropped or stretched picture: they are where the picture shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detectors import COLORS, save_detector

import pipelines
from pipelines import BoundingBox, Data, Image
from pipelines.data.batch import Batch
from pipelines.data.views import View
from pipelines.executors.executor import Executor
from pipelines.runners.images.fitting import fitted, fitted_image, fitted_planes
from pipelines.runners.images.imagearrays import image_to_ndarray, viewed
from pipelines.steps.images.imagetondarray import Fit, ImageToNDArrayConfig

SIDE = 160
RED = (0.42, 0.4, 0.58, 0.6)
"""x1, y1, x2, y2 of the object: where also a picture that is cropped to its centre has it."""
FITS = ["PAD", "CENTER_CROP", "STRETCH", "LETTERBOX", "CORNER"]
SIZES = [(1366, 768), (640, 480), (480, 640), (333, 999), (160, 160), (639, 359)]


def picture(wide: int, high: int) -> tuple[Image, tuple[float, ...]]:
    """A gray picture with a red rectangle, and where that is, in fractions of the picture."""
    pixels = np.full((high, wide, 3), 114, np.uint8)
    x1, x2 = (round(side * wide) for side in (RED[0], RED[2]))
    y1, y2 = (round(side * high) for side in (RED[1], RED[3]))
    pixels[y1:y2, x1:x2] = COLORS[0][::-1]
    return Image(pixels), (x1 / wide, y1 / high, x2 / wide, y2 / high)


def array_step(fit: str, **config: Any) -> dict[str, Any]:
    config = {"height": SIDE, "width": SIDE, "dataType": "UINT8", "format": "CHANNELS_LAST", **config}
    config |= {"aspectRatioHandling": fit, "normalization": {"type": "NONE"}}
    return {"@type": "IMAGE_TO_NDARRAY", "keys": ["image"], "outputNames": ["images"], "config": config}


def definition(folder: Path, fit: str, *after: dict[str, Any]) -> str:
    """A graph that finds boxes with a model of TensorFlow and joins them with the picture again."""
    save_detector(folder / "tf.onnx", "tf", (SIDE, SIDE))
    steps: dict[str, Any] = {
        "array": {**array_step(fit), "@input": "input"},
        "model": {"@type": "ONNX", "modelUri": "tf.onnx", "@input": "array"},
        "boxes": {
            "@type": "SSD_TO_BBOX",
            "classLabels": ["red", "green", "blue"],
            "outputName": "boxes",
            "keepOtherValues": False,
            "@input": "model",
        },
        "joined": {"@type": "MERGE", "@input": ["input", "boxes"]},
    }
    last = "joined"
    for number, step in enumerate(after):
        steps[f"after{number}"] = {**step, "@input": last}
        last = f"after{number}"
    return json.dumps({"outputStep": last, "steps": steps})


def opened(folder: Path, fit: str, *after: dict[str, Any]) -> Executor:
    return pipelines.loads(definition(folder, fit, *after), base=folder).open()


def boxes_of(data: Any) -> list[BoundingBox]:
    assert isinstance(data, Data), data
    return list(data["boxes"])


@pytest.mark.parametrize("fit", FITS)
def test_a_box_is_where_the_picture_shows_the_object_whatever_its_size(tmp_path: Path, fit: str) -> None:
    shown = [picture(*size) for size in SIZES]
    with opened(tmp_path, fit) as executor:
        # All sizes in one batch.
        results = executor.run_many([Data({"image": image}) for image, _ in shown])
    for (wide, high), (_, known), result in zip(SIZES, shown, results, strict=True):
        (box,) = boxes_of(result)
        # A pixel of the model's input is so much of the picture, at most.
        slack = 1.0 * max(wide, high) / SIDE
        assert (box.x1 * wide, box.x2 * wide) == pytest.approx((known[0] * wide, known[2] * wide), abs=slack)
        assert (box.y1 * high, box.y2 * high) == pytest.approx((known[1] * high, known[3] * high), abs=slack)
        assert box.label == "red"


@pytest.mark.parametrize("fit", ["PAD", "CENTER_CROP", "STRETCH"])
def test_a_blur_hides_every_pixel_of_the_object_and_a_zone_counts_it(tmp_path: Path, fit: str) -> None:
    image, (x1, y1, x2, y2) = picture(640, 360)
    zone = [[x1, y1], [x2, y1], [x2, y2], [x1, y2]]
    blur = {"@type": "BLUR", "bboxName": "boxes", "method": "FILL", "color": "white", "labels": ["red"]}
    zones = {"@type": "ZONES", "bboxName": "boxes", "zones": {"middle": {"points": zone}}}
    with opened(tmp_path, fit, {"@type": "TRACK", "bboxName": "boxes"}, zones, blur) as executor:
        results = executor.run_many([Data({"image": image}) for _ in range(4)])
    last = results[-1]
    assert isinstance(last, Data)
    pixels = last["image"].get_as("numpy")
    assert not (pixels[..., 2].astype(int) - pixels[..., 1] > 20).any()
    assert "middle" in json.dumps(last.to_json())


def test_a_definition_with_a_config_of_the_array_puts_boxes_right_itself(tmp_path: Path) -> None:
    image, known = picture(640, 360)
    config = array_step("PAD")["config"]
    absolute = {"@type": "RELATIVE_TO_ABSOLUTE", "imageName": "image", "imageToNDArrayConfig": config}
    with opened(tmp_path, "PAD", absolute) as executor:
        (box,) = boxes_of(executor.run(Data({"image": image})))
    scaled = (box.x1 / 640, box.y1 / 360, box.x2 / 640, box.y2 / 360)
    assert scaled == pytest.approx(known, abs=1.2 / 90)


@pytest.mark.parametrize(
    ("size", "fit", "pixels"),
    [
        ((639, 359), "PAD", (239.625, 19.749999999999986, 559.125, 179.49999999999994)),
        ((639, 359), "CENTER_CROP", (274.625, 89.75, 454.1249999999999, 179.5)),
        ((480, 640), "PAD", (160.00000000000003, 160.0, 480.0, 320.0)),
        ((480, 640), "CENTER_CROP", (180.0, 200.0, 420.0, 320.0)),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_a_definition_of_konduit_keeps_the_pixels_that_it_gave_before_views(
    size: tuple[int, int], fit: str, pixels: tuple[float, ...], deep: bool
) -> None:
    config = {"height": SIDE, "width": SIDE, "aspectRatioHandling": fit}
    absolute = {"@type": "RELATIVE_TO_ABSOLUTE", "imageW": size[0], "imageH": size[1], "imageToNDArrayConfig": config}
    steps = [
        {"@type": "IMAGE_TO_NDARRAY", "keys": ["image"], "outputNames": ["images"], "config": config},
        {"@type": "SSD_TO_BBOX", "outputName": "boxes", "keepOtherValues": False},
        # Also one that is in a pipeline inside this one counts.
        {"@type": "PIPELINE", "pipeline": {"steps": [absolute]}} if deep else absolute,
    ]
    arrays = {
        "detection_boxes": np.array([[[0.25, 0.375, 0.5, 0.875]]], np.float32),
        "detection_scores": np.array([[0.75]], np.float32),
    }
    with pipelines.loads(json.dumps({"steps": steps})).open() as executor:
        (box,) = boxes_of(executor.run(Data({"image": Image(np.zeros((*size[::-1], 3), np.uint8)), **arrays})))
    assert (box.x1, box.y1, box.x2, box.y2) == pixels


@pytest.mark.parametrize(
    ("fit", "edges", "columns"),
    [
        # Bilinear, as Konduit Serving scales: a single column of a canvas of a thousand falls between two samples.
        ("PAD", (-499.0, 0.0, 501.0, 1.0), []),
        ("CENTER_CROP", (0.0, 499 / 1000, 1.0, 500 / 1000), list(range(SIDE))),
        ("STRETCH", (0.0, 0.0, 1.0, 1.0), list(range(SIDE))),
        ("LETTERBOX", (-79.0, 0.0, 81.0, 1.0), [79]),
        ("CORNER", (0.0, 0.0, 160.0, 1.0), [0]),
    ],
)
def test_of_a_picture_one_pixel_wide_an_array_shows_whole_pixels(
    fit: Fit, edges: tuple[float, ...], columns: list[int]
) -> None:
    config = ImageToNDArrayConfig(height=SIDE, width=SIDE, aspect_ratio_handling=fit)
    image = Image(np.full((1000, 1, 3), 255, np.uint8))
    assert viewed(image, config) == (*edges, SIDE, SIDE)
    shown = image_to_ndarray(image, config)[0, 0].max(axis=0) > 0
    assert np.flatnonzero(shown).tolist() == columns


def test_the_pad_colour_is_red_green_blue_in_each_order_of_axes_and_channels() -> None:
    image = Image(np.zeros((4, 8, 3), np.uint8))
    for axes, layout, corner in (
        ("CHANNELS_LAST", "RGB", [1, 2, 3]),
        ("CHANNELS_FIRST", "BGR", [3, 2, 1]),
        ("CHANNELS_LAST", "BGRA", [3, 2, 1, 255]),
    ):
        fields: dict[str, Any] = {"format": axes, "channel_layout": layout, "aspect_ratio_handling": "LETTERBOX"}
        config = ImageToNDArrayConfig(
            height=8, width=8, data_type="UINT8", normalization=None, pad_color=(1, 2, 3), **fields
        )
        array = image_to_ndarray(image, config)[0]
        assert (array[0, 0] if axes == "CHANNELS_LAST" else array[:, 0, 0]).tolist() == corner


@pytest.mark.parametrize(("wide", "high"), [(192, 108), (108, 192), (96, 48), (320, 80), (137, 77), (20, 9), (32, 8)])
def test_a_picture_that_is_padded_after_scaling_has_the_pixels_of_one_padded_before(wide: int, high: int) -> None:
    image = Image(np.random.default_rng(wide).integers(0, 256, (high, wide, 3), np.uint8))
    padded = fitted(image.get_as("numpy"), 64, 64, "PAD")
    assert np.array_equal(fitted_image(image, 64, 64, "PAD"), padded)
    assert np.array_equal(np.stack(fitted_planes(image, 64, 64, "PAD"), axis=2), padded)


def test_what_an_array_shows_is_never_written(tmp_path: Path) -> None:
    image, _ = picture(640, 360)
    step = {"steps": [array_step("PAD")]}
    with pipelines.loads(json.dumps(step)).open() as executor:
        batch = executor.run_batch(Batch.of([Data({"image": image, "id": 7})])).batch
    (view,) = batch.views or ()
    assert view == pytest.approx((0.0, -140 / 360, 1.0, 500 / 360, SIDE, SIDE))
    with_views, without = (given.to_list()[0] for given in (batch, batch.with_views(None)))
    assert with_views == without
    assert (with_views.to_bytes(), with_views.to_json()) == (without.to_bytes(), without.to_json())
    assert with_views.metadata is None


def test_views_go_where_their_rows_go() -> None:
    views = [View(0, 0, 1, 1, at, at) for at in (1, 2)] + [None]
    batch = Batch.of([Data({"x": at}) for at in range(3)]).with_views(views)
    assert batch.take([2, 0]).views == [None, views[0]]
    assert batch.take([2]).views is None
    assert [part.views for part in batch.parts([range(1), range(1, 3)])] == [views[:1], views[1:]]
    assert Batch.concat([batch.take([1]), Batch.of([Data({"x": 1})]), batch]).views == [views[1], None, *views]
    assert batch.without(["x"]).views == views
    assert batch.numbered(range(7, 10), None).views == views


def test_images_of_a_record_that_show_different_parts_have_no_view() -> None:
    wide, high = picture(64, 32)[0], picture(32, 64)[0]
    config = {"height": 32, "width": 32, "aspectRatioHandling": "PAD"}
    with pipelines.loads(json.dumps({"steps": [{"@type": "IMAGE_TO_NDARRAY", "config": config}]})).open() as executor:
        batch = executor.run_batch(
            Batch.of([Data({"a": wide, "b": high}), Data({"a": wide, "b": wide}), Data({"a": high, "b": high})])
        ).batch
    assert batch.views is not None
    assert [view is not None for view in batch.views] == [False, True, True]


def test_a_record_of_two_branches_with_different_views_has_none(tmp_path: Path) -> None:
    branches = {
        name: {**array_step(fit), "outputNames": [name], "keepOtherValues": False, "@input": "input"}
        for name, fit in (("a", "PAD"), ("b", "CENTER_CROP"), ("c", "PAD"))
    }
    for inputs, kept in ((["a", "b"], False), (["a", "c"], True), (["a", "d"], True)):
        steps: dict[str, Any] = {name: step for name, step in branches.items() if name in inputs}
        if "d" in inputs:
            steps["d"] = {"@type": "LOGGING", "@input": "input"}
        steps["joined"] = {"@type": "MERGE", "@input": inputs}
        graph = json.dumps({"outputStep": "joined", "steps": steps})
        with pipelines.loads(graph).open() as executor:
            batch = executor.run_batch(Batch.of([Data({"image": picture(64, 32)[0]})])).batch
        assert (batch.views is not None) == kept
