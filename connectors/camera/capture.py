"""Runs FRAME_CAPTURE and VIDEO_CAPTURE with OpenCV: each record is replaced by the next frame.

The core holds their configuration only; entry points of our own distribution (group `streamer.runners`) name the
factories here.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from pipelines.data.batch import Batch
from pipelines.data.columns import ObjectColumn
from pipelines.data.result import Result
from pipelines.errors import StreamerError
from pipelines.plugins.registry import RunnerFactory
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps import FrameCapture, VideoCapture
from pipelines.values import Image, ValueType

FRAME_CAPTURE = RunnerFactory(
    "FRAME_CAPTURE", "opencv", "connectors.camera.capture:FrameCaptureRunner", ("cv2",), "image"
)
VIDEO_CAPTURE = RunnerFactory(
    "VIDEO_CAPTURE", "opencv", "connectors.camera.capture:VideoCaptureRunner", ("cv2",), "image"
)


class CaptureError(StreamerError):
    """There is no frame: the camera or file cannot be opened or read, or the video is at its end."""


class CaptureRunner(Runner):
    """Replaces each record by the next frame: a batch of N rows takes N frames.

    The camera or file is opened by the first row, and again after it could not be read. A row without a frame fails
    with `CaptureError`.
    """

    keeps_rows: ClassVar[bool] = True
    pure: ClassVar[bool] = False

    def __init__(self, output_key: str, skip_frames: int | None) -> None:
        self._output_key = output_key
        self._skip = skip_frames or 0
        self._capture: Any = None
        self._begun = False
        """Whether a frame was read since opening, so that those to skip are due."""

    @property
    def reads(self) -> frozenset[str] | None:
        return frozenset()

    def run_batch(self, batch: Batch) -> Result:
        frames: list[Image] = []
        positions: list[int] = []
        failed: dict[int, Exception] = {}
        for position in range(batch.size):
            try:
                frames.append(self.frame())
            except CaptureError as error:
                failed.update(dict.fromkeys(batch.parents(position).tolist(), error))
                continue
            positions.append(position)
        column = ObjectColumn(frames, ValueType.IMAGE)
        kept = batch if not failed else batch.take(positions)
        return Result(kept.select({self._output_key: column}), failed)

    def close(self) -> None:
        if self._capture is not None:
            self._capture.release()
            self._capture = None

    def frame(self) -> Image:
        """The next frame. `CaptureError` if there is none."""
        read = self._read()
        if read is None:
            self.close()
            read = self._after_the_end()
        return Image(read)

    @abstractmethod
    def opened(self) -> Any:
        """A new `cv2.VideoCapture`, which may turn out not to be open."""

    @abstractmethod
    def described(self) -> str:
        """What is captured, for messages."""

    @abstractmethod
    def _after_the_end(self) -> Any:
        """The frame after the last. `CaptureError` if there is none."""

    def _read(self) -> Any:
        if self._capture is None:
            self._capture, self._begun = self._open(), False
        for _ in range(self._skip if self._begun else 0):
            if not self._capture.grab():
                return None
        there, read = self._capture.read()
        self._begun = True
        return read if there else None

    def _open(self) -> Any:
        capture = self.opened()
        if not capture.isOpened():
            capture.release()
            raise CaptureError(f"{self.described()} cannot be opened; {self._advice()}")
        return capture

    def _advice(self) -> str:
        return "is it there, and may this process read it?"


class FrameCaptureRunner(CaptureRunner):
    """Runs FRAME_CAPTURE: frames of a camera of this machine."""

    def __init__(self, step: FrameCapture, context: OpenContext) -> None:
        super().__init__(step.output_key, step.skip_frames)
        self._step = step

    def opened(self) -> Any:
        """The camera, asked for the size that is wanted, if one is."""
        import cv2

        capture = cv2.VideoCapture(self._step.camera)
        if self._step.width:
            capture.set(cv2.CAP_PROP_FRAME_WIDTH, self._step.width)
        if self._step.height:
            capture.set(cv2.CAP_PROP_FRAME_HEIGHT, self._step.height)
        return capture

    def described(self) -> str:
        """The camera by its number."""
        return f"camera {self._step.camera}"

    def _after_the_end(self) -> Any:
        raise CaptureError(f"{self.described()} gives no frame; it is opened anew for the next record")


class VideoCaptureRunner(CaptureRunner):
    """Runs VIDEO_CAPTURE: frames of a file, from the beginning again if the step says so.

    Raises `StreamerError` when it opens without a path.
    """

    def __init__(self, step: VideoCapture, context: OpenContext) -> None:
        if not step.file_path:
            raise StreamerError('VIDEO_CAPTURE needs "filePath", the path of a video file')
        super().__init__(step.output_key, step.skip_frames)
        self._path = context.path(step.file_path)
        self._loop = step.loop
        self._ended = False

    def opened(self) -> Any:
        """The file at its first frame."""
        import cv2

        return cv2.VideoCapture(str(self._path))

    def described(self) -> str:
        """The path."""
        return f"the video {self._path}"

    def frame(self) -> Image:
        """The next frame. `CaptureError` if there is none, and after the end of a video that is not to be repeated."""
        if self._ended:
            raise self._end()
        return super().frame()

    def _after_the_end(self) -> Any:
        if not self._loop:
            self._ended = True
            raise self._end()
        read = self._read()
        if read is None:
            self.close()
            raise CaptureError(f"{self.described()} has no frames that OpenCV can read")
        return read

    def _end(self) -> CaptureError:
        return CaptureError(f'{self.described()} is at its end; set "loop" to begin again')

    def _advice(self) -> str:
        if not self._path.exists():
            return "there is no such file"
        return "OpenCV knows no such format"
