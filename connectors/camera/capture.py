"""Runs FRAME_CAPTURE and VIDEO_CAPTURE with PyAV: each record is replaced by the next frame.

The core holds their configuration only, which names the classes here.
"""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections import deque
from threading import Condition
from typing import ClassVar, Final

from connectors.camera.address import Address, Kind, address
from connectors.camera.camera import Camera, CameraSettings
from connectors.camera.errors import VideoError
from connectors.camera.health import State
from connectors.camera.upright import Picture
from connectors.camera.video import Opening, Video, open_video
from pipelines.data.batch import Batch
from pipelines.data.columns import ObjectColumn
from pipelines.data.result import Result
from pipelines.errors import StreamerError
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps import FrameCapture, VideoCapture
from pipelines.values import Image, ValueType

_PATIENCE: Final = 20.0
"""Seconds that a record waits for a camera's frame."""


class CaptureError(StreamerError):
    """There is no frame: the camera or file cannot be opened or read, or the video is at its end."""


class CaptureRunner(Runner):
    """Replaces each record by the next frame: a batch of N rows takes N frames.

    The camera or file is opened by the first row, and again after it could not be read. A row without a frame fails
    with `CaptureError`.
    """

    keeps_rows: ClassVar[bool] = True
    pure: ClassVar[bool] = False
    # Most cameras can be opened once only.
    alone = True
    carried: ClassVar[bool] = True

    def __init__(self, output_key: str, skip_frames: int | None) -> None:
        self._output_key = output_key
        self._skip = skip_frames or 0

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

    @abstractmethod
    def frame(self) -> Image:
        """The next frame. Raises `CaptureError` if there is none."""


class FrameCaptureRunner(CaptureRunner):
    """Runs FRAME_CAPTURE: frames of a camera of this machine.

    The camera is read all the time, so that a record gets a current frame, and not one that has waited in a buffer.
    """

    def __init__(self, step: FrameCapture, context: OpenContext) -> None:
        super().__init__(step.output_key, step.skip_frames)
        self._step = step
        self._arrived = Condition()
        self._camera: Camera | None = None
        self._next = 0

    def frame(self) -> Image:
        """The next frame, or a later one if they come faster than records. `CaptureError` if none comes."""
        if self._camera is None:
            self._camera = Camera(self.described(), self.settings(), self._arrived)
            self._camera.start()
        camera = self._camera
        deadline = time.monotonic() + _PATIENCE
        with self._arrived:
            while True:
                while len(camera.waiting):
                    frame = camera.waiting.take()
                    if frame.facts.number >= self._next:
                        self._next = frame.facts.number + 1 + self._skip
                        return frame.image
                left = deadline - time.monotonic()
                if camera.health.state in (State.BACKOFF, State.FAILED) or left <= 0:
                    reason = camera.health.reason or f"none came within {_PATIENCE:.0f} s"
                    raise CaptureError(f"{self.described()} gives no frame: {reason}; it is opened anew all the time")
                self._arrived.wait(left)

    def settings(self) -> CameraSettings:
        """How the camera is opened: with the size that the step asks for, if it does."""
        step = self._step
        wanted = {"video_size": f"{step.width}x{step.height}"} if step.width and step.height else {}
        return CameraSettings(_device(step.camera), Opening(options=wanted), "latest", frozen=0.0)

    def described(self) -> str:
        """The camera by its number."""
        return f"camera {self._step.camera}"

    def close(self) -> None:
        if self._camera is not None:
            self._camera.stop()
            self._camera.join(1.0)
            self._camera = None


class VideoCaptureRunner(CaptureRunner):
    """Runs VIDEO_CAPTURE: frames of a file, from the beginning again if the step says so.

    Raises `StreamerError` when it opens without a path.
    """

    def __init__(self, step: VideoCapture, context: OpenContext) -> None:
        super().__init__(step.output_key, step.skip_frames)
        if not step.file_path:
            raise StreamerError('VIDEO_CAPTURE needs "filePath", the path of a video file')
        self._path = context.path(step.file_path)
        self._loop = step.loop
        self._ended = False
        self._begun = False
        """Whether a frame was given since opening: `skipFrames` applies from the second one on."""
        self._video: Video | None = None
        self._pictures: deque[Picture] = deque()

    def frame(self) -> Image:
        """The next frame. Raises `CaptureError` if there is none, and after the end of a video that is not repeated."""
        if self._ended:
            raise self._end()
        picture = self._picture()
        if picture is None:
            self.close()
            if not self._loop:
                self._ended = True
                raise self._end()
            picture = self._picture()
        if picture is None:
            self.close()
            raise CaptureError(f"the video {self._path} has no frames that libav can read")
        return Image(picture.frame)

    def close(self) -> None:
        if self._video is not None:
            self._video.close()
            self._video = None
        self._pictures.clear()

    def _picture(self) -> Picture | None:
        """The next picture that is not skipped; `None` at the end."""
        try:
            if self._video is None:
                self._video, self._begun = open_video(address(str(self._path))), False
            for _ in range(self._skip if self._begun else 0):
                if self._read(self._video) is None:
                    return None
            self._begun = True
            return self._read(self._video)
        except VideoError as error:
            self.close()
            problem = str(error)
        raise CaptureError(f"the video {self._path} cannot be opened or read: {problem}")

    def _read(self, video: Video) -> Picture | None:
        while not self._pictures:
            read = video.read()
            if read is None:
                return None
            self._pictures.extend(read)
        return self._pictures.popleft()

    def _end(self) -> CaptureError:
        return CaptureError(f'the video {self._path} is at its end; set "loop" to begin again')


def _device(number: int) -> Address:
    """The camera of this number, as the system calls it."""
    if sys.platform == "darwin":
        return Address(Kind.DEVICE, str(number), f"camera {number}", format="avfoundation")
    if sys.platform == "win32":
        raise CaptureError(
            "FRAME_CAPTURE reads cameras on Linux and macOS; on Windows a camera source has format: dshow"
        )
    return address(f"/dev/video{number}")
