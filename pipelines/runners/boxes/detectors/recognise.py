"""What the outputs of a model mean, by its metadata, the names of its outputs and their shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipelines.errors import DefinitionError, StreamerError
from pipelines.runners.boxes.detectors.detector import Candidates, Detector
from pipelines.runners.boxes.detectors.given import Asked, Given, Metadata, Size
from pipelines.runners.boxes.detectors.layout import LAYOUTS, Layout, Misfit
from pipelines.runners.models.model import Port


def recognise(inputs: Sequence[Port], outputs: Sequence[Port], metadata: Mapping[str, str], asked: Asked) -> Detector:
    """How the outputs of a model are read.

    What the step says counts first, then the metadata, then names, then shapes. Nothing is guessed where two layouts
    are possible.

    Raises:
        StreamerError: The outputs are in no layout, or maybe in two; the layout that was asked for does not fit; there
            are other labels than classes; the model is no detector. The text says what to do.
    """
    given = Given(inputs, outputs, Metadata.of(metadata), asked)
    _check_size(given)
    name = asked.layout or given.metadata.layout
    if name is not None:
        detector = LAYOUTS.get(name)().fit(given)
        if isinstance(detector, Detector):
            return _completed(detector, given, "by the field layout" if asked.layout else _by_metadata(given))
        lacks = detector.lacks if isinstance(detector, Misfit) else f"it has {_described(outputs)}"
        raise StreamerError(f"the model's outputs are not in the layout {name}: {lacks}")
    _refuse_classifier(given)
    fits: list[Detector] = []
    near: list[str] = []
    for layout in LAYOUTS.load_all().values():
        detector = layout().fit(given)
        if isinstance(detector, Detector):
            fits.append(detector)
        elif isinstance(detector, Misfit):
            near.append(f"{layout.name}: {detector.lacks}")
    if len(fits) == 1:
        return _completed(
            fits[0], given, _by_metadata(given) or f"by the {LAYOUTS.get(fits[0].layout).evidence} of its outputs"
        )
    if fits:
        names = " or ".join(detector.layout for detector in fits)
        raise StreamerError(f"the model's outputs, {_described(outputs)}, may be {names}: say which by layout")
    hints = f"; {'; '.join(near)}" if near else ""
    raise StreamerError(
        f"the model's outputs, {_described(outputs)}, are in no layout that is known{hints}; say layout, one of "
        f"{', '.join(sorted(LAYOUTS.known))}, if it is one of these"
    )


def decode(detector: Detector, outputs: Sequence[Any], size: Size, threshold: float) -> Candidates:
    """The boxes of a batch in all outputs of a model; otherwise as `Layout.decode`."""
    layout: Layout = LAYOUTS.get(detector.layout)()
    return layout.decode(detector, [outputs[place] for place in detector.outputs], size, threshold)


def _completed(detector: Detector, given: Given, because: str) -> Detector:
    """What a layout said of the model, with what is known of it in any layout."""
    asked, (high, wide) = given.asked, given.size
    labels = detector.labels if given.labels is None else given.labels
    classes = len(labels) if detector.classes is None and labels is not None else detector.classes
    if labels is not None and classes != len(labels):
        raise StreamerError(f"there are {len(labels)} labels, and the model has {classes} classes")
    for field, said, meant in (
        ("activation", asked.activation, detector.activation),
        ("firstClass", asked.first_class, detector.first_class),
        ("box", asked.box, detector.box),
        ("unit", asked.unit, detector.unit),
    ):
        if said not in (None, meant):
            raise DefinitionError(f"{field}: {said} has no meaning for the layout {detector.layout}: leave it out")
    return replace(detector, because=because, wide=wide, high=high, classes=classes, labels=labels)


def _by_metadata(given: Given) -> str:
    metadata = given.metadata
    if metadata.layout is not None:
        return "by its metadata"
    if metadata.task is not None:
        return f"by its metadata (task {metadata.task})"
    return "by its metadata (names)" if metadata.labels is not None else ""


def _check_size(given: Given) -> None:
    if given.asked.size is None:
        return
    for side, stated, asked in zip(("height", "width"), given.stated, given.asked.size, strict=True):
        if stated is not None and stated != asked:
            raise DefinitionError(f"the model's input has the {side} {stated}, and size says {asked}: leave size out")


def _refuse_classifier(given: Given) -> None:
    shapes = given.shapes
    flat = len(shapes) == 1 and shapes[0] is not None and len(shapes[0]) == 2 and shapes[0][1] != 7
    if given.metadata.task == "classify" or flat:
        raise StreamerError(
            f"the model is a classifier, it seems ({_described(given.outputs)}): use IMAGE_TO_NDARRAY, ONNX and "
            "CLASSIFIER_OUTPUT"
        )


def _described(ports: Sequence[Port]) -> str:
    return ", ".join(f"{port.name} {port}" for port in ports)
