"""BLUR: parts of images made unrecognisable."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Key


class Blur(Step):
    """Boxes of an image are made unrecognisable: faces, number plates. All other values stay.

    A record whose boxes are missing or cannot be used fails: no picture goes on that was not blurred.
    """

    type_name: ClassVar[str] = "BLUR"
    run_by: ClassVar[RunBy | None] = RunBy("opencv", "pipelines.runners.video.blur:BlurRunner", ("cv2",), extra="image")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    image_name: str | None = None
    """Key of the image; none: the only one."""
    bbox_name: str | None = None
    """Key of the boxes, fractions of the image; none: the only one."""
    output_name: Key | None = None
    """Key of the picture; none: that of the image, which it replaces."""
    method: Literal["GAUSSIAN", "PIXELATE", "FILL"] = "GAUSSIAN"
    """Blurred, in large squares, or in one colour. Only `FILL` leaves no detail that could be guessed."""
    strength: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Radius of the blur, or side of a square, as a fraction of the longer side of the box."""
    color: str | None = None
    """Colour of `FILL`; none: black."""
    grow: Annotated[float, Field(ge=0, le=10)] = 0.1
    """How much larger than its box a part is on each side, as a fraction of the box's width and height."""
    labels: tuple[str, ...] | None = None
    """Labels of the boxes that are blurred; none: all."""
