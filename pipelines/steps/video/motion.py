"""MOTION: drops frames without motion, or adds boxes of the areas that move."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key
from pipelines.steps.video.track import FrameRate, Seconds


class Motion(Step):
    """Frames of a camera without motion are dropped, so that no model runs for them; or boxes tell where motion is.

    Motion is a difference to the background, a moving average of the camera's frames over `memory` seconds: an
    object that stays becomes part of it.
    """

    type_name: ClassVar[str] = "MOTION"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.video.motion:MotionRunner", ("cv2",), extra="image"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    image_name: str | None = None
    """Key of the image; none: the only one."""
    gate: bool = True
    """Whether frames without motion are dropped. The first frame of a camera always passes."""
    output_name: Key | None = None
    """Key of the boxes of areas that move, as fractions of the image; none: no boxes."""
    threshold: Annotated[Int, Field(ge=1, le=255)] = 25
    """How much brighter or darker than the background a pixel has to be, of 255."""
    min_area: Annotated[float, Field(ge=0, le=1)] = 0.002
    """How much of the picture has to move, and the smallest area that gets a box, as a fraction of it."""
    hold: Seconds = 2.0
    """Seconds for which frames still pass after the last motion."""
    memory: Annotated[float, Field(gt=0)] = 5.0
    """Time constant of the moving average that is the background, in seconds."""
    every: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a frame passes without motion; none: never."""
    width: Annotated[Int, Field(ge=16, le=4096)] = 320
    """Pixels across of the small gray picture in which motion is looked for."""
    by_key: bool = False
    """Whether each key of the records is a camera of its own; by default each topic is, and each partition of it."""
    frame_rate: FrameRate = 30.0
    """Frames a second of records that have no timestamp."""

    @model_validator(mode="after")
    def _check_purpose(self) -> Motion:
        if not self.gate and self.output_name is None:
            raise ValueError('MOTION without "gate" needs "outputName", a key for the boxes')
        return self
