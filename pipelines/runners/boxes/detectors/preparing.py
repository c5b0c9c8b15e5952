"""How pictures are made to fit a detection model: by its layout, its input, and what a step says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pipelines.errors import StreamerError
from pipelines.runners.boxes.detectors.detector import Detector
from pipelines.runners.boxes.detectors.given import SIZES_INPUT, channels_last
from pipelines.runners.models.model import Port
from pipelines.steps.boxes.detect import DetectorInput
from pipelines.steps.images.imagetondarray import Fit, ImageNormalization, ImageToNDArrayConfig, PadColor

_TYPES: Final = {
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "float16": "FLOAT16",
    "uint8": "UINT8",
    "int32": "INT32",
}
_LAYOUTS: Final = {1: "GRAYSCALE", 3: "RGB", 4: "RGBA"}
_SCALE_01: Final = ImageNormalization(type="SCALE_01")
_NONE: Final = ImageNormalization(type="NONE")
_IMAGENET: Final = ImageNormalization(
    type="STANDARDIZE", mean_rgb=(123.675, 116.28, 103.53), std_rgb=(58.395, 57.12, 57.375)
)


@dataclass(frozen=True, slots=True)
class _Usual:
    """What models of a layout were trained on."""

    fit: Fit
    channels: str = "RGB"
    normalization: ImageNormalization = _SCALE_01
    pad: int = 114


_OF_LAYOUT: Final = {
    "yolox": _Usual("CORNER", "BGR", _NONE),
    "detr": _Usual("STRETCH", "RGB", _IMAGENET),
    "rtdetr": _Usual("STRETCH"),
    "tf": _Usual("STRETCH", "RGB", ImageNormalization(type="SCALE")),
    "tflite": _Usual("STRETCH", "RGB", ImageNormalization(type="SCALE")),
    "boxes_scores": _Usual("STRETCH"),
    "mmdet": _Usual("CORNER", "RGB", _IMAGENET),
}
"""Layouts whose models take something else than YOLO's: a picture with gray bars, RGB, from 0 to 1."""


def picture_input(inputs: Sequence[Port]) -> int:
    """The position of the input that takes the picture. Raises `StreamerError` if there is none, or not only one."""
    pictures = [place for place, port in enumerate(inputs) if port.name != SIZES_INPUT]
    if len(pictures) == 1 and (inputs[pictures[0]].shape is None or len(inputs[pictures[0]].shape or ()) == 4):
        return pictures[0]
    listed = ", ".join(f"{port.name} {port}" for port in inputs)
    raise StreamerError(
        f"one input for pictures is needed, [N, C, H, W] or [N, H, W, C]; the model has {listed}: export it with the "
        "picture alone, or use IMAGE_TO_NDARRAY, ONNX and DETECTIONS"
    )


def config_of(
    detector: Detector,
    port: Port,
    *,
    fit: Fit | None = None,
    pad_color: PadColor | None = None,
    changed: DetectorInput | None = None,
) -> ImageToNDArrayConfig:
    """How a picture becomes the array for the input `port` of this detector.

    Raises `StreamerError` for an input that is not for pictures.
    """
    usual = _OF_LAYOUT.get(detector.layout, _Usual("LETTERBOX"))
    if detector.unit == "fractions" and detector.layout in ("end2end", "yolo8"):
        # RT-DETR of Ultralytics is trained on stretched pictures.
        usual = _Usual("STRETCH")
    changed = changed or DetectorInput()
    last = channels_last(port) if changed.format is None else changed.format == "CHANNELS_LAST"
    element = changed.data_type or _TYPES.get(port.dtype.name)
    if element is None:
        raise StreamerError(f'the input "{port.name}" is {port}: pictures cannot be made of that type')
    normalization = usual.normalization if np.dtype(port.dtype).kind == "f" else _NONE
    fields: dict[str, Any] = {
        "height": detector.high,
        "width": detector.wide,
        "data_type": element,
        "format": "CHANNELS_LAST" if last else "CHANNELS_FIRST",
        "channel_layout": changed.channel_layout or _channels(port, usual.channels, last=last),
        "normalization": changed.normalization or normalization,
        "aspect_ratio_handling": fit or usual.fit,
        "pad_color": usual.pad if pad_color is None else pad_color,
    }
    return ImageToNDArrayConfig(**fields)


def in_words(config: ImageToNDArrayConfig) -> str:
    """The preparation in words: `letterbox 640 x 640, gray 114, RGB, 0..1`."""
    fit = config.aspect_ratio_handling
    parts = [f"{fit.lower().replace('_', ' ')} {config.width} x {config.height}"]
    if fit not in ("STRETCH", "CENTER_CROP"):
        pad = config.pad_color
        parts.append(f"gray {pad}" if isinstance(pad, int) else f"color {', '.join(map(str, pad))}")
    parts += [config.channel_layout, _range(config.normalization or _NONE)]
    return ", ".join(parts)


def _range(normalization: ImageNormalization) -> str:
    ranges = {"NONE": "0..255", "SCALE_01": "0..1", "SCALE": "-1..1", "INCEPTION": "-1..1"}
    if normalization == _IMAGENET:
        return "mean and std of ImageNet"
    return ranges.get(normalization.type, normalization.type)


def _channels(port: Port, usual: str, *, last: bool) -> str:
    count = None if port.shape is None else port.shape[3 if last else 1]
    if not isinstance(count, int) or count == 3:
        return usual
    if count not in _LAYOUTS:
        raise StreamerError(
            f'the input "{port.name}" is {port}: a picture has 1, 3 or 4 channels; which axis are they on? '
            "input: {format: CHANNELS_LAST} says the last"
        )
    return _LAYOUTS[count]
