"""FRAME_CAPTURE and VIDEO_CAPTURE: a frame for each record. `connectors.camera.capture` runs them."""

from __future__ import annotations

import os
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from pipelines.steps.base import Step
from pipelines.steps.config import EXTENSION, Int, Key


def _path_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class FrameCapture(Step):
    """Each record is replaced by the next frame of a camera."""

    type_name: ClassVar[str] = "FRAME_CAPTURE"
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    camera: Annotated[Int, Field(ge=0)] = 0
    """Number of the camera, counted from 0."""
    width: Annotated[Int, Field(ge=0)] = 640
    """Columns that the camera is asked for; it may give others. Without one of the two it gives its own size."""
    height: Annotated[Int, Field(ge=0)] = 480
    """Rows that the camera is asked for; it may give others. Without one of the two it gives its own size."""
    output_key: Key = "image"
    """Key of the frame, the only one of the result."""
    skip_frames: Annotated[Annotated[Int, Field(ge=0)] | None, EXTENSION] = None
    """How many frames to drop after each; Konduit reads this key and ignores it."""

    @property
    def data_files(self) -> tuple[str, ...]:
        """The camera, by the name that it has on Linux."""
        return (f"/dev/video{self.camera}",)


class VideoCapture(Step):
    """Each record is replaced by the next frame of a video file."""

    type_name: ClassVar[str] = "VIDEO_CAPTURE"
    file_fields: ClassVar[tuple[str, ...]] = ("file_path",)
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    file_path: Annotated[str | None, BeforeValidator(_path_text)] = None
    """Path of the video, a `file:` URI allowed, relative to the definition's folder."""
    output_key: Key = "image"
    """Key of the frame, the only one of the result."""
    loop: bool = True
    """Whether to begin again at the end; else a record that comes after the last frame fails."""
    skip_frames: Annotated[Int, Field(ge=0)] | None = None
    """How many frames to drop after each: with 1 every second frame is taken."""

    @property
    def data_files(self) -> tuple[str, ...]:
        """The video."""
        return self.files
