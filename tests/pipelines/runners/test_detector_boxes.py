"""SSD_TO_BBOX, YOLO_BBOX, BOUNDING_BOX_FILTER, BOUNDING_BOX_TO_POINT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from outcomes import result_of

from pipelines import Batch, BoundingBox, Data, Point, Sequence
from pipelines.errors import StepError
from pipelines.runners.boxes.suppression import survivors
from pipelines.steps import BoundingBoxFilter, BoundingBoxToPoint, SsdToBoundingBox, Step, YoloToBoundingBox
from pipelines.values import TypedList, ValueType, element_type

COCO = json.loads((Path(__file__).parents[2] / "conformance" / "vectors" / "coco-labels.json").read_text())


def run(step: Step, data: Data) -> Data:
    with Sequence([step]).open() as executor:
        return result_of(executor.run(data))


def detections(boxes: list[list[float]], scores: list[float], classes: list[float], **others: Any) -> Data:
    return Data(
        {
            "detection_boxes": np.array([boxes], "f4").reshape(1, -1, 4),
            "detection_scores": np.array([scores], "f4"),
            "detection_classes": np.array([classes], "f4"),
            **others,
        }
    )


def cell(x: int, y: int, box: tuple[float, float, float, float], confidence: float, classes: list[float]) -> np.ndarray:
    """`[1, 5 + C, 2, 4]` with one detection: a grid of 4 columns and 2 lines."""
    array = np.zeros((1, 5 + len(classes), 2, 4), "f4")
    array[0, :, y, x] = [*box, confidence, *classes]
    return array


def test_an_ssd_detection_becomes_a_box_by_its_corners() -> None:
    found = run(SsdToBoundingBox(), detections([[0.1, 0.2, 0.5, 0.6], [0, 0, 1, 1]], [0.75, 0.25], [1, 2], note="kept"))

    assert found["bounding_boxes"] == [BoundingBox(x1=0.2, x2=0.6, y1=0.1, y2=0.5, probability=0.75)]
    assert list(found) == ["detection_classes", "note", "bounding_boxes"]


def test_coco_classes_are_counted_from_one() -> None:
    found = run(SsdToBoundingBox(class_labels=tuple(COCO)), detections([[0, 0, 1, 1]] * 2, [0.9, 0.8], [1, 18]))

    assert [box.label for box in found["bounding_boxes"]] == ["person", "dog"]


def test_classes_that_the_model_counts_from_zero_have_the_labels_from_the_first_on() -> None:
    step = SsdToBoundingBox(class_labels=("cat", "dog"), first_class=0)
    found = run(step, detections([[0, 0, 1, 1]] * 2, [0.9, 0.8], [0, 1]))
    assert [box.label for box in found["bounding_boxes"]] == ["cat", "dog"]


def test_class_zero_has_no_label_and_only_its_record_fails() -> None:
    good, bad = detections([[0, 0, 1, 1]], [0.9], [1]), detections([[0, 0, 1, 1]], [0.9], [0])

    with Sequence([SsdToBoundingBox(class_labels=("cat",))]).open() as executor:
        found = executor.run_many([good, bad, good])

    assert isinstance(found[1], StepError)
    assert "Predicted label index was 0 but only 1 labels were provided, for 1 and up" in str(found[1])
    assert "set firstClass: 0 if the model counts from 0" in str(found[1])
    assert found[0] == found[2] == run(SsdToBoundingBox(class_labels=("cat",)), good)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_class_that_is_no_number_is_told(number: float) -> None:
    data = detections([[0, 0, 1, 1]], [0.9], [number])
    with pytest.raises(StepError, match=f'DataError: "detection_classes" has {number}, which is not a class number'):
        run(SsdToBoundingBox(class_labels=["a"]), data)


def test_an_empty_list_of_labels_says_so_in_each_box() -> None:
    found = run(SsdToBoundingBox(class_labels=()), detections([[0, 0, 1, 1]], [0.9], [7]))

    assert found["bounding_boxes"][0].label == "no label provided"


def test_no_detection_gives_an_empty_list_of_boxes() -> None:
    found = run(SsdToBoundingBox(keep_other_values=False), detections([], [], []))

    assert element_type(found["bounding_boxes"]) is ValueType.BOUNDING_BOX
    assert list(found) == ["bounding_boxes"]


def test_a_box_is_widened_to_the_aspect_ratio_and_then_scaled() -> None:
    # 0.2 wide and 0.4 high, centre (0.5, 0.5): 0.4 by 0.4, then 0.6 by 0.6.
    found = run(SsdToBoundingBox(aspect_ratio=1.0, scale=1.5), detections([[0.3, 0.4, 0.7, 0.6]], [0.9], [1]))

    assert found["bounding_boxes"] == [BoundingBox(x1=0.2, x2=0.8, y1=0.2, y2=0.8, probability=0.9)]


def test_a_box_too_wide_for_the_aspect_ratio_grows_in_height() -> None:
    found = run(SsdToBoundingBox(aspect_ratio=0.5), detections([[0.4, 0.3, 0.6, 0.7]], [0.9], [1]))

    assert found["bounding_boxes"] == [BoundingBox(x1=0.3, x2=0.7, y1=0.1, y2=0.9, probability=0.9)]


@pytest.mark.parametrize("dtype", ["f2", "f8"])
def test_detector_output_of_any_float_type_is_read_with_or_without_its_first_dimension(dtype: str) -> None:
    data = Data({"detection_boxes": np.array([[0, 0, 1, 0.5]], dtype), "detection_scores": np.array([0.5], dtype)})

    assert run(SsdToBoundingBox(), data)["bounding_boxes"] == [BoundingBox(x1=0, x2=0.5, y1=0, y2=1, probability=0.5)]


@pytest.mark.parametrize("dtype", ["i8", "i4", "u1"])
def test_class_numbers_of_a_detector_may_be_integers(dtype: str) -> None:
    data = detections([[0, 0, 1, 1]] * 2, [0.9, 0.8], [])
    data["detection_classes"] = np.array([[1, 2]], dtype)
    found = run(SsdToBoundingBox(class_labels=("cat", "dog")), data)
    assert [box.label for box in found["bounding_boxes"]] == ["cat", "dog"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"detection_boxes": np.zeros((1, 1, 4), "i4")}, "int32; a float type is needed"),
        ({"detection_boxes": np.zeros((1, 2, 4), "f4")}, "do not belong together"),
        ({"detection_scores": np.zeros((1, 1, 1), "f4")}, r"shape \[1, 1, 1\]; \[1, n\] is needed"),
        ({"detection_scores": "high"}, "actual type STRING"),
    ],
)
def test_an_output_that_is_none_of_an_ssd_detector_is_refused(change: dict[str, Any], message: str) -> None:
    data = detections([[0, 0, 1, 1]], [0.9], [1])
    data.update(change)

    with pytest.raises(StepError, match=message):
        run(SsdToBoundingBox(), data)


def test_a_yolo_cell_becomes_a_box_in_fractions_of_the_image() -> None:
    # Cell (3, 1) of a grid 4 wide and 2 high; a quarter into the cell; 2 cells wide, 1 high.
    data = Data({"in": cell(3, 1, (0.25, 0.5, 2.0, 1.0), 0.9, [0.125, 0.875])})

    found = run(YoloToBoundingBox(class_labels=("cat", "dog")), data)

    (box,) = found["bounding_boxes"]
    assert box == BoundingBox(cx=3.25 / 4, cy=1.5 / 2, h=1 / 2, w=2 / 4, label="dog", probability=0.875)
    assert box.form == "CHW"
    assert "in" in found


def test_channels_last_gives_the_same_boxes_as_channels_first() -> None:
    array = np.random.default_rng(3).random((1, 21, 3, 5), "f4")

    first = run(YoloToBoundingBox(num_classes=2, keep_other_values=False), Data({"in": array}))
    last = run(
        YoloToBoundingBox(num_classes=2, nchw=False, keep_other_values=False),
        Data({"in": np.ascontiguousarray(np.moveaxis(array, 1, -1))}),
    )

    assert first == last
    assert len(first["bounding_boxes"]) > 10


def test_yolo_boxes_come_by_column_line_and_prior() -> None:
    array = np.zeros((1, 2 * 6, 2, 2), "f4")
    array[0, 4] = array[0, 10] = 0.9
    array[0, 5], array[0, 11] = 0.25, 0.75  # tells the priors apart

    found = run(YoloToBoundingBox(num_classes=1), Data({"in": array}))

    seen = [(round(box.cx * 2), round(box.cy * 2), box.probability) for box in found["bounding_boxes"]]
    assert seen == [(x, y, p) for x in (0, 1) for y in (0, 1) for p in (0.25, 0.75)]


def test_a_cell_without_a_probable_class_is_class_zero_with_probability_zero() -> None:
    found = run(YoloToBoundingBox(num_classes=2), Data({"in": cell(0, 0, (0, 0, 1, 1), 0.9, [0.0, 0.0])}))

    assert [(box.label, box.probability) for box in found["bounding_boxes"]] == [("0", 0.0)]


def test_numbers_beyond_float32_fail_their_record_alone() -> None:
    good = cell(0, 0, (0, 0, 1, 1), 0.9, [1.0]).astype("f8")
    bad = good.copy()
    bad[0, 0, 0, 0] = 1e300

    with Sequence([YoloToBoundingBox(num_classes=1)]).open() as executor:
        found = executor.run_many([Data({"in": good}), Data({"in": bad}), Data({"in": good})])

    assert isinstance(found[1], StepError)
    assert "float32 cannot hold" in str(found[1])
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((1, 8, 84), "YOLOv8 or 11"), ((1, 84, 8), "YOLOv5 or 7"), ((1, 300, 6), "end-to-end"), ((1, 8, 2, 2), "")],
)
def test_pixels_where_fractions_of_a_cell_belong_fail_their_record_alone(shape: tuple[int, ...], layout: str) -> None:
    classes = {84: 79, 8: 3, 6: 1}.get(shape[-1], 3)
    good, bad = (Data({"out": np.full(shape, value, "f4")}) for value in (0.25, 448))
    with Sequence([YoloToBoundingBox(num_classes=classes, nchw=len(shape) == 4)]).open() as executor:
        right, wrong = executor.run_many([good, bad])
    assert isinstance(right, Data)
    assert isinstance(wrong, StepError)
    assert "has values outside 0..1" in str(wrong)
    assert layout in str(wrong)


def test_the_output_of_another_yolo_whose_channels_do_not_divide_is_named() -> None:
    with Sequence([YoloToBoundingBox(num_classes=80)]).open() as executor:
        (found,) = executor.run_many([Data({"out": np.zeros((1, 84, 8400), "f4")})])
    assert isinstance(found, StepError)
    assert "this may be the layout of YOLOv8 or 11" in str(found)


@pytest.mark.parametrize("channel", [0, 1, 4, 5])
@pytest.mark.parametrize("value", [1.5, -0.5, np.nan])
def test_a_position_or_probability_of_a_cell_that_cannot_be_fails(channel: int, value: float) -> None:
    array = cell(1, 1, (0.5, 0.5, 1, 1), 0.9, [0.9, 0.1])
    array[0, channel, 0, 3] = value
    with Sequence([YoloToBoundingBox(num_classes=2)]).open() as executor:
        (found,) = executor.run_many([Data({"out": array})])
    assert isinstance(found, StepError)
    assert "has values outside 0..1" in str(found)


@pytest.mark.parametrize("score", [1.5, -3.0, 97.0, np.nan])
def test_scores_of_a_detector_that_are_no_probabilities_fail_their_record_alone(score: float) -> None:
    good, bad = detections([[0, 0, 1, 1]], [0.9], [1]), detections([[0, 0, 1, 1]], [score], [1])
    with Sequence([SsdToBoundingBox()]).open() as executor:
        right, wrong = executor.run_many([good, bad])
    assert isinstance(right, Data)
    assert isinstance(wrong, StepError)
    assert "values outside 0..1, which are not probabilities" in str(wrong)


def test_all_images_of_an_array_go_into_one_list() -> None:
    array = np.concatenate([cell(x, 0, (0, 0, 1, 1), 0.9, [1.0]) for x in (2, 1)])

    found = run(YoloToBoundingBox(num_classes=1), Data({"in": array}))

    assert [box.cx for box in found["bounding_boxes"]] == [0.5, 0.25]


def test_overlapping_boxes_stay_unless_suppression_is_asked_for() -> None:
    array = cell(0, 0, (1.0, 0.5, 2, 2), 0.9, [0.8]) + cell(1, 0, (0.1, 0.5, 2, 2), 0.6, [0.9])

    plain = run(YoloToBoundingBox(num_classes=1), Data({"in": array}))
    suppressed = run(YoloToBoundingBox(num_classes=1, nms=True), Data({"in": array}))

    assert len(plain["bounding_boxes"]) == 2
    # The first wins by confidence times probability, 0.72 to 0.54.
    assert suppressed["bounding_boxes"] == plain["bounding_boxes"][:1]


def test_suppression_leaves_other_classes_and_other_images_alone() -> None:
    two_images = np.concatenate([cell(0, 0, (0.5, 0.5, 2, 2), 0.9, [0.8, 0])] * 2)
    other_class = cell(0, 0, (1.0, 0.5, 2, 2), 0.9, [0.8, 0]) + cell(1, 0, (0.0, 0.5, 2, 2), 0.9, [0, 0.8])

    for array in (two_images, other_class):
        found = run(YoloToBoundingBox(num_classes=2, nms=True), Data({"in": array}))
        assert len(found["bounding_boxes"]) == 2


def test_a_suppressed_box_suppresses_nobody() -> None:
    # A chain: each overlaps the next by a half (1/3 of the union), the ends do not touch.
    corners = np.array([[0.0, 0, 2, 1], [1, 0, 3, 1], [2, 0, 4, 1]])

    stays = survivors(corners, np.array([0.9, 0.8, 0.7]), np.zeros(3, np.int64), 0.3)

    assert stays.tolist() == [True, False, True]
    assert survivors(corners, np.array([0.9, 0.8, 0.7]), np.zeros(3, np.int64), 0.34).all()


def test_of_many_boxes_those_stay_that_a_plain_loop_keeps() -> None:
    random = np.random.default_rng(5)
    for count in (0, 1, 40):
        left_top = random.random((count, 2))
        corners = np.concatenate([left_top, left_top + random.random((count, 2))], axis=1)
        scores, groups = random.random(count), random.integers(0, 4, count)
        kept: list[int] = []
        for one in sorted(range(count), key=lambda box: -scores[box]):
            if all(groups[one] != groups[other] or overlap(corners[one], corners[other]) <= 0.3 for other in kept):
                kept.append(one)

        assert np.flatnonzero(survivors(corners, scores, groups, 0.3)).tolist() == sorted(kept)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = wide * high if wide > 0 and high > 0 else 0.0
    return float(shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((1, 4, 2, 2), "f4"), "4 channels; 2 classes need a multiple of 7"),
        (np.zeros((14, 2), "f4"), r"shape \[14, 2\]"),
        (np.zeros((1, 14, 2, 2), "i8"), "int64; a float type is needed"),
        (np.zeros((1, 14, 2, 2), ">i8"), "int64; a float type is needed"),
    ],
)
@pytest.mark.parametrize(("key", "named"), [(None, "the only array"), ("in", 'the array "in"')])
def test_an_array_that_is_no_yolo_output_is_refused(
    array: np.ndarray, message: str, key: str | None, named: str
) -> None:
    with pytest.raises(StepError, match=f"WrongTypeError: {named} (is|has|has the) {message}"):
        run(YoloToBoundingBox(num_classes=2, input=key), Data({"in": array}))


def test_a_class_beyond_the_labels_fails_its_record_only() -> None:
    good, bad = cell(0, 0, (0, 0, 1, 1), 0.9, [1, 0]), cell(0, 0, (0, 0, 1, 1), 0.9, [0, 1])

    with Sequence([YoloToBoundingBox(num_classes=2, class_labels=("cat",))]).open() as executor:
        found = executor.run_many([Data({"in": good}), Data({"in": bad})])

    assert isinstance(found[0], Data)
    assert "Predicted label index was 1 but only 1 labels were provided" in str(found[1])


STREAM_STEPS = [
    SsdToBoundingBox(class_labels=("a", "b", "c"), scale=1.25, aspect_ratio=0.75),
    YoloToBoundingBox(input="grid", num_classes=3, threshold=0.3, nms=True, nms_threshold=0.2),
    YoloToBoundingBox(input="grid", class_labels=("a", "b", "c"), keep_other_values=False),
]


@pytest.mark.parametrize("step", STREAM_STEPS, ids=range(len(STREAM_STEPS)))
@pytest.mark.parametrize("seed", range(5))
def test_a_batch_gives_what_its_rows_give_one_by_one(step: Step, seed: int) -> None:
    random = np.random.default_rng(seed)
    datas = []
    for _ in range(12):
        count, images, height = random.integers(0, 5), random.integers(1, 3), random.integers(1, 3)
        classes = random.integers(1, 5, count).astype("f4").tolist()  # 4 has no label
        grid = random.random((images, 16, height, 2), "f4")
        datas.append(detections(random.random((count, 4)).tolist(), random.random(count).tolist(), classes, grid=grid))
    with Sequence([step]).open() as executor:
        together = executor.run_many(datas)
        alone = [executor.run_many([data])[0] for data in datas]

    assert [one if isinstance(one, Data) else str(one) for one in together] == [
        one if isinstance(one, Data) else str(one) for one in alone
    ]


def test_dense_columns_are_decoded_without_a_look_at_single_rows() -> None:
    datas = [Data({"in": np.full((1, 6, 2, 2), 0.75, "f4")})] * 3
    with Sequence([YoloToBoundingBox(num_classes=1)]).open() as executor:
        result = executor.run_batch(Batch.of(datas))

    assert [len(boxes) for boxes in result.batch["bounding_boxes"].values()] == [4, 4, 4]


BOXES = [
    BoundingBox(x1=0.1, x2=0.3, y1=0.4, y2=0.8, label="cat", probability=0.9),
    BoundingBox(cx=0.5, cy=0.5, h=0.2, w=0.4, label="dog"),
    BoundingBox(x1=0, x2=1, y1=0, y2=1),
]


def test_boxes_of_the_named_labels_stay_and_the_detectors_arrays_go() -> None:
    data = Data({"input": BOXES, "detection_boxes": 1, "detection_scores": 2, "detection_classes": 3, "note": "kept"})

    assert run(BoundingBoxFilter(classes_to_keep=("dog",)), data) == Data(
        {"bounding_boxes": BOXES[1:2], "note": "kept"}
    )


def test_the_only_list_of_boxes_is_filtered_where_no_name_is_given() -> None:
    step = BoundingBoxFilter(classes_to_keep=("bird",), input_name=None, output_name="birds")

    found = run(step, Data({"found": BOXES, "n": 1}))

    assert found == Data({"birds": TypedList(ValueType.BOUNDING_BOX), "n": 1})


@pytest.mark.parametrize("classes", [None, ()])
def test_a_filter_without_labels_does_not_open(classes: tuple[str, ...] | None) -> None:
    with pytest.raises(Exception, match="classesToKeep must name at least one label"):
        Sequence([BoundingBoxFilter(classes_to_keep=classes)]).open()


@pytest.mark.parametrize(
    ("method", "first", "second"),
    [
        ("TOP_LEFT", (0.1, 0.4), (0.3, 0.4)),
        ("TOP_RIGHT", (0.3, 0.4), (0.7, 0.4)),
        ("BOTTOM_LEFT", (0.1, 0.8), (0.3, 0.6)),
        ("BOTTOM_RIGHT", (0.3, 0.8), (0.7, 0.6)),
        ("CENTER", (0.2, 0.6), (0.5, 0.5)),
    ],
)
def test_each_box_gives_a_point_with_its_label(method: Any, first: Any, second: Any) -> None:
    found = run(BoundingBoxToPoint(method=method, output_name="points"), Data({"boxes": BOXES[:2], "n": 1}))

    assert found == Data({"points": [Point(first, "cat", 0.9), Point(second, "dog")], "n": 1})


def test_metadata_survives_where_other_keys_do() -> None:
    data = Data({"box": BOXES[0]}, metadata={"site": "north"})

    assert run(BoundingBoxToPoint(), data).metadata == Data({"site": "north"})
