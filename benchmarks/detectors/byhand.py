"""A YOLO model's picture and output handled by hand, in three ways. Needs numpy and cv2; one way supervision too.

`python -m benchmarks.detectors.byhand` reads `{"counts", "rounds"}` and writes for each count the medians of the CPU
milliseconds of `batched` and `supervised`, which it runs in turn.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import cv2
import numpy as np

Box: TypeAlias = tuple[float, float, float, float, int, float]
"""x1, y1, x2, y2 in fractions of the picture, class and score."""

SIDE, GRAY = 640, 114
THRESHOLD, OVERLAP, MOST = 0.25, 0.5, 300
CLASSES = 80
_PER_OBJECT = 12


def picture() -> Any:
    """A picture of 1920x1080, BGR."""
    rng = np.random.default_rng(0)
    return cv2.resize(rng.integers(0, 256, (27, 48, 3), np.uint8), (1920, 1080), interpolation=cv2.INTER_CUBIC)


def output(candidates: int) -> Any:
    """An output `[1, 84, 8400]` with so many boxes above the threshold, a dozen around each object."""
    rng = np.random.default_rng(candidates)
    made = rng.uniform(0, 0.05, (4 + CLASSES, 8400)).astype(np.float32)
    objects = candidates // _PER_OBJECT + 1
    middles = rng.uniform((60, 180), (580, 460), (objects, 2))
    sizes, classes = rng.uniform(20, 110, (objects, 2)), rng.integers(0, CLASSES, objects)
    made[:2] = rng.uniform(0, SIDE, (2, 8400))
    made[2:4] = rng.uniform(5, 200, (2, 8400))
    places = rng.permutation(8400)[:candidates]
    of = np.arange(candidates) % objects
    made[:2, places] = (middles[of] + rng.normal(0, 3, (candidates, 2))).T
    made[2:4, places] = (sizes[of] * rng.uniform(0.9, 1.1, (candidates, 2))).T
    made[4 + classes[of], places] = rng.uniform(0.3, 0.95, candidates)
    return made[None]


def fed(image: Any) -> tuple[Any, float, int, int]:
    """The model's input, and how the picture lies in it: scale, left and top."""
    high, wide = image.shape[:2]
    scale = min(SIDE / high, SIDE / wide)
    new_wide, new_high = round(wide * scale), round(high * scale)
    left, top = (SIDE - new_wide) // 2, (SIDE - new_high) // 2
    small = cv2.resize(image, (new_wide, new_high), interpolation=cv2.INTER_LINEAR)
    rest = SIDE - new_high - top, SIDE - new_wide - left
    whole = cv2.copyMakeBorder(small, top, rest[0], left, rest[1], cv2.BORDER_CONSTANT, value=(GRAY, GRAY, GRAY))
    array = np.array(cv2.cvtColor(whole, cv2.COLOR_BGR2RGB)) / 255.0
    return np.expand_dims(np.transpose(array, (2, 0, 1)), 0).astype(np.float32), scale, left, top


def looped(image: Any, given: Any) -> list[Box]:
    """With a loop over all boxes, as the example of Ultralytics for ONNX Runtime has it."""
    _, scale, left, top = fed(image)
    high, wide = image.shape[:2]
    rows = np.transpose(np.squeeze(given[0]))
    boxes, scores, numbers = [], [], []
    for row in rows:
        classes = row[4:]
        best = np.amax(classes)
        if best >= THRESHOLD:
            numbers.append(np.argmax(classes))
            x, y, w, h = row[0] - left, row[1] - top, row[2], row[3]
            boxes.append([int((x - w / 2) / scale), int((y - h / 2) / scale), int(w / scale), int(h / scale)])
            scores.append(best)
    results = []
    for place in cv2.dnn.NMSBoxes(boxes, scores, THRESHOLD, OVERLAP)[:MOST]:
        x, y, w, h = boxes[place]
        results.append((x / wide, y / high, (x + w) / wide, (y + h) / high, int(numbers[place]), float(scores[place])))
    return results


def batched(image: Any, given: Any) -> list[Box]:
    """Without a loop, and with the non-maximum suppression by classes that OpenCV has."""
    place = fed_fast(image)
    xywh, scores, numbers = _candidates(given)
    kept = np.asarray(cv2.dnn.NMSBoxesBatched(xywh, scores, numbers.astype(np.int32), 0.0, OVERLAP), np.int64)[:MOST]
    corners = np.concatenate([xywh[kept, :2], xywh[kept, :2] + xywh[kept, 2:]], axis=1)
    return _boxes(image, place, corners, scores[kept], numbers[kept])


def supervised(image: Any, given: Any) -> list[Box]:
    """The same with `box_non_max_suppression` of the package supervision."""
    from supervision.detection.utils.iou_and_nms import box_non_max_suppression

    place = fed_fast(image)
    xywh, scores, numbers = _candidates(given)
    corners = np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)
    kept = box_non_max_suppression(np.column_stack([corners, scores, numbers]), iou_threshold=OVERLAP)
    kept = np.flatnonzero(kept)
    kept = kept[np.argsort(-scores[kept], kind="stable")][:MOST]
    return _boxes(image, place, corners[kept], scores[kept], numbers[kept])


def fed_fast(image: Any) -> tuple[float, int, int]:
    """The model's input made without float64; returns scale, left and top."""
    high, wide = image.shape[:2]
    scale = min(SIDE / high, SIDE / wide)
    new_wide, new_high = round(wide * scale), round(high * scale)
    left, top = (SIDE - new_wide) // 2, (SIDE - new_high) // 2
    small = cv2.resize(image, (new_wide, new_high), interpolation=cv2.INTER_LINEAR)
    array = padded_array(small, left, top)
    assert array.shape == (1, 3, SIDE, SIDE)
    return scale, left, top


def padded_array(small: Any, left: int, top: int, gray: int = GRAY) -> Any:
    """A small BGR picture on a gray square as `[1, 3, 640, 640]` RGB from 0 to 1."""
    rest = SIDE - small.shape[0] - top, SIDE - small.shape[1] - left
    whole = cv2.copyMakeBorder(small, top, rest[0], left, rest[1], cv2.BORDER_CONSTANT, value=(gray, gray, gray))
    return np.ascontiguousarray(whole[:, :, ::-1].transpose(2, 0, 1)[None]).astype(np.float32) / np.float32(255)


def _candidates(given: Any) -> tuple[Any, Any, Any]:
    scores = given[0, 4:].max(0)
    places = np.flatnonzero(scores >= THRESHOLD)
    numbers = given[0, 4:, places].argmax(1)
    xywh = given[0, :4, places].astype(np.float64)
    xywh[:, :2] -= xywh[:, 2:] / 2
    return xywh, scores[places], numbers


def _boxes(image: Any, place: tuple[float, int, int], corners: Any, scores: Any, numbers: Any) -> list[Box]:
    scale, left, top = place
    high, wide = image.shape[:2]
    corners = (corners - (left, top, left, top)) / scale / (wide, high, wide, high)
    rows = np.clip(corners, 0, 1).tolist()
    return [(*row, n, s) for row, n, s in zip(rows, numbers.tolist(), scores.tolist(), strict=True)]


def medians(works: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The median CPU milliseconds of each, run in turn."""
    spent: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 1):
        for times, work in zip(spent, works, strict=True):
            began = time.process_time()
            work()
            times.append((time.process_time() - began) * 1000)
    # The first round makes caches.
    return [statistics.median(times[1:]) for times in spent]


def main() -> None:
    """Answer one request."""
    asked = json.load(sys.stdin)
    cv2.setNumThreads(1)
    image, told = picture(), {}
    for count in asked["counts"]:
        works = [partial(way, image, output(count)) for way in (batched, supervised)]
        told[count] = medians(works, asked["rounds"])
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
