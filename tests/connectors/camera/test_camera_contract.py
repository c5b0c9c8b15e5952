"""Cameras keep the contract of sources: a folder of pictures, and an HTTP camera that is live."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import pytest
from httpcamera import HttpCamera
from numberedpictures import jpeg, number_in, picture

from connectors.camera.config import CameraSourceConfig
from connectors.camera.frame import Frame
from connectors.camera.source import CameraSource
from connectors.contract import LiveBus, PerishableContract, SourceBus, SourceContract
from connectors.message import Message
from connectors.records import Records
from connectors.source import Source

WIDTH = 512
NOT_THERE = {
    "keys": "the key is the camera's name",
    "headers": "a camera's pictures have those that the source makes",
    "timestamps": "the source tells the time",
    "tombstones": "a picture is never nothing",
    "empty": "a picture has pixels",
    "positions": "pictures are counted by the source",
    "restart": "no camera shows a picture again",
    "rewind": "no camera shows a picture again",
    "revoke": "a camera is not taken away",
    "backlog": "pictures are fetched and decoded while it is polled",
}


def payload(number: int, size: int = 0) -> bytes:
    """The value that stands for a gray picture of `WIDTH` by a height that makes about `size` pixels."""
    return (b"record-%08d" % number).ljust(WIDTH * max(8, math.ceil(size / WIDTH)), b".")


def file_of(message: Message, suffix: str) -> bytes:
    assert message.value is not None
    number = int(message.value[7:15])
    gray = picture(number, WIDTH, len(message.value) // WIDTH)[:, :, 0]
    done, encoded = cv2.imencode(suffix, gray)
    assert done
    return bytes(encoded.tobytes())


class Read(CameraSource):
    """The source, with the number in each picture turned back into the payload that stands for it."""

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        records = super().poll(max_records, max_bytes, timeout)
        return records.with_values([self._payload(frame.image.get_as("numpy")) for frame in records.values])

    @staticmethod
    def _payload(pixels: Any) -> bytes:
        return payload(number_in(pixels), pixels.shape[0] * pixels.shape[1])


class FolderBus(SourceBus):
    partitions = 2
    patience = 20.0
    quiet = 0.1
    held_at_most = 2**20

    def __init__(self, folder: Path) -> None:
        self._folders = [folder / f"camera{number}" for number in range(self.partitions)]
        for one in self._folders:
            one.mkdir()

    def payload(self, number: int, size: int = 0) -> bytes:
        return payload(number, size)

    def feed(self, messages: Sequence[Message]) -> None:
        for message in messages:
            folder = self._folders[message.partition or 0]
            count = len(list(folder.iterdir()))
            (folder / f"{count:06d}.png").write_bytes(file_of(message, ".png"))

    def end(self) -> None:
        """A folder ends after its last picture."""

    def source(self) -> CameraSource:
        for one in self._folders:
            if not any(one.iterdir()):
                (one / "none.png").write_bytes(b"a camera needs a picture, if only one that cannot be read")
        config = CameraSourceConfig.model_validate({"cameras": {one.name: str(one) for one in self._folders}})
        return Read(config)

    def held_bytes(self, source: Any) -> int:
        return int(source.held_bytes)


class TestFolderSource(SourceContract):
    cannot = NOT_THERE | {"live": "the pictures are those that were there when it was opened"}

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SourceBus:
        return FolderBus(tmp_path)


class HttpBus(SourceBus):
    patience = 20.0
    quiet = 0.3

    def __init__(self, camera: HttpCamera) -> None:
        self._camera = camera

    def payload(self, number: int, size: int = 0) -> bytes:
        return payload(number, size)

    def feed(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._camera.pictures.put(file_of(message, ".jpg"))

    def source(self) -> CameraSource:
        fields = {
            "url": self._camera.url,
            "policy": "fifo",
            "max_frames": 1000,
            "stall": "60s",
            "timeout": "60s",
            "format": "mpjpeg",
        }
        config = CameraSourceConfig.model_validate({"cameras": {"gate": fields}})
        return Read(config)


class LiveHttpBus(LiveBus):
    patience = 20.0
    quiet = 0.3

    def __init__(self, cameras: Sequence[HttpCamera]) -> None:
        self._cameras = cameras
        self.streams = len(cameras)

    def source(self) -> CameraSource:
        cameras = {str(number): camera.url for number, camera in enumerate(self._cameras)}
        each = {"stall": "60s", "timeout": "60s", "format": "mpjpeg"}
        return CameraSource(CameraSourceConfig.model_validate({"cameras": cameras, "each": each}))

    def show(self, source: Source, stream: int, number: int) -> None:
        before = self._told(source, stream)["pictures"]
        self._cameras[stream].pictures.put(jpeg(number))
        self._until(lambda: self._told(source, stream)["pictures"] > before)

    def number(self, value: object) -> int:
        assert isinstance(value, Frame)
        return number_in(value.image.get_as("numpy"))

    def drop(self, source: Source, stream: int) -> None:
        camera = self._cameras[stream]
        self._until(lambda: camera.watched)
        camera.drop()
        self._until(lambda: self._told(source, stream)["reason"] is not None)

    def connect(self, source: Source, stream: int) -> None:
        self._until(lambda: self._cameras[stream].watched)
        # A connection counts once a picture has come.
        self.show(source, stream, 999)

    def _told(self, source: Source, stream: int) -> Any:
        assert isinstance(source, CameraSource)
        return source.cameras()[str(stream)]

    def _until(self, happened: Callable[[], object]) -> None:
        deadline = time.monotonic() + self.patience
        while not happened():
            assert time.monotonic() < deadline, f"it did not happen within {self.patience} s"
            time.sleep(0.01)


class TestLiveSource(PerishableContract):
    @pytest.fixture
    def bus(self) -> Iterator[LiveBus]:
        with HttpCamera(fed=True) as first, HttpCamera(fed=True) as second:
            yield LiveHttpBus([first, second])


class TestHttpSource(SourceContract):
    cannot = NOT_THERE | {
        "partitions": "one camera",
        "end": "a live camera has no end",
        "held": "max_frames bounds it, and here it is set so that nothing is lost",
    }

    @pytest.fixture
    def bus(self) -> Iterator[SourceBus]:
        with HttpCamera(fed=True) as camera:
            yield HttpBus(camera)
