"""The sinks that show pictures keep the contract, as far as it applies: their output cannot be read back as
messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from connectors.camera.footage import Footage
from connectors.contract import SinkBus, SinkContract
from connectors.message import Message
from connectors.sink import Sink
from connectors.view.config import ClipSinkConfig, VideoSinkConfig, ViewSinkConfig
from pipelines import Data
from tests.connectors.view.conftest import result

CANNOT = {
    "read": "pictures are drawn, encoded and replaced: messages cannot be read back",
    "bytes": "results are taken with their pictures, as objects",
    "waits": "there is no peer that messages wait for",
    "vanish": "shown pictures are not stored, and a file that is open can be deleted without harm",
    "lose": "dropped pictures are counted, and no message is lost",
    "cut": "there is no peer",
}


class ShownBus(SinkBus):
    patience = 60.0

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def payload(self, number: int, size: int = 0) -> Any:
        return result("gate", number % 200, wide=32)

    def read_back(self, count: int, topic: str | None = None) -> Sequence[Message]:  # type: ignore[override]
        raise NotImplementedError

    def too_large(self) -> Message:
        return Message(Data({"no": "picture"}))


class ViewBus(ShownBus):
    def sink(self) -> Sink:
        return ViewSinkConfig(listen="127.0.0.1:0").build()


class VideoBus(ShownBus):
    def sink(self) -> Sink:
        return VideoSinkConfig(path=self.folder / "{camera}.mp4", options={"preset": "ultrafast"}).build()


class Camera:
    """A source that has packets of no camera any more."""

    name = "cameras"

    def keep_footage(self, seconds: float, max_bytes: int) -> Mapping[str, Footage]:
        kept = Footage(live=False)
        kept.end()
        return {"gate": kept}


class ClipBus(ShownBus):
    def sink(self) -> Sink:
        sink = ClipSinkConfig(directory=self.folder / "clips").build()
        sink.attach([Camera()])  # type: ignore[list-item]
        return sink


class TestViewSink(SinkContract):
    cannot: ClassVar[Mapping[str, str]] = CANNOT

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SinkBus:
        return ViewBus(tmp_path)


class TestVideoSink(SinkContract):
    cannot: ClassVar[Mapping[str, str]] = CANNOT

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SinkBus:
        return VideoBus(tmp_path)


class TestClipSink(SinkContract):
    cannot: ClassVar[Mapping[str, str]] = CANNOT

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SinkBus:
        return ClipBus(tmp_path)
