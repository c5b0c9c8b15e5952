"""The files of a new service around a detection model, which takes pictures and gives boxes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pipelines
from pipelines.data.data import Data
from pipelines.errors import MissingPackageError, StreamerError
from pipelines.plugins.requirements import Package

DETECT_STEP: Final = "detect"
"""The name of the step that runs the model."""

_WHITE: Final = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAADklEQVQIHWP8z8D4nwEABwgCAYqbJ/4AAAAASUVORK5CYII="


def is_detector(model: Path) -> bool:
    """Whether a file alone says that its model is a detector. A file that cannot be loaded is none."""
    from pipelines.runners.boxes.detectormodel import DetectorModel
    from pipelines.runners.runner import OpenContext
    from pipelines.steps import Detect

    if model.suffix != ".onnx" or not model.is_file():
        return False
    try:
        DetectorModel(Detect(str(model.absolute())), OpenContext()).close()
    except MissingPackageError:
        raise
    except StreamerError:
        return False
    return True


def files_for_detector(model: Path) -> dict[str, str | bytes]:
    """The model, the pipeline that runs it, and cases, by their paths in the service's folder.

    A case expects the model's present boxes in a white picture. Raises `MissingPackageError` without OpenCV, and
    `StreamerError` if the model cannot be run.
    """
    Package("cv2", extra="image").check("a service around a detector")
    lines = f'  - "@type": DETECT\n    name: {DETECT_STEP}\n    modelUri: {json.dumps(model.name)}\n'
    boxes = _boxes(model, f"steps:\n{lines}")
    picture = json.dumps({"@ImageFormat": "PNG", "@ImageData": _WHITE})
    return {
        model.name: model.read_bytes(),
        "pipeline": "# Fields of DETECT, as labels to keep: docs/steps/detect.md. TRACK, ZONES, BLUR take boxes.\n"
        f"steps:\n{lines}",
        "cases/white.yaml": "# A record, here a white picture, and the model's boxes for it when this was written.\n"
        f'# {{"@file": "a.jpg"}} reads a file.\n'
        f"input: {{image: {picture}}}\nexpect: {{boxes: {json.dumps(boxes)}}}\n",
        "cases/broken.yaml": "input: no picture\nfails: decode  # the step in which it fails\n",
    }


def _boxes(model: Path, pipeline: str) -> Any:
    from connectors.codecs.registry import codec_of
    from pipelines.data.batch import Batch

    with pipelines.loads(pipeline, base=model.absolute().parent).open() as executor:
        (outcome,) = executor.run_many([Data.from_json(json.dumps({"image": _image()}))])
    if not isinstance(outcome, Data):
        raise StreamerError(f"{model}: it cannot be run on a picture: {outcome}")
    encoded = codec_of("json").encode(Batch.of([Data({"boxes": outcome["boxes"]})]))
    for error in encoded.failed.values():
        raise error
    return json.loads(encoded.values[0] or b"{}")["boxes"]


def _image() -> dict[str, str]:
    return {"@ImageFormat": "PNG", "@ImageData": _WHITE}
