"""`DetectorModel`: an ONNX model that is recognised as a detector, run on arrays of pictures."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from pipelines.errors import RowsFailed, StreamerError
from pipelines.executors.lastshapes import Call
from pipelines.runners.boxes.detectors.given import SIZES_INPUT
from pipelines.runners.boxes.detectors.layouts.yolo import is_raw
from pipelines.runners.boxes.detectors.preparing import config_of, in_words, picture_input
from pipelines.runners.boxes.detectors.recognise import recognise
from pipelines.runners.boxes.objectreader import LEFT_OUT, ObjectReader, asked
from pipelines.runners.boxes.objects import Objects
from pipelines.runners.images.imagearrays import prepared, stacked
from pipelines.runners.images.outputmemory import OutputMemory
from pipelines.runners.models.fixedbatch import FixedBatch
from pipelines.runners.models.model import Array, Model, described
from pipelines.runners.models.onnxmodel import OnnxModel
from pipelines.runners.runner import OpenContext
from pipelines.steps.boxes.detect import Detect
from pipelines.steps.models.onnx import Onnx
from pipelines.values import Image

_GRAY: Final = 114
_FEW: Final = 2
"""Labels that a description names."""
_ALONE: Final = ("torchvision",)
"""Layouts whose outputs do not say which picture a box is of."""
_OWNED: Final = ("flat7",)
"""Layouts whose outputs have a line for each box, of whichever picture."""

_log = logging.getLogger(__name__)


class DetectorModel:
    """The model of a step, what its outputs mean, and how pictures become its input.

    Raises, when it is made, what `OnnxModel` and `recognise` raise, and `StreamerError` for inputs that are not a
    picture. `started` has to be called before it runs.
    """

    def __init__(self, step: Detect, context: OpenContext) -> None:
        onnx = Onnx(step.model_uri, providers=step.providers, session_options=step.session_options)
        self.model = OnnxModel(onnx, context)
        metadata = dict(self.model.session.get_modelmeta().custom_metadata_map)
        try:
            self._place = picture_input(self.model.inputs)
            self.detector = recognise(self.model.inputs, self.model.outputs, metadata, asked(step, context))
            self.config = config_of(
                self.detector,
                self.model.inputs[self._place],
                fit=step.fit,
                pad_color=step.pad_color,
                changed=step.input,
            )
            self._read = ObjectReader(step, self.detector, context.metrics.counter(LEFT_OUT, "Boxes left out."))
        except StreamerError as error:
            self.model.close()
            raise _of_file(error, str(self.model.path)) from None
        except BaseException:
            self.model.close()
            raise
        self.size = (self.config.height or 1, self.config.width or 1)
        self._step = step
        self._metrics = context.metrics
        self._shapes = context.ran.of(context.step)
        self._called: Model = self.model
        self.most: int | None = None
        """How many pictures a call has at most; `None`: any number."""
        stated = self.model.inputs[self._place].shape
        self.count = stated[0] if stated and isinstance(stated[0], int) else None
        """How many pictures each call has, where the model states it."""
        if self.count is not None:
            self.most = self.count

    @property
    def calls(self) -> str:
        """How many pictures a call has, in words."""
        if self.count is None:
            return "one picture a call" if self.detector.layout in _ALONE else "any number of pictures a call"
        return "one picture a call" if self.count == 1 else f"{self.count} pictures a call"

    def start(self) -> None:
        """Try the model on gray pictures: whether it takes several, and what boxes of YOLOX are.

        Raises `StreamerError` if it cannot be run at all.
        """
        detector = self.detector
        if self.count is not None and self.count > 1 and detector.layout not in _OWNED:
            fixed = FixedBatch(self.model, self.count)
            fixed.count_in(self._metrics)
            # It cuts larger arrays into calls itself.
            self._called, self.most = fixed, None
        if detector.layout in _ALONE:
            self.most = 1
        outputs = None
        if self.count is None and self.most is None:
            outputs = self._tried(2)
            if outputs is None or not self._by_picture(outputs, 2):
                self.most, outputs = 1, None
        if detector.raw is None and detector.layout == "yolox":
            outputs = outputs or self._run(self._gray(self.count or 1))
            raw = is_raw([outputs[place] for place in detector.outputs])
            self.detector = replace(detector, raw=raw)
            self._read = ObjectReader(self._step, self.detector, self._metrics.counter(LEFT_OUT))
        warm = max(int(self._step.warm_up), self._before())
        if warm and (outputs is None or warm > 2):
            self._tried(min(warm, self.most or warm) if self.count is None else self.count)

    def objects(self, array: Array) -> Objects:
        """The objects in prepared pictures, at most `most` of them, in pixels of the model's input.

        Raises `RowsFailed` for pictures whose outputs cannot be read. onnxruntime's exceptions go through.
        """
        total = len(array)
        lacking = (self.count or 0) - total if self._called is self.model else 0
        if lacking > 0:
            array = np.concatenate([array, np.repeat(array[-1:], lacking, axis=0)])
        self._shapes.last = Call((), [array.shape], True)
        try:
            return self._read.read(self._run(array), self.size, total)
        except RowsFailed as error:
            # The last picture answers for those that the call was filled up with, which are the same.
            failures = {min(row, total - 1): error.failures[row] for row in sorted(error.failures, reverse=True)}
            raise RowsFailed(failures) from None

    def _before(self) -> int:
        """How many pictures the call before had, of another model of the step; 0 without one."""
        call = self._shapes.last
        return 0 if call is None or call.names else call.shapes[0][0]

    def in_words(self) -> str:
        """The model in one line: inputs and outputs, what it was recognised by, labels, the picture that it gets."""
        labels = self.detector.labels
        parts = [
            described(self.model),
            f"{self.detector.layout} {self.detector.because}",
            "no labels: classes are numbers" if labels is None else self._labels(labels),
            f"picture: {in_words(self.config)}",
            self.calls,
        ]
        return "; ".join(parts)

    def close(self) -> None:
        """Free the model."""
        self.model.close()

    def _labels(self, labels: Sequence[str]) -> str:
        source = "file" if self._step.labels is None else "step"
        more = ", ..." if len(labels) > _FEW else ""
        return f"{len(labels)} labels from the {source}: {', '.join(labels[:_FEW])}{more}"

    def _run(self, array: Array) -> list[Array]:
        feeds = []
        for port in self.model.inputs:
            if port.name == SIZES_INPUT:
                high, wide = self.size
                feeds.append(np.tile(np.array([[wide, high]], port.dtype), (len(array), 1)))
            else:
                feeds.append(array)
        return self._called.run(feeds)

    def _gray(self, count: int) -> Array:
        picture = Image(np.full((*self.size, 3), _GRAY, np.uint8))
        return stacked([prepared(picture, self.config)] * count, self.config, OutputMemory().empty)

    def _tried(self, count: int) -> list[Array] | None:
        try:
            return self._run(self._gray(count))
        except Exception as error:  # noqa: BLE001 - of onnxruntime; whether one picture runs shows with the first record
            _log.info("%s: it does not take %d gray pictures: %s", self.model.path, count, error)
            return None

    def _by_picture(self, outputs: list[Array], count: int) -> bool:
        if self.detector.layout in _OWNED:
            return True
        return all(outputs[place].ndim and len(outputs[place]) == count for place in self.detector.outputs)


def _of_file(error: StreamerError, path: str) -> StreamerError:
    """The error with the model's file, if it does not name it."""
    return error if path in str(error) else type(error)(f"{path}: {error}")
