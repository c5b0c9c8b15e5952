"""Reads a source of cameras in a test, and checks that no picture disappears."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from numberedpictures import number_in
from waiting import PATIENCE

from connectors.camera.config import CameraSourceConfig
from connectors.camera.source import CameraSource
from connectors.contract import Reader, Received
from connectors.source import SourceDown, SourceEnded


class CameraReader(Reader):
    """A `Reader` of cameras; `received` are all records so far."""

    def __init__(self, source: CameraSource) -> None:
        super().__init__(source, PATIENCE)
        self.cameras = source
        self.received: list[Received] = []

    def poll(self, max_records: int = 1000, max_bytes: int = 2**30, timeout: float = 0.1) -> list[Received]:
        """One poll, checked."""
        found = super().poll(max_records, max_bytes, timeout)
        self.received += found
        return found

    def of(self, camera: str) -> list[Received]:
        """The records of this camera."""
        return [one for one in self.received if one.lane.partition == camera]

    def state(self, camera: str) -> str:
        """What the camera does."""
        return str(self.cameras.cameras()[camera]["state"])

    def reason(self, camera: str) -> str:
        """Why the camera is not live."""
        return str(self.cameras.cameras()[camera]["reason"])

    @property
    def downs(self) -> list[SourceDown]:
        """Every time that the source was down, or up again."""
        return [event for event in self.seen if isinstance(event, SourceDown)]

    def to_the_end(self) -> None:
        """Poll until the source has ended."""
        self.wait(lambda: any(isinstance(event, SourceEnded) for event in self.seen), "the end")

    def see(self, camera: str, count: int = 3) -> list[Received]:
        """The next records of this camera, as many."""
        before = len(self.of(camera))
        self.wait(lambda: len(self.of(camera)) >= before + count, f"{count} pictures of {camera}")
        return self.of(camera)[before : before + count]

    def wait(self, happened: Callable[[], bool], what: str = "it") -> None:
        """Poll until it happened."""
        deadline = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < deadline, f"{what} did not come: {self.cameras.cameras()}"
            self.poll()


def shown(one: Received) -> int:
    """The number that the picture shows."""
    return number_in(one.message.value.image.get_as("numpy"))


@contextmanager
def reading(cameras: Mapping[str, Any], **each: Any) -> Iterator[CameraReader]:
    """A reader of these cameras. At the end every picture must have been delivered, or dropped with a cause."""
    source = CameraSource(CameraSourceConfig.model_validate({"cameras": cameras, "each": each}))
    with CameraReader(source) as reader:
        yield reader
    for name, told in source.cameras().items():
        corrupt = told["drops"].get("corrupt", 0)
        drops = sum(told["drops"].values()) - corrupt
        assert told["pictures"] in (told["delivered"] + drops, told["delivered"] + drops + 1), (
            f"{name}: pictures disappeared: {told}"
        )
