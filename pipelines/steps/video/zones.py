"""ZONES: events of tracks that enter, stay in and leave areas of the picture, and cross lines in it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Config, Key
from pipelines.steps.video.polygon import fault
from pipelines.steps.video.track import FrameRate, Seconds

Coordinate = Annotated[float, Field(allow_inf_nan=False)]
PlacePair = tuple[Coordinate, Coordinate]


class Place(Config):
    """Fields of both zones and lines."""

    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    labels: tuple[str, ...] | None = None
    """Labels of the boxes that count; default: all."""
    cameras: tuple[str, ...] | None = None
    """Cameras that it is for, by the topic or the message key of their records; default: all."""


class Zone(Place):
    """An area: `{points: [[0.1, 0.5], [0.9, 0.5], [0.9, 1], [0.1, 1]], dwell: 30}`."""

    points: Annotated[tuple[PlacePair, ...], Field(min_length=3, max_length=1000)]
    """Its corners in order, each `[x, y]` in the unit of the boxes: usually fractions of the picture, from its left top
    corner."""
    dwell: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which an object that is still inside gives the event `dwell`, once a visit; default: never."""

    @model_validator(mode="after")
    def _check_points(self) -> Zone:
        if len(set(self.points)) < 3:
            raise ValueError('"points" of a zone are three different ones at least')
        wrong = fault(self.points)
        if wrong is not None:
            raise ValueError(f"points: {wrong}")
        return self


class Line(Place):
    """A line from one point to another: `{start: [0.2, 0.6], end: [0.8, 0.6]}`."""

    start: PlacePair
    """Where it begins, `[x, y]`."""
    end: PlacePair
    """Where it ends, `[x, y]`. Seen from `start` towards `end`, an object that crosses from left to right goes `in`,
    from right to left `out`."""

    @model_validator(mode="after")
    def _check_points(self) -> Line:
        if self.start == self.end:
            raise ValueError(f'a line from {list(self.start)} to itself has no sides; move "start" or "end"')
        return self


class Zones(Step):
    """Reports objects that `enter`, `leave` or `dwell` in zones of the picture or `cross` lines, and counts them.

    The ids of TRACK tell objects apart; boxes with the id 0 are ignored. An object is where `anchor`, a point of its
    box, is. It changes sides only when that point is past an edge by `margin`, so that a box that trembles on a line is
    counted once.
    """

    type_name: ClassVar[str] = "ZONES"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.video.zones:ZonesRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    zones: dict[Key, Zone] = Field(default_factory=dict)
    """The zones by their names."""
    lines: dict[Key, Line] = Field(default_factory=dict)
    """The lines by their names. A line and a zone cannot have the same name."""
    bbox_name: str | None = None
    """Key of the box or list of boxes; default: the record's only one."""
    ids_name: Key = "ids"
    """Key of the boxes' ids, as `TRACK` gives them."""
    anchor: Literal["BOTTOM_CENTER", "CENTER", "TOP_CENTER"] = "BOTTOM_CENTER"
    """The point of a box that is the object's place: `BOTTOM_CENTER` is where a person or car touches the ground."""
    margin: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """How far past an edge the point has to be, in the unit of the boxes."""
    lost_after: Seconds = 2.0
    """Seconds without a box after which an object has left its zones. Should not be less than `maxAge` of `TRACK`."""
    events_name: Key = "events"
    """Key of the list of events."""
    counts_name: Key = "counts"
    """Key of the counts: `inside`, `entered` and `left` for a zone; `in` and `out` for a line."""
    by_key: bool = False
    """Whether records of one partition that have different message keys come from different cameras; by default each
    partition of a topic is one camera."""
    frame_rate: FrameRate = 30.0
    """Frames a second that are assumed for records without a timestamp."""

    @model_validator(mode="after")
    def _check_names(self) -> Zones:
        if not self.zones and not self.lines:
            raise ValueError('ZONES needs "zones" or "lines"')
        both = sorted(self.zones.keys() & self.lines.keys())
        if both:
            raise ValueError(f'"{both[0]}" is the name of a zone and of a line')
        return self
