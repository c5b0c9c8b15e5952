"""The parts of a result that sinks show: the image, its boxes, and readable values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from connectors.view.shownevent import ShownEvent, events_of
from pipelines.data.data import Data
from pipelines.errors import ConnectorError
from pipelines.values import BoundingBox, Image

MOST_BOXES: Final = 1000
"""The most boxes of a picture that are shown."""
MOST_VALUES: Final = 20
"""The most values of a result that are shown beside its picture."""
LONGEST_VALUE: Final = 80
"""The most characters of a value that are shown."""
MOST_PLACES: Final = 50
"""The most places of a result whose counts are shown."""


@dataclass(frozen=True, slots=True)
class Box:
    """A box in parts of the picture's width and height: 0 is left or top, 1 right or bottom."""

    left: float
    top: float
    width: float
    height: float
    label: str = ""
    score: float | None = None
    number: int | None = None
    """The track id of the box; `None` or 0: no track."""

    @property
    def text(self) -> str:
        """The caption of the box: `7 face 92 %`."""
        parts = [str(self.number) if self.number else "", self.label]
        if self.score is not None and math.isfinite(self.score):
            parts.append(f"{self.score:.0%}")
        return " ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class Shown:
    """The parts of a result that a page or a video shows."""

    camera: str
    image: Image
    boxes: Sequence[Box]
    values: Mapping[str, str | int | float | bool]
    timestamp: int | None
    """When the picture was taken, in milliseconds since 1970."""
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What was counted at each zone and line, such as `{"crossing": {"inside": 1, "entered": 4, "left": 3}}`."""
    events: Sequence[ShownEvent] = ()
    """What happened in this picture."""


@dataclass(frozen=True, slots=True)
class Taking:
    """Which values of a result are shown."""

    image: str = "image"
    """The key of the picture."""
    boxes: tuple[str, ...] | None = None
    """Keys of boxes and of lists of boxes; `None`: all of them."""
    ids: str = "ids"
    """The key of the ids of tracks: a list beside the boxes."""
    counts: str = "counts"
    """The key of what zones and lines counted, as ZONES gives it."""
    events: str = "events"
    """The key of the list of events, as ZONES gives it."""

    def shown(self, data: Data, name: str) -> Shown:
        """The parts of this result; `name` is the camera's if the record has none. Raises `ConnectorError` without a
        picture."""
        image = data.get(self.image)
        if not isinstance(image, Image):
            raise ConnectorError(
                f'the result has no image under "{self.image}"; keep it through the pipeline (keep: [{self.image}] of '
                "the service), or say its key (image: KEY of the sink)"
            )
        keys = [key for key in data if self.boxes is None or key in self.boxes]
        boxes: list[Box] = []
        for key in keys:
            listed = _boxes(data[key])
            if listed and len(boxes) < MOST_BOXES:
                ids = data.get(self.ids)
                boxes += _placed(listed, ids if isinstance(ids, list) else [], image)
        record = data.record
        return Shown(
            name if record is None else record.topic,
            image,
            boxes[:MOST_BOXES],
            _values(data),
            None if record is None else record.timestamp,
            _counts(data.get(self.counts)),
            events_of(data.get(self.events)),
        )


def data_of(value: object) -> Data:
    """The payload as a record; `ConnectorError` for anything else."""
    if isinstance(value, Data):
        return value
    raise ConnectorError(f"a record (Data) is needed, not {type(value).__name__}; use the codec objects")


def _boxes(value: Any) -> list[BoundingBox]:
    if isinstance(value, BoundingBox):
        return [value]
    if isinstance(value, list) and value and all(isinstance(box, BoundingBox) for box in value):
        return value
    return []


def _placed(boxes: list[BoundingBox], ids: list[Any], image: Image) -> list[Box]:
    numbers = (
        [number if isinstance(number, int) else None for number in ids]
        if len(ids) == len(boxes)
        else [None] * len(boxes)
    )
    placed = []
    for box, number in zip(boxes, numbers, strict=True):
        edges = (box.x1, box.y1, box.x2, box.y2)
        if not all(map(math.isfinite, edges)):
            continue
        left, top, right, bottom = edges
        # As for points: small numbers are fractions of the picture's size, others are pixels.
        if max(abs(edge) for edge in edges) > 2.0:
            left, right = left / image.width, right / image.width
            top, bottom = top / image.height, bottom / image.height
        left, right = sorted((left, right))
        top, bottom = sorted((top, bottom))
        placed.append(Box(left, top, right - left, bottom - top, box.label or "", box.probability, number))
    return placed


def _values(data: Data) -> dict[str, str | int | float | bool]:
    values: dict[str, str | int | float | bool] = {}
    for key in data:
        value = data[key]
        if len(values) == MOST_VALUES:
            break
        if isinstance(value, str):
            values[key] = value[:LONGEST_VALUE]
        elif isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
            values[key] = value
    return values


def _counts(value: Any) -> dict[str, dict[str, int]]:
    """The numbers of each place; places and numbers that are of another form are left out."""
    counts: dict[str, dict[str, int]] = {}
    for place in value if isinstance(value, Data) else ():
        numbers = value[place]
        if len(counts) == MOST_PLACES:
            break
        if isinstance(numbers, Data):
            counts[place[:LONGEST_VALUE]] = {
                key: numbers[key] for key in list(numbers)[:MOST_VALUES] if type(numbers[key]) is int
            }
    return counts
