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
    """Labels of the boxes that count; none: all."""
    cameras: tuple[str, ...] | None = None
    """Names of the cameras that have it, which are the topics or the keys of their records; none: all."""


class Zone(Place):
    """An area: `{points: [[0.1, 0.5], [0.9, 0.5], [0.9, 1], [0.1, 1]], dwell: 30}`."""

    points: Annotated[tuple[PlacePair, ...], Field(min_length=3, max_length=1000)]
    """Its corners in order, x and y, in the unit of the boxes: fractions of the picture, from its left top corner."""
    dwell: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a track that is still inside gives the event `dwell`, once; none: never."""

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
    """Where it begins, x and y."""
    end: PlacePair
    """Where it ends. Seen from its start, a track that comes from the left goes `in`, one from the right `out`."""

    @model_validator(mode="after")
    def _check_points(self) -> Line:
        if self.start == self.end:
            raise ValueError(f'a line from {list(self.start)} to itself has no sides; move "start" or "end"')
        return self


class Zones(Step):
    """Events of tracks: they `enter`, `leave` and `dwell` in zones and `cross` lines; and how many there are.

    A track counts once it is confirmed (its id is not 0), by one point of its box. To change sides it has to be past an
    edge by `margin`: a box that trembles on a line is counted once.
    """

    type_name: ClassVar[str] = "ZONES"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.video.zones:ZonesRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    zones: dict[Key, Zone] = Field(default_factory=dict)
    """Name to zone."""
    lines: dict[Key, Line] = Field(default_factory=dict)
    """Name to line. A line and a zone cannot have one name."""
    bbox_name: str | None = None
    """Key of the boxes; none: the only one."""
    ids_name: Key = "ids"
    """Key of their ids, as `TRACK` gives them."""
    anchor: Literal["BOTTOM_CENTER", "CENTER", "TOP_CENTER"] = "BOTTOM_CENTER"
    """The point of a box that counts: `BOTTOM_CENTER` is where a person or car touches the ground."""
    margin: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """How far past an edge the point has to be, in the unit of the boxes."""
    lost_after: Seconds = 2.0
    """Seconds after which a track that has no box leaves its zones. Not less than `maxAge` of `TRACK`."""
    events_name: Key = "events"
    """Key of the events, a list."""
    counts_name: Key = "counts"
    """Key of the counts: of a zone `inside`, `entered`, `left`; of a line `in`, `out`."""
    by_key: bool = False
    """Whether each key of the records is a camera of its own; by default each topic is, and each partition of it."""
    frame_rate: FrameRate = 30.0
    """Frames a second of records that have no timestamp."""

    @model_validator(mode="after")
    def _check_names(self) -> Zones:
        if not self.zones and not self.lines:
            raise ValueError('ZONES needs "zones" or "lines"')
        both = sorted(self.zones.keys() & self.lines.keys())
        if both:
            raise ValueError(f'"{both[0]}" is the name of a zone and of a line')
        return self
