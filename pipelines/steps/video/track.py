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
    """Boxes of one object in the frames of a camera get one id: `Track(bbox_name="faces", max_age=2.0)`.

    By SORT or ByteTrack; the time between frames is that of their timestamps, so frames may be dropped. An id is never
    used again, also not for another camera or after it connected anew.
    """

    type_name: ClassVar[str] = "TRACK"
    run_by: ClassVar[RunBy | None] = RunBy(
        "numpy", "pipelines.runners.video.track:TrackRunner", ("lap",), extra="camera"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    bbox_name: str | None = None
    """Key of the boxes; none: the only one."""
    output_name: Key = "ids"
    """Key of the ids, integers from 1, one for each box in their order; 0 for a box without a confirmed track."""
    algorithm: Literal["BYTE_TRACK", "SORT"] = "BYTE_TRACK"
    """With `BYTE_TRACK` boxes of a high score are matched to tracks first, and those of a low score, of an object half hidden, to the tracks that are left; with `SORT` all are matched at once."""  # noqa: E501
    high_threshold: Fraction = 0.5
    """Score from which a box may begin a track. A box without a probability has the score 1."""
    low_threshold: Fraction = 0.1
    """Score from which a box may go on with one. The detector must not cut such boxes off."""
    overlap: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Intersection over union that a box and the place where its track is expected have at least."""
    hits: Annotated[Int, Field(ge=1)] = 2
    """Frames in a row that confirm a track: 2 as ByteTrack has it, 3 as SORT has it. More of them let fewer through that the detector made up, and every id comes later."""  # noqa: E501
    max_age: Seconds = 1.0
    """Seconds for which a track that no box goes on with is kept."""
    coast: Seconds = 0.0
    """Seconds for which such a track still has a box, where it is expected: so that a face stays blurred. Not more than `maxAge`."""  # noqa: E501
    unconfirmed: Literal["KEEP", "DROP"] = "KEEP"
    """Whether boxes without a confirmed track stay."""
    by_key: bool = False
    """Whether each key of the records is a camera of its own; by default each topic is, and each partition of it."""
    frame_rate: FrameRate = 30.0
    """Frames a second of records that have no timestamp."""

    @model_validator(mode="after")
    def _check_limits(self) -> Track:
        if self.low_threshold > self.high_threshold:
            raise ValueError(f'"lowThreshold" {self.low_threshold} is above "highThreshold" {self.high_threshold}')
        if self.coast > self.max_age:
            raise ValueError(f'"coast" {self.coast} is above "maxAge" {self.max_age}: a track is gone after that')
        return self
