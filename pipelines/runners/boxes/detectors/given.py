"""What is known of a model before it runs: its inputs, outputs and metadata, and what the step says of it."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from pipelines.runners.boxes.detectors.detector import Activation, BoxForm, Unit
from pipelines.runners.models.model import Port

Size: TypeAlias = tuple[int, int]
"""Height and width in pixels."""
Lengths: TypeAlias = tuple[int | None, ...]
"""The shape of an output; `None` for an open axis."""

STRIDES: Final = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))
"""How many pixels of the input a cell of each grid of a YOLO covers in each direction: the usual three grids first,
then those of models for large pictures (P6) and for small objects (P2)."""
SIZES_INPUT: Final = "orig_target_sizes"
"""The input by which RT-DETR is given the size, width and height, that its boxes are to be in."""
CHANNELS: Final = (1, 3, 4)
"""How many channels a picture may have."""
SIZE: Final = 640
"""Height and width of the input where nothing says them: what most detectors were trained with."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the fields of a step say of its model; `None`: nothing."""

    layout: str | None = None
    labels: tuple[str, ...] | None = None
    first_class: int | None = None
    size: Size | None = None
    activation: Activation | None = None
    box: BoxForm | None = None
    unit: Unit | None = None
    keypoints: tuple[int, int] | None = None
    channels_last: bool | None = None
    """Whether the input takes pictures `[N, H, W, C]`."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What an exporter wrote into the model, as far as it can be read.

    Ultralytics writes `names` (a Python dict), `task`, `imgsz`, `kpt_shape`, `head`, `end2end` and `args`; YOLOv5 only
    `names` and `stride`. `box`, `unit` and `layout` are this project's, for models that say how they are to be read.
    """

    labels: tuple[str, ...] | None
    task: str | None
    size: Size | None
    keypoints: tuple[int, int] | None
    head: str | None
    suppressed: bool
    """Whether the model was exported with its suppression: it gives final boxes."""
    yolo5: bool
    """Whether it is what the exporter of YOLOv5 writes."""
    layout: str | None
    box: str | None
    unit: str | None

    @classmethod
    def of(cls, written: Mapping[str, str]) -> Metadata:
        """That of a model's metadata; what cannot be read is left out."""
        arguments = _literal(written.get("args"))
        nms = isinstance(arguments, Mapping) and bool(arguments.get("nms"))
        return cls(
            labels=_labels(_literal(written.get("names"))),
            task=written.get("task"),
            size=_pair(_literal(written.get("imgsz"))),
            keypoints=_pair(_literal(written.get("kpt_shape"))),
            head=written.get("head"),
            suppressed=nms or _literal(written.get("end2end")) is True,
            yolo5="stride" in written and "names" in written and "task" not in written,
            layout=written.get("layout"),
            box=written.get("box"),
            unit=written.get("unit"),
        )


@dataclass(frozen=True)
class Given:
    """All that a layout is recognised by."""

    inputs: Sequence[Port]
    outputs: Sequence[Port]
    metadata: Metadata
    asked: Asked

    @cached_property
    def shapes(self) -> list[Lengths | None]:
        """The shape of each output; `None` where the model does not state its rank."""
        return [_lengths(port) for port in self.outputs]

    @cached_property
    def picture(self) -> Port | None:
        """The input that takes pictures: the first of four axes, of which one can be the channels."""
        pictures = (port for port in self.inputs if port.shape is not None and len(port.shape) == 4)
        return next(pictures, None)

    @cached_property
    def stated(self) -> tuple[int | None, int | None]:
        """Height and width of the input as the model states them; `None` where they are open."""
        shape = None if self.picture is None else _lengths(self.picture)
        if self.picture is None or shape is None:
            return None, None
        last = channels_last(self.picture) if self.asked.channels_last is None else self.asked.channels_last
        return (shape[1], shape[2]) if last else (shape[2], shape[3])

    @cached_property
    def size(self) -> Size:
        """Height and width of the input: as stated, else as asked for, else as it was exported, else 640."""
        known = self.asked.size or self.metadata.size or (SIZE, SIZE)
        high, wide = self.stated
        return high or known[0], wide or known[1]

    @cached_property
    def cells(self) -> tuple[int, ...]:
        """How many cells all grids of a YOLO have together, for each of `STRIDES`: the usual number first."""
        return tuple(cells_of(self.size, strides) for strides in STRIDES)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The labels of the step, else those in the model."""
        return self.asked.labels or self.metadata.labels

    @property
    def keypoints(self) -> tuple[int, int] | None:
        """Number of keypoints and of their numbers, as the step or the model says."""
        return self.asked.keypoints or self.metadata.keypoints

    def named(self, *names: str) -> tuple[int, ...] | None:
        """The positions of the outputs of these names, `None` if one is missing. `:0` and the like do not count."""
        places = {port.name.partition(":")[0].rpartition("/")[2]: place for place, port in enumerate(self.outputs)}
        complete = all(name in places for name in names)
        return tuple(places[name] for name in names) if complete else None

    def ending(self, *ends: str) -> tuple[int, ...] | None:
        """The positions of the outputs whose names end so, `None` if one is missing."""
        places = [
            next((place for place, port in enumerate(self.outputs) if port.name.endswith(end)), None) for end in ends
        ]
        known = tuple(place for place in places if place is not None)
        return known if len(known) == len(ends) else None


def cells_of(size: Size, strides: Sequence[int]) -> int:
    """How many cells grids of these strides have together for an input of a size, height and width."""
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


def channels_last(port: Port) -> bool:
    """Whether an input takes pictures `[N, H, W, C]`, as its shape says; `[N, C, H, W]` where it may be both."""
    if port.shape is None or len(port.shape) != 4:
        return False
    return port.shape[3] in CHANNELS and port.shape[1] not in CHANNELS


def _lengths(port: Port) -> Lengths | None:
    if port.shape is None:
        return None
    return tuple(length if isinstance(length, int) else None for length in port.shape)


def _literal(text: str | None) -> Any:
    """The value that a text of the metadata writes, in Python or JSON; `None` if it writes none."""
    if text is None:
        return None
    for read in (ast.literal_eval, json.loads):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None


def _labels(names: Any) -> tuple[str, ...] | None:
    if isinstance(names, Mapping) and sorted(names, key=str) and all(_is_number(key) for key in names):
        numbered = {int(key): str(label) for key, label in names.items()}
        if sorted(numbered) == list(range(len(numbered))):
            return tuple(numbered[number] for number in range(len(numbered)))
    if isinstance(names, (list, tuple)) and names:
        return tuple(map(str, names))
    return None


def _is_number(key: object) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and key.isdecimal())


def _pair(value: Any) -> tuple[int, int] | None:
    if isinstance(value, int):
        value = (value, value)
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(item, int) for item in value):
        return int(value[0]), int(value[1])
    return None
