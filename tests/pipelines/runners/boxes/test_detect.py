"""DETECT: boxes in the picture, whichever layout the model has, whatever the picture's size is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import onnx
import pytest
from detectors import LABELS, SCORE, save_detector
from rectangles import SIZE, corners, off, picture

import pipelines
from pipelines import BoundingBox, Data, Detect, Image, StepError
from pipelines.errors import DataError, RowsFailed, StreamerError
from pipelines.runners.boxes.detectormodel import DetectorModel
from pipelines.runners.runner import OpenContext

SIZES = [(1366, 768), (640, 480), (480, 640), (1920, 1080), (333, 999), (320, 320), (639, 359), (1, 1000)]
LAYOUTS = [
    *("yolo8", "yolo8-turned", "yolo5", "yolox", "yolox-raw", "end2end", "end2end-head", "flat7", "detr"),
    *("rtdetr", "tf", "tflite", "torchvision", "mmdet", "efficient_nms", "boxes_scores"),
]


def detect(step: Detect, *records: dict[str, Any]) -> list[Any]:
    with pipelines.Sequence([step]).open() as executor:
        return list(executor.run_many(records))


def detector(folder: Path, layout: str = "yolo8", **options: Any) -> Path:
    return save_detector(folder / f"{layout}.onnx", layout, options.pop("size", SIZE), **options)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_boxes_lie_on_what_was_drawn_in_pictures_of_any_size_and_fit(tmp_path: Path, layout: str) -> None:
    drawn = [picture(*size) for size in SIZES]
    path = detector(tmp_path, layout)
    for fit in ("LETTERBOX", "CORNER", "STRETCH", "CENTER_CROP"):
        results = detect(Detect(path, labels=LABELS, fit=fit), *({"image": Image(shown)} for shown, _ in drawn))
        for result, (_, truth), size in zip(results, drawn, SIZES, strict=True):
            (box,) = result["boxes"]
            assert box.label == "red"
            assert box.probability == pytest.approx(SCORE, abs=0.001)
            assert off(box, truth["red"], size, fit) <= 1.0, (fit, size)
            assert all(0 <= place <= 1 for place in corners(box))


@pytest.mark.parametrize(
    ("layout", "batch"),
    [("yolo8", 1), ("yolo8", 4), ("flat7", 1), ("flat7", 4), ("rtdetr", 4), ("mmdet", 4), ("torchvision", 1)],
)
def test_a_model_of_a_fixed_batch_takes_any_number_of_pictures(tmp_path: Path, layout: str, batch: int) -> None:
    places = [{number: (0.1 * number, 0.2, 0.5, 0.9)} for number in (0, 1, 2, 0, 1)]
    drawn = [picture(100, 80, place) for place in places]
    results = detect(
        Detect(detector(tmp_path, layout, batch=batch), labels=LABELS),
        *({"image": Image(shown)} for shown, _ in drawn),
    )
    for result, (_, truth) in zip(results, drawn, strict=True):
        assert {box.label: True for box in result["boxes"]} == dict.fromkeys(truth, True)
        assert all(off(box, truth[box.label], (100, 80), "LETTERBOX") <= 1 for box in result["boxes"])


def test_a_jpeg_a_video_frame_and_pixels_give_the_same_boxes_in_one_batch(tmp_path: Path) -> None:
    shown, truth = picture(640, 360)
    frame = av.VideoFrame.from_ndarray(shown, format="bgr24").reformat(format="yuv420p")
    forms = [Image(shown), Image(Image(shown).get_as("jpeg")), Image(frame), Image(shown[:, ::2])]
    results = detect(Detect(detector(tmp_path), threshold=0.5), *({"image": image, "id": 7} for image in forms))
    for result in results:
        assert list(result) == ["image", "id", "boxes"]
        (box,) = result["boxes"]
        assert off(box, truth["red"], (640, 360), "LETTERBOX") <= 1


def test_boxes_of_a_part_of_the_picture_are_in_the_whole_picture(tmp_path: Path) -> None:
    shown, truth = picture(400, 300, {0: (0.05, 0.1, 0.2, 0.3), 1: (0.6, 0.5, 0.9, 0.9)})
    path = detector(tmp_path)
    region = BoundingBox.corners(0.5, 1.0, 0.4, 1.0)
    (result,) = detect(Detect(path, region=region), {"image": Image(shown)})
    (box,) = result["boxes"]
    assert box.label == "green"
    assert corners(box) == pytest.approx(truth["green"], abs=0.01)


def test_each_region_of_a_record_is_looked_at_and_boxes_say_in_which_they_are(tmp_path: Path) -> None:
    shown, truth = picture(400, 300, {0: (0.05, 0.1, 0.2, 0.3), 1: (0.6, 0.5, 0.9, 0.9)})
    step = Detect(detector(tmp_path), regions="parts", parents_name="part", max_boxes=2)
    parts = [
        BoundingBox.corners(0.5, 1.0, 0.4, 1.0),
        BoundingBox.corners(1.2, 1.5, 0.4, 1.0),
        BoundingBox.corners(0.0, 0.4, 0.0, 0.5),
    ]
    results = detect(
        step,
        {"image": Image(shown), "parts": parts},
        {"image": Image(shown), "parts": []},
        {"image": Image(shown), "parts": parts[2]},
        {"image": Image(shown), "parts": 3},
    )
    assert [[box.label for box in result["boxes"]] for result in results[:3]] == [["green", "red"], [], ["red"]]
    assert [result["part"] for result in results[:3]] == [[0, 2], [], [0]]
    assert corners(results[0]["boxes"][1]) == pytest.approx(truth["red"], abs=0.01)
    assert '"parts" must be a box or a list of boxes' in str(results[3])


def test_no_record_at_all_with_regions_has_boxes(tmp_path: Path) -> None:
    step = Detect(detector(tmp_path), regions="parts", parents_name="part")
    (result,) = detect(step, {"image": Image(picture(40, 40)[0]), "parts": []})
    assert (result["boxes"], result["part"]) == ([], [])


def test_keypoints_and_outlines_lie_in_the_picture(tmp_path: Path) -> None:
    shown, truth = picture(300, 100, {0: (0.2, 0.3, 0.6, 0.8)})
    x1, y1, x2, y2 = truth["red"]
    nothing = {"image": Image(np.full((9, 99, 3), 114, np.uint8))}
    step = Detect(detector(tmp_path, "yolo8-pose"), keypoints_name="points")
    assert detect(step, nothing)[0]["points"] == []
    (posed,) = detect(step, {"image": Image(shown)})
    ((first, *others),) = posed["points"]
    assert len(others) == 1
    assert 0 <= first.probability <= 1
    assert x1 - 0.02 <= first.x <= x2 + 0.02
    assert y1 - 0.02 <= first.y <= y2 + 0.02
    for layout in ("yolo8-segment", "yolo8-obb"):
        step = Detect(detector(tmp_path, layout), outlines_name="outlines")
        assert detect(step, nothing)[0]["outlines"] == []
        (result,) = detect(step, {"image": Image(shown)})
        (outline,) = result["outlines"]
        xs, ys = [point.x for point in outline], [point.y for point in outline]
        assert (min(xs), min(ys), max(xs), max(ys)) == pytest.approx(truth["red"], abs=0.04), layout


def test_only_the_labels_to_keep_are_kept_and_the_best_boxes(tmp_path: Path) -> None:
    shown, _ = picture(200, 200, {0: (0.1, 0.1, 0.3, 0.3), 1: (0.5, 0.1, 0.8, 0.3), 2: (0.1, 0.6, 0.3, 0.9)})
    path = detector(tmp_path)

    def labels(**fields: Any) -> list[str]:
        (result,) = detect(Detect(path, **fields), {"image": Image(shown)})
        return sorted(box.label for box in result["boxes"])

    assert labels() == ["blue", "green", "red"]
    assert labels(keep=["green", "blue"]) == ["blue", "green"]
    assert len(labels(max_boxes=2)) == 2
    assert labels(threshold=0.95) == []


def test_labels_come_from_a_text_file_beside_the_definition(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("rot\ngruen\nblau\n\n")
    detector(tmp_path, "yolox")
    definition = 'steps: [{"@type": DETECT, modelUri: yolox.onnx, labels: labels.txt, keep: [rot]}]'
    pipeline = pipelines.loads(definition, base=tmp_path)
    assert pipeline.steps[0].files == ("yolox.onnx", "labels.txt")
    with pipeline.open() as executor:
        (result,) = executor.run_many([{"image": Image(picture(90, 50)[0])}])
    assert isinstance(result, Data)
    assert result["boxes"][0].label == "rot"


@pytest.mark.parametrize(
    ("fields", "size"), [({}, (96, 128)), ({"size": (128, 96)}, (128, 96)), ({"size": 96}, (96, 96))]
)
def test_an_open_input_has_the_size_of_the_step_or_of_the_export(
    tmp_path: Path, fields: dict[str, Any], size: tuple[int, int]
) -> None:
    names = {"names": str(dict(enumerate(LABELS))), "task": "detect", "imgsz": "[96, 128]"}
    path = detector(tmp_path, size=size, open_size=True, metadata=names)
    shown, truth = picture(300, 200)
    (result,) = detect(Detect(path, **fields), {"image": Image(shown)})
    assert corners(result["boxes"][0]) == pytest.approx(truth["red"], abs=0.03)


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT16, onnx.TensorProto.UINT8])
def test_a_picture_has_the_element_type_of_the_input(tmp_path: Path, kind: int) -> None:
    path = detector(tmp_path)
    model = onnx.load(path)
    for node in model.graph.node:
        node.input[:] = ["numbers" if name == "images" else name for name in node.input]
    before = [onnx.helper.make_node("Cast", ["images"], ["numbers"], to=onnx.TensorProto.FLOAT)]
    if kind == onnx.TensorProto.UINT8:
        # Bytes are pixels as they are.
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(255, "f4"), "most"))
        before[0].output[:] = ["pixels"]
        before.append(onnx.helper.make_node("Div", ["pixels", "most"], ["numbers"]))
    model.graph.input[0].type.tensor_type.elem_type = kind
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*before, *nodes])
    onnx.save(model, path)
    shown, truth = picture(300, 200)
    (result,) = detect(Detect(path), {"image": Image(shown)})
    assert off(result["boxes"][0], truth["red"], (300, 200), "LETTERBOX") <= 1


def test_fields_of_the_step_win_over_what_models_of_its_layout_take(tmp_path: Path) -> None:
    shown, _ = picture(300, 200)
    step = Detect(detector(tmp_path), input={"channelLayout": "BGR"}, fit="STRETCH")
    again = pipelines.loads(pipelines.Sequence([step]).to_yaml()).steps[0]
    assert again == step
    (result,) = detect(step, {"image": Image(shown)})
    assert [box.label for box in result["boxes"]] == ["blue"]


def test_a_graph_puts_the_boxes_beside_the_picture_that_it_has(tmp_path: Path) -> None:
    shown, truth = picture(639, 359)
    detector(tmp_path)
    definition = """
outputStep: hidden
steps:
  small: {"@type": IMAGE_RESIZE, "@input": input, height: 200, width: 300, aspectRatioHandling: STRETCH}
  detect: {"@type": DETECT, "@input": small, modelUri: yolo8.onnx, outputName: objects}
  boxes: {"@type": BOUNDING_BOX_FILTER, "@input": detect, inputName: objects, classesToKeep: [red],
    keepOtherValues: false}
  both: {"@type": MERGE, "@input": [input, boxes]}
  hidden: {"@type": BLUR, "@input": both, method: FILL, grow: 0}
"""
    with pipelines.loads(definition, base=tmp_path).open() as executor:
        (result,) = executor.run_many([{"image": Image(shown)}])
    assert isinstance(result, Data)
    left, top, right, bottom = truth["red"]
    inside = result["image"].get_as("numpy")[
        round(top * 359) + 4 : round(bottom * 359) - 4, round(left * 639) + 4 : round(right * 639) - 4
    ]
    assert not inside.any()
    assert result["image"].get_as("numpy").any()


def test_a_record_that_cannot_be_looked_at_fails_alone(tmp_path: Path) -> None:
    good = Image(picture(64, 64)[0])
    results = detect(
        Detect(detector(tmp_path)),
        {"image": good},
        {"x": 1},
        {"image": good, "other": good},
        {"image": [good, good]},
        {"image": Image(b"no picture")},
        {"image": good},
    )
    assert [isinstance(result, Data) for result in results] == [True, False, False, False, False, True]
    assert "no Image fields exist" in str(results[1])
    assert "multiple Image fields exist: image and other" in str(results[2])
    assert "a list of images; DETECT takes one image of a record" in str(results[3])
    assert isinstance(results[4], StepError)


@pytest.mark.parametrize(
    ("layout", "fields", "text"),
    [
        ("yolo8", {"keep": ["gren"]}, 'there is no label "gren"; did you mean "green"?; labels: red, green, blue'),
        ("yolo8", {"labels": ["a", "b"]}, "2 labels"),
        ("yolo8", {"layout": "detr"}, "not in the layout detr"),
        ("yolo8", {"size": 100}, "leave size out"),
        ("yolo8", {"keypoints_name": "points"}, "the model gives no keypoints"),
        ("yolo8", {"outlines_name": "lines"}, "the model gives boxes alone"),
        ("yolo8", {"labels": "nowhere.txt"}, "nowhere.txt: No such file"),
        ("yolox", {}, "yolox"),
    ],
)
def test_a_step_that_cannot_work_says_what_to_do_when_it_opens(
    tmp_path: Path, layout: str, fields: dict[str, Any], text: str
) -> None:
    path = detector(tmp_path, layout)
    with pytest.raises(StreamerError) as raised:
        detect(Detect(path, **fields))
    assert text in str(raised.value)
    assert str(path) in str(raised.value)


def test_scores_that_are_no_probabilities_fail_their_record_alone(tmp_path: Path) -> None:
    plain, red = np.full((64, 64, 3), 114, np.uint8), picture(64, 64)[0]
    path = detector(tmp_path, "boxes_scores")
    scaled(path, 20.0)
    first, second = detect(Detect(path), {"image": Image(plain)}, {"image": Image(red)})
    assert first["boxes"] == []
    assert "18 is no probability: another layout, or activation" in str(second)


def scaled(path: Path, factor: float) -> None:
    """Multiply the scores that a model gives."""
    model = onnx.load(path)
    for node in model.graph.node:
        node.output[:] = ["before" if name == "scores" else name for name in node.output]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(factor, "f4"), "factor"))
    model.graph.node.append(onnx.helper.make_node("Mul", ["before", "factor"], ["scores"]))
    onnx.save(model, path)


def test_a_failure_of_what_a_call_was_filled_up_with_is_that_of_the_last_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_detector(tmp_path / "model.onnx", "flat7", SIZE, batch=4)
    model = DetectorModel(Detect(tmp_path / "model.onnx", labels=LABELS), OpenContext())

    def read(*_: object) -> None:
        raise RowsFailed({3: DataError("no such picture"), 0: DataError("first")})

    monkeypatch.setattr(model._read, "read", read)
    with pytest.raises(RowsFailed) as failed:
        model.objects(np.zeros((2, 3, *SIZE), np.float32))
    assert {row: str(error) for row, error in failed.value.failures.items()} == {0: "first", 1: "no such picture"}
