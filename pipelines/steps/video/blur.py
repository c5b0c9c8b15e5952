"""BLUR: parts of images made unrecognisable."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Key


class Blur(Step):
    """Makes the parts of an image in boxes, faces or number plates for instance, unrecognisable. Other values stay.

    A record whose boxes are missing or unusable fails, so that no image is passed on without being blurred.
    """

    type_name: ClassVar[str] = "BLUR"
    run_by: ClassVar[RunBy | None] = RunBy("opencv", "pipelines.runners.video.blur:BlurRunner", ("cv2",), extra="image")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    image_name: str | None = None
    """Key of the image; default: the record's only image."""
    bbox_name: str | None = None
    """Key of the box or list of boxes, in fractions of the image; default: the record's only one."""
    output_name: Key | None = None
    """Key of the blurred image; default: the image's key, so that it is replaced."""
    method: Literal["GAUSSIAN", "PIXELATE", "FILL"] = "GAUSSIAN"
    """How a part is hidden: blurred, shown in large squares, or filled with `color`. Only `FILL` leaves no detail."""
    strength: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Radius of the blur, or side of a square, as a fraction of the longer side of the box."""
    color: str | None = None
    """Colour of `FILL`; default: black."""
    grow: Annotated[float, Field(ge=0, le=10)] = 0.1
    """By how much the hidden part is larger than its box on each side, as a fraction of the box's width and height."""
    labels: tuple[str, ...] | None = None
    """Labels of the boxes that are blurred; default: all."""
