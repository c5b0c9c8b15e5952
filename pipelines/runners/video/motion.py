"""Runs MOTION."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pipelines.data.data import Data
from pipelines.data.record import RecordContext
from pipelines.runners.images.fields import image_key
from pipelines.runners.images.opencv import opencv
from pipelines.runners.runner import OpenContext
from pipelines.runners.video.lanerunner import LaneRunner
from pipelines.steps.video.motion import Motion
from pipelines.values import BoundingBox, TypedList, ValueType
from pipelines.values.pixels import Pixels


class Scene:
    """The background of one camera, `(height, width)` gray, and the time of the last motion."""

    def __init__(self) -> None:
        self.usual: npt.NDArray[np.float32] | None = None
        self.seen = 0.0
        self.moved: float | None = None
        self.passed = 0.0


class MotionRunner(LaneRunner[Scene]):
    """Drops the frames of a camera in which nothing moves, or gives boxes of the areas that move.

    Fails a row without an image. A picture of another size than before begins anew, as does the first.
    """

    keeps_keys: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: Motion, context: OpenContext) -> None:
        super().__init__(step.frame_rate, by_key=step.by_key)
        self._step = step
        self._cv2 = opencv()

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._step.image_name is None else frozenset([self._step.image_name])

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset() if self._step.output_name is None else frozenset([self._step.output_name])

    @property
    def types(self) -> Mapping[str, ValueType]:
        return {} if self._step.output_name is None else {self._step.output_name: ValueType.LIST}

    def begin(self, record: RecordContext) -> Scene:
        return Scene()

    def checked(self, data: Data) -> Pixels:
        image = data.get_image(image_key(data, self._step.image_name))
        width = min(self._step.width, image.width)
        height = max(round(image.height * width / image.width), 1)
        gray = image.scaled(width, height, 1)[:, :, 0]
        small: Pixels = self._cv2.GaussianBlur(gray, (5, 5), 0)
        return small

    def step(self, data: Data, values: Pixels, state: Scene, now: float) -> Data | None:
        boxes = self._moving(values, state, now)
        if self._step.gate and not self._passes(bool(boxes), state, now):
            return None
        if self._step.output_name is not None:
            data[self._step.output_name] = boxes or TypedList(ValueType.BOUNDING_BOX)
        return data

    def _passes(self, moves: bool, state: Scene, now: float) -> bool:
        step = self._step
        if moves:
            state.moved = now
        # Timestamps are in milliseconds: a smaller difference is rounding.
        passes = (
            state.seen == state.passed == now
            or (state.moved is not None and round(now - state.moved, 6) <= step.hold)
            or (step.every is not None and round(now - state.passed, 6) >= step.every)
        )
        if passes:
            state.passed = now
        return passes

    def _moving(self, gray: Pixels, state: Scene, now: float) -> list[BoundingBox]:
        if state.usual is None or state.usual.shape != gray.shape:
            state.usual, state.seen, state.passed = gray.astype(np.float32), now, now
            return []
        cv2, step = self._cv2, self._step
        changed = cv2.absdiff(gray, cv2.convertScaleAbs(state.usual))
        _, mask = cv2.threshold(changed, step.threshold - 1, 255, cv2.THRESH_BINARY)
        share = 1.0 - math.exp(-(now - state.seen) / step.memory)
        cv2.accumulateWeighted(gray, state.usual, share)
        state.seen = now
        least = max(step.min_area * mask.size, 1.0)
        if cv2.countNonZero(mask) < least:
            return []
        return self._boxes(cv2.dilate(mask, None, iterations=2), mask, least)

    def _boxes(self, joined: Any, mask: Any, least: float) -> list[BoundingBox]:
        """A box around each part that moves; parts that nearly touch are one."""
        count, marks, stats, _ = self._cv2.connectedComponentsWithStats(joined)
        areas = np.bincount(marks[mask > 0], minlength=count)
        high, wide = mask.shape
        boxes = []
        for mark in np.flatnonzero(areas >= least).tolist():
            x, y, w, h, _ = (int(number) for number in stats[mark])
            boxes.append(BoundingBox.corners(x / wide, (x + w) / wide, y / high, (y + h) / high))
        return boxes
