"""TRACK: boxes that belong to one object get one id, from frame to frame."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key

Fraction = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0)]
FrameRate = Annotated[float, Field(gt=0, le=1000)]


class Track(Step):
    """Gives the boxes of one object in the frames of a camera the same id: `Track(bbox_name="faces", max_age=2.0)`.

    The algorithm is ByteTrack or SORT. The time between frames is taken from their timestamps, so frames may be
    missing. A process uses an id only once, also with several cameras and when a camera connects again; a new process
    begins at 1 again.
    """

    type_name: ClassVar[str] = "TRACK"
    run_by: ClassVar[RunBy | None] = RunBy(
        "numpy", "pipelines.runners.video.track:TrackRunner", ("lap",), extra="camera"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    bbox_name: str | None = None
    """Key of the box or list of boxes; default: the record's only one."""
    output_name: Key = "ids"
    """Key of the list of ids, an integer from 1 for each box, in their order; 0 for a box without a confirmed track."""
    algorithm: Literal["BYTE_TRACK", "SORT"] = "BYTE_TRACK"
    """`BYTE_TRACK` first matches boxes with a high score to tracks, then boxes with a low score (of half hidden
    objects) to the tracks that are left; `SORT` matches all boxes at once."""
    high_threshold: Fraction = 0.5
    """Lowest score (the box's probability, 1 if it has none) with which a box can begin a track."""
    low_threshold: Fraction = 0.1
    """Lowest score with which a box can continue a track. The detector's own threshold must not be higher."""
    overlap: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Smallest intersection over union of a box and the place where a track is expected, for the box to belong to
    it."""
    hits: Annotated[Int, Field(ge=1)] = 2
    """Frames in a row with the object after which its track is confirmed and gets an id; ByteTrack has 2, SORT 3. With
    more, fewer false detections get an id, and each id comes later."""
    max_age: Seconds = 1.0
    """Seconds for which a track without a box is kept."""
    coast: Seconds = 0.0
    """Seconds for which a track without a box still gets one, where the object is expected, so that a face stays
    blurred. Not more than `maxAge`."""
    unconfirmed: Literal["KEEP", "DROP"] = "KEEP"
    """Whether boxes without a confirmed track are kept or removed."""
    by_key: bool = False
    """Whether records of one partition that have different message keys come from different cameras; by default each
    partition of a topic is one camera."""
    frame_rate: FrameRate = 30.0
    """Frames a second that are assumed for records without a timestamp."""

    @model_validator(mode="after")
    def _check_limits(self) -> Track:
        if self.low_threshold > self.high_threshold:
            raise ValueError(f'"lowThreshold" {self.low_threshold} is above "highThreshold" {self.high_threshold}')
        if self.coast > self.max_age:
            raise ValueError(f'"coast" {self.coast} is above "maxAge" {self.max_age}: a track is gone after that')
        return self
