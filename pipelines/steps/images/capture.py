"""FRAME_CAPTURE and VIDEO_CAPTURE: a frame for each record. `connectors.camera.capture` runs them."""

from __future__ import annotations

import os
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Int, Key


def _path_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class FrameCapture(Step):
    """Replaces the values of each record by the next frame of a camera of this machine."""

    type_name: ClassVar[str] = "FRAME_CAPTURE"
    run_by: ClassVar[RunBy | None] = RunBy(
        "pyav", "connectors.camera.capture:FrameCaptureRunner", ("av",), extra="camera"
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    camera: Annotated[Int, Field(ge=0)] = 0
    """Number of the camera, counted from 0."""
    width: Annotated[Int, Field(ge=0)] = 640
    """Width that the camera is asked for, in pixels; it may give another. With 0 the camera chooses the size."""
    height: Annotated[Int, Field(ge=0)] = 480
    """Height that the camera is asked for, in pixels; it may give another. With 0 the camera chooses the size."""
    output_key: Key = "image"
    """Key of the frame, the only key of the result."""
    skip_frames: Annotated[Annotated[Int, Field(ge=0)] | None, EXTENSION] = None
    """How many frames to skip after each that is taken; Konduit Serving ignores this key."""

    @property
    def data_files(self) -> tuple[str, ...]:
        """The camera, by the name that it has on Linux."""
        return (f"/dev/video{self.camera}",)


class VideoCapture(Step):
    """Replaces the values of each record by the next frame of a video file."""

    type_name: ClassVar[str] = "VIDEO_CAPTURE"
    run_by: ClassVar[RunBy | None] = RunBy(
        "pyav", "connectors.camera.capture:VideoCaptureRunner", ("av",), extra="camera"
    )
    file_fields: ClassVar[tuple[str, ...]] = ("file_path",)
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    file_path: Annotated[str | None, BeforeValidator(_path_text)] = None
    """Path of the video, a `file:` URI allowed, relative to the definition's folder."""
    output_key: Key = "image"
    """Key of the frame, the only key of the result."""
    loop: bool = True
    """Whether the video begins again at its end; otherwise records that come after the last frame fail."""
    skip_frames: Annotated[Int, Field(ge=0)] | None = None
    """How many frames to skip after each that is taken: with 1 every second frame is taken."""

    @property
    def data_files(self) -> tuple[str, ...]:
        """The video file."""
        return self.files
