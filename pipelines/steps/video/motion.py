"""MOTION: drops frames without motion, or adds boxes of the areas that move."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key
from pipelines.steps.video.track import FrameRate, Seconds


class Motion(Step):
    """Drops the frames of a camera without motion, so that no model runs on them, or adds boxes of where motion is.

    Motion is a difference from the background, a moving average of the camera's frames over `memory` seconds: an
    object that stays becomes part of the background.
    """

    type_name: ClassVar[str] = "MOTION"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.video.motion:MotionRunner", ("cv2",), extra="image"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    image_name: str | None = None
    """Key of the image; default: the record's only image."""
    gate: bool = True
    """Whether frames without motion are dropped. The first frame of a camera is always kept."""
    output_name: Key | None = None
    """Key of the list of boxes around areas that move, in fractions of the image; default: no boxes."""
    threshold: Annotated[Int, Field(ge=1, le=255)] = 25
    """How much brighter or darker than the background a pixel has to be, of 255."""
    min_area: Annotated[float, Field(ge=0, le=1)] = 0.002
    """How much of the image has to move, and how much a single area needs for a box, as a fraction of the image."""
    hold: Seconds = 2.0
    """Seconds after the last motion for which frames are still kept."""
    memory: Annotated[float, Field(gt=0)] = 5.0
    """Time constant of the moving average that is the background, in seconds."""
    every: Annotated[float, Field(gt=0)] | None = None
    """Seconds since the last frame that was kept after which one is kept without motion; default: never."""
    width: Annotated[Int, Field(ge=16, le=4096)] = 320
    """Width in pixels of the small gray picture in which motion is looked for."""
    by_key: bool = False
    """Whether records of one partition that have different message keys come from different cameras; by default each
    partition of a topic is one camera."""
    frame_rate: FrameRate = 30.0
    """Frames a second that are assumed for records without a timestamp."""

    @model_validator(mode="after")
    def _check_purpose(self) -> Motion:
        if not self.gate and self.output_name is None:
            raise ValueError('MOTION without "gate" needs "outputName", a key for the boxes')
        return self
