"""Exports of detectors as their exporters write them, by inputs, outputs and metadata: recognised, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelines.errors import DefinitionError, StreamerError
from pipelines.runners.boxes.detectors.detector import Detector
from pipelines.runners.boxes.detectors.given import Asked
from pipelines.runners.boxes.detectors.recognise import recognise
from pipelines.runners.models.model import Port


def names(count: int) -> str:
    return str({number: f"c{number}" for number in range(count)})


def labels(count: int) -> tuple[str, ...]:
    return tuple(f"c{number}" for number in range(count))


def port(name: str, *shape: int | str) -> Port:
    return Port(name, np.dtype(np.float32), shape)


IMAGES = port("images", 1, 3, 640, 640)


def read(outputs: list[Port], metadata: dict[str, str] | None = None, *inputs: Port, **asked: Any) -> Detector:
    return recognise(inputs or (IMAGES,), outputs, metadata or {}, Asked(**asked))


COCO = {"names": names(80)}
EXPORTS: list[tuple[str, list[Port], dict[str, str], tuple[Port, ...], dict[str, Any], str]] = [
    # Ultralytics
    (
        "yolov8n",
        [port("output0", 1, 84, 8400)],
        {**COCO, "task": "detect"},
        (),
        {},
        "yolo8 80 by its metadata (task detect)",
    ),
    ("yolov8n, old", [port("output0", 1, 84, 8400)], {}, (), {}, "yolo8 80 by the shape of its outputs"),
    (
        "yolo11n, dynamic",
        [port("output0", "batch", 84, "anchors")],
        {**COCO, "task": "detect", "imgsz": "[640, 640]"},
        (port("images", "batch", 3, "height", "width"),),
        {},
        "yolo8 80 by its metadata (task detect)",
    ),
    (
        "yolo11n, 384 x 640",
        [port("output0", 1, 84, 5040)],
        {**COCO, "task": "detect"},
        (port("images", 1, 3, 384, 640),),
        {},
        "yolo8 80 by its metadata (task detect)",
    ),
    (
        "yolov9c",
        [port("output0", 1, 84, 8400)],
        {**COCO, "task": "detect"},
        (),
        {},
        "yolo8 80 by its metadata (task detect)",
    ),
    (
        "yolov10n",
        [port("output0", 1, 300, 6)],
        {**COCO, "task": "detect", "end2end": "True"},
        (),
        {},
        "end2end 80 by its metadata (task detect)",
    ),
    (
        "yolo26n",
        [port("output0", 1, 300, 6)],
        {**COCO, "task": "detect", "end2end": "True"},
        (),
        {},
        "end2end 80 by its metadata (task detect)",
    ),
    (
        "yolov10n, from its authors",
        [port("output0", 1, 300, 6)],
        {},
        (),
        {},
        "end2end None by the shape of its outputs",
    ),
    (
        "yolo11n, nms=True",
        [port("output0", 1, 300, 6)],
        {**COCO, "task": "detect", "args": "{'nms': True}"},
        (),
        {},
        "end2end 80 by its metadata (task detect)",
    ),
    (
        "yolo11n, nms, dynamic",
        [port("output0", "batch", "boxes", 6)],
        {**COCO, "task": "detect", "args": "{'nms': True}"},
        (port("images", "batch", 3, "height", "width"),),
        {},
        "end2end 80 by its metadata (task detect)",
    ),
    (
        "yolo11n-seg",
        [port("output0", 1, 116, 8400), port("output1", 1, 32, 160, 160)],
        {**COCO, "task": "segment"},
        (),
        {},
        "yolo8 80 segment+32 by its metadata (task segment)",
    ),
    (
        "yolov8n-seg, no metadata",
        [port("output0", 1, 116, 8400), port("output1", 1, 32, 160, 160)],
        {},
        (),
        {},
        "yolo8 80 segment+32 by the shape of its outputs",
    ),
    (
        "yolo26n-seg",
        [port("output0", 1, 300, 38), port("output1", 1, 32, 160, 160)],
        {**COCO, "task": "segment", "end2end": "True"},
        (),
        {},
        "end2end 80 segment+32 by its metadata (task segment)",
    ),
    (
        "yolo11n-pose",
        [port("output0", 1, 56, 8400)],
        {"names": names(1), "task": "pose", "kpt_shape": "[17, 3]"},
        (),
        {},
        "yolo8 1 pose+51 by its metadata (task pose)",
    ),
    (
        "yolo26n-pose",
        [port("output0", 1, 300, 57)],
        {"names": names(1), "task": "pose", "kpt_shape": "[17, 3]", "end2end": "True"},
        (),
        {},
        "end2end 1 pose+51 by its metadata (task pose)",
    ),
    (
        "yolo11n-obb",
        [port("output0", 1, 20, 21504)],
        {"names": names(15), "task": "obb"},
        (port("images", 1, 3, 1024, 1024),),
        {},
        "yolo8 15 obb+1 by its metadata (task obb)",
    ),
    (
        "rtdetr-l of Ultralytics",
        [port("output0", 1, 300, 84)],
        {**COCO, "task": "detect", "head": "RTDETRDecoder"},
        (),
        {},
        "yolo8 80 by its metadata (task detect)",
    ),
    (
        "yolov8x-p6, with a fourth grid",
        [port("output0", 1, 84, 34000)],
        {**COCO, "task": "detect", "stride": "64"},
        (port("images", 1, 3, 1280, 1280),),
        {},
        "yolo8 80 by its metadata (task detect)",
    ),
    (
        "yolo26n, dynamic",
        [port("output0", "batch", 300, "anchors")],
        {**COCO, "task": "detect", "imgsz": "[640, 640]", "end2end": "True", "head": "Detect"},
        (port("images", "batch", 3, "height", "width"),),
        {},
        "end2end 80 by its metadata (task detect)",
    ),
    (
        "yolo26n-obb",
        [port("output0", 1, 300, 7)],
        {"names": names(15), "task": "obb", "end2end": "True"},
        (port("images", 1, 3, 1024, 1024),),
        {},
        "end2end 15 obb+1 by its metadata (task obb)",
    ),
    (
        "rtdetr-l, dynamic",
        [port("output0", "batch", 300, "anchors")],
        {**COCO, "task": "detect", "head": "RTDETRDecoder"},
        (port("images", "batch", 3, "height", "width"),),
        {},
        "yolo8 80 by its metadata (task detect)",
    ),
    (
        "rtdetr-l of today",
        [port("output0", 1, 300, 6)],
        {**COCO, "task": "detect", "head": "RTDETRDecoder"},
        (),
        {},
        "end2end 80 by its metadata (task detect)",
    ),
    (
        "rtdetr-l before its head was named",
        [port("output0", 1, 300, 84)],
        {**COCO, "task": "detect", "end2end": "False"},
        (),
        {},
        "yolo8 80 by its metadata (task detect)",
    ),
    (
        "yolov9c of its authors, with its second head",
        [port("output0", 1, 84, 8400), port("output1", 1, 84, 8400)],
        {**COCO, "stride": "32"},
        (),
        {},
        "yolo8 80 by its metadata (names)",
    ),
    # YOLOv5, v6, v7
    (
        "yolov5s, one class, dynamic",
        [port("output0", "batch", "anchors", 6)],
        {"names": names(1), "stride": "32"},
        (port("images", "batch", 3, "height", "width"),),
        {},
        "yolo5 1 by its metadata (names)",
    ),
    (
        "yolov5s6, with a fourth grid",
        [port("output0", 1, 102000, 85)],
        {**COCO, "stride": "64"},
        (port("images", 1, 3, 1280, 1280),),
        {},
        "yolo5 80 by its metadata (names)",
    ),
    (
        "yolov5s before 6.1, with its heads",
        [
            port("output", 1, 25200, 85),
            *(port(name, 1, 3, cells, cells, 85) for name, cells in (("345", 80), ("403", 40), ("461", 20))),
        ],
        {},
        (),
        {},
        "yolo5 80 by the shape of its outputs",
    ),
    (
        "yolov6n",
        [port("outputs", 1, 8400, 85)],
        {},
        (),
        {"labels": labels(80)},
        "yolox 80 by the shape of its outputs",
    ),
    ("yolov5s", [port("output0", 1, 25200, 85)], {**COCO, "stride": "32"}, (), {}, "yolo5 80 by its metadata (names)"),
    (
        "yolov5s, dynamic",
        [port("output0", "batch", "anchors", 85)],
        {**COCO, "stride": "32"},
        (port("images", "batch", 3, "height", "width"),),
        {},
        "yolo5 80 by its metadata (names)",
    ),
    (
        "yolov5s-seg",
        [port("output0", 1, 25200, 117), port("output1", 1, 32, 160, 160)],
        {**COCO, "stride": "32"},
        (),
        {},
        "yolo5 80 segment+32 by its metadata (names)",
    ),
    ("yolov7", [port("output", 1, 25200, 85)], {}, (), {}, "yolo5 80 by the shape of its outputs"),
    ("yolov7 --end2end", [port("output", "boxes", 7)], {}, (), {}, "flat7 None by the shape of its outputs"),
    # YOLOX
    ("yolox_s", [port("output", 1, 8400, 85)], {}, (), {"labels": labels(80)}, "yolox 80 by the shape of its outputs"),
    (
        "yolox_nano, 416",
        [port("output", 1, 3549, 85)],
        {},
        (port("images", 1, 3, 416, 416),),
        {"layout": "yolox"},
        "yolox 80 by the field layout",
    ),
    # Transformers
    (
        "RF-DETR",
        [port("dets", 1, 300, 4), port("labels", 1, 300, 91)],
        {},
        (port("input", 1, 3, 560, 560),),
        {},
        "detr 91 by the names of its outputs",
    ),
    (
        "DETR of Hugging Face",
        [port("logits", "batch", 100, 92), port("pred_boxes", "batch", 100, 4)],
        {},
        (port("pixel_values", "batch", 3, "height", "width"),),
        {"activation": "SOFTMAX"},
        "detr 91 by the names of its outputs",
    ),
    (
        "RT-DETR",
        [port("labels", "N", 300), port("boxes", "N", 300, 4), port("scores", "N", 300)],
        {},
        (port("images", "N", 3, 640, 640), port("orig_target_sizes", "N", 2)),
        {},
        "rtdetr None by the names of its outputs",
    ),
    # Others
    (
        "SSD of TensorFlow",
        [
            port("detection_anchor_indices", 1, 100),
            port("detection_boxes", 1, 100, 4),
            port("detection_classes", 1, 100),
            port("detection_scores", 1, 100),
            port("num_detections", 1),
        ],
        {},
        (port("input_tensor", 1, "h", "w", 3),),
        {},
        "tf None by the names of its outputs",
    ),
    (
        "SSD of TensorFlow Lite",
        [
            port(f"TFLite_Detection_PostProcess{at}", *shape)
            for at, shape in (("", (1, 10, 4)), (":1", (1, 10)), (":2", (1, 10)), (":3", (1,)))
        ],
        {},
        (port("normalized_input_image_tensor", 1, 300, 300, 3),),
        {},
        "tflite None by the names of its outputs",
    ),
    (
        "Faster R-CNN of torchvision",
        [port("boxes", "n", 4), port("labels", "n"), port("scores", "n")],
        {},
        (port("image", 1, 3, 800, 800),),
        {},
        "torchvision None by the names of its outputs",
    ),
    (
        "MMDetection",
        [port("dets", 1, 100, 5), port("labels", 1, 100)],
        {},
        (port("input", 1, 3, 800, 1344),),
        {},
        "mmdet None by the names of its outputs",
    ),
    *(
        (
            name,
            [
                port(f"{prefix}{end}", *shape)
                for end, shape in zip(ends, ((1, 1), (1, 99, 4), (1, 99), (1, 99)), strict=True)
            ],
            {},
            (),
            {},
            "efficient_nms None by the names of its outputs",
        )
        for name, prefix, ends in (
            ("yolov7 for TensorRT", "", ("num_dets", "det_boxes", "det_scores", "det_classes")),
            ("RTMDet of MMYOLO", "", ("num_dets", "boxes", "scores", "labels")),
            ("YOLO-NAS, final boxes", "graph2_", ("num_predictions", "pred_boxes", "pred_scores", "pred_classes")),
        )
    ),
    (
        "YOLO-NAS",
        [port("boxes", 1, 8400, 4), port("scores", 1, 8400, 80)],
        {},
        (),
        {"box": "x1y1x2y2", "unit": "pixels"},
        "boxes_scores 80 by the names of its outputs",
    ),
]


@pytest.mark.parametrize(
    ("outputs", "metadata", "inputs", "asked", "known"),
    [case[1:] for case in EXPORTS],
    ids=[case[0] for case in EXPORTS],
)
def test_an_export_is_recognised(
    outputs: list[Port], metadata: dict[str, str], inputs: tuple[Port, ...], asked: dict[str, Any], known: str
) -> None:
    detector = read(outputs, metadata, *inputs, **asked)
    task = "" if detector.task == "detect" else f" {detector.task}+{detector.extra}"
    assert f"{detector.layout} {detector.classes}{task} {detector.because}" == known
    assert detector.labels == (labels(detector.classes or 0) if "names" in metadata else asked.get("labels"))


def test_what_may_be_two_things_is_read_once_it_is_said_which() -> None:
    pose = [port("output0", 1, 56, 8400)]
    assert read(pose, labels=labels(52)).task == "detect"
    assert read(pose, keypoints=(17, 3)).keypoints == (17, 3)
    turned = [port("output0", 1, 8400, 84)]
    assert read(turned, labels=labels(80)).layout == "yolo8"
    assert read(turned, labels=labels(79)).layout == "yolox"
    assert read(turned, layout="yolo8").transposed


@pytest.mark.parametrize(
    ("outputs", "metadata", "asked", "text"),
    [
        (
            [port("output0", 1, 56, 8400)],
            {},
            {},
            r"52 classes, or a pose of one class with 17 keypoints: give labels, or",
        ),
        (
            [port("output0", 1, 8400, 84)],
            {},
            {},
            r"80 labels would say that its axes are exchanged, 79 that it is yolox",
        ),
        (
            [port("output0", 1, 84, 8400)],
            {},
            {"labels": labels(3)},
            r"there are 3 labels, and the model has 80 classes",
        ),
        ([port("output0", 1, 84, 8400)], {}, {"layout": "yolo5"}, r"not in the layout yolo5"),
        (
            [port("output0", 1, 84, 8400)],
            {},
            {"layout": "yolo9"},
            r'no layout of detectors of type "yolo9"; did you mean',
        ),
        (
            [port("output0", 1, 84, 8000)],
            {},
            {},
            r"the last axis is 8000, and an input of 640 x 640 pixels has 8400 places",
        ),
        ([port("output0", 1, 25000, 85)], {}, {}, r"it has 25000 rows, and an input of 640 x 640 pixels has 25200"),
        (
            [port("probabilities", 1, 1000)],
            {},
            {},
            r"a classifier, .*: use IMAGE_TO_NDARRAY, ONNX and CLASSIFIER_OUTPUT",
        ),
        ([port("output0", 1, 80)], {"task": "classify"}, {}, r"a classifier"),
        ([port("output0", 1, 84, 8400)], {}, {"activation": "SOFTMAX"}, r"activation: SOFTMAX has no meaning .* yolo8"),
        (
            [port("output0", 1, 84, 8400)],
            {},
            {"first_class": 1},
            r"firstClass: 1 has no meaning .* yolo8: leave it out",
        ),
        ([port("output", "batch", "boxes", 6)], {}, {}, r"end2end: the axis of its boxes is open: say the layout"),
        ([port("graph2_flat_predictions", "n", 7)], {}, {}, r"output_predictions_format=BATCH_FORMAT"),
        ([port("boxes", 1, 9, 4), port("scores", 1, 9, 80)], {}, {}, r"give box \(x1y1x2y2, .* and unit \(pixels"),
        (
            [port("dets", 1, 9, 4), port("labels", 1, 9, 92)],
            {},
            {"labels": labels(91)},
            r"with activation: SOFTMAX the last",
        ),
        (
            [port("a", 1, 3, 64, 64)],
            {},
            {},
            r"a float32 \[1, 3, 64, 64\], are in no layout that is known; say layout, one",
        ),
        ([port("output0", 1, 6, 8400)], {"names": names(1), "task": "pose"}, {}, r"give keypoints: \[count, 3\]"),
        (
            [port("output0", 1, 116, 8400)],
            {**COCO, "task": "segment"},
            {},
            r"no output .* with the prototypes of masks",
        ),
    ],
)
def test_what_is_not_sure_is_refused_with_what_to_do(
    outputs: list[Port], metadata: dict[str, str], asked: dict[str, Any], text: str
) -> None:
    with pytest.raises(StreamerError, match=text):
        read(outputs, metadata, **asked)


def test_an_error_says_that_an_open_size_was_assumed() -> None:
    with pytest.raises(
        StreamerError, match=r"640 x 640 pixels, which the model leaves open \(size says it\), has 8400"
    ):
        read([port("output0", 1, 84, 2100)], {}, port("images", 1, 3, "height", "width"))


def test_a_size_that_is_not_the_models_is_refused() -> None:
    with pytest.raises(DefinitionError, match="the height 640, and size says 320"):
        read([port("output0", 1, 84, 8400)], size=(320, 320))


@pytest.mark.parametrize("written", ["not a dict", "{0: 'a', 2: 'b'}", "{'x': 1}", "__import__('os')", "(" * 500, "[]"])
def test_metadata_that_cannot_be_read_is_left_out(written: str) -> None:
    detector = read([port("output0", 1, 84, 8400)], {"names": written, "imgsz": written, "args": written})
    assert detector.labels is None
    assert (detector.high, detector.wide) == (640, 640)


def test_an_input_of_pictures_with_alpha_has_its_channels_last() -> None:
    detector = read([port("output0", 1, 84, 5040)], {}, port("images", 1, 384, 640, 4))
    assert (detector.high, detector.wide, detector.layout) == (384, 640, "yolo8")
    said = read([port("output0", 1, 84, 5040)], {}, port("images", 1, 384, 640, "channels"), channels_last=True)
    assert (said.high, said.wide) == (384, 640)
