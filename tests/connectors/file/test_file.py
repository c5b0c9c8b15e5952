"""File connectors keep the connector contract, in all their formats."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from connectors.contract import (
    LoopBus,
    RoundTripContract,
    SinkBus,
    SinkContract,
    SourceBus,
    SourceContract,
)
from connectors.file import FRAMINGS, FileSink, FileSource, ImageSink
from connectors.file.recordbuffer import CHUNK
from connectors.message import Message
from connectors.sink import Sink
from connectors.source import Source

NO_METADATA = {
    "keys": "records of a file have none",
    "headers": "records of a file have none",
    "timestamps": "records of a file have none",
    "tombstones": "a record of a file is there or it is not",
    "revoke": "files are not shared between processes",
}
NO_EMPTY_JSON = {"empty": "an empty text is not a JSON document"}
ONE_FILE_EACH = {
    "binary_keys": "a key is a file's name",
    "same_key": "a file with the same name takes the place of the first",
    "headers": "files have none",
    "timestamps": "a file's time is when it was written",
    "tombstones": "a file is there or it is not",
    "revoke": "files are not shared between processes",
    "partitions": "a folder is one lane",
    "held": "files are read when they are delivered",
}


class Files:
    """Payloads of a format, in files named by their partition."""

    patience = 10.0
    quiet = 0.15
    partitions = 2
    held_at_most = 2 * CHUNK

    def __init__(self, folder: Path, format: str, follow: bool) -> None:
        self.folder = folder
        self.format = format
        self.follow = follow
        self.data = folder / "data"
        self.data.mkdir()
        for partition in range(self.partitions):
            (self.data / str(partition)).touch()

    def payload(self, number: int, size: int = 0) -> bytes:
        if self.format == "jsonl":
            return b'{"n": "%08d", "pad": "%b"}' % (number, b"." * size)
        return (b"record-%08d" % number).ljust(size, b".")

    def key(self, number: int) -> bytes | None:
        return None


class FileBus(Files, SourceBus):
    def feed(self, messages: Sequence[Message]) -> None:
        for message in messages:
            with (self.data / str(message.partition)).open("ab") as file:
                file.write(FRAMINGS[self.format].frame(message.value))

    def source(self) -> Source:
        return FileSource(self.data, self.format, checkpoint=self.folder / "checkpoint", follow=self.follow)

    def end(self) -> None:
        """It ends where the files do."""

    def held_bytes(self, source: Source) -> int:
        assert isinstance(source, FileSource)
        return source.held_bytes


class TestFollowedFiles(SourceContract):
    cannot = NO_METADATA | {"end": "what is followed does not end"}

    @pytest.fixture(params=["protodata", "lines"])
    def bus(self, tmp_path: Path, request: pytest.FixtureRequest) -> SourceBus:
        return FileBus(tmp_path, request.param, follow=True)


class TestFollowedJsonLines(SourceContract):
    cannot = NO_METADATA | NO_EMPTY_JSON | {"end": "what is followed does not end"}

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SourceBus:
        return FileBus(tmp_path, "jsonl", follow=True)


class TestFilesThatEnd(SourceContract):
    cannot = NO_METADATA | {"live": "it ends where the files end"}

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SourceBus:
        return FileBus(tmp_path, "protodata", follow=False)


class ImageBus(SourceBus):
    patience = 10.0
    quiet = 0.4

    def __init__(self, folder: Path, follow: bool) -> None:
        self.folder = folder
        self.follow = follow
        self.data = folder / "frames"
        self.data.mkdir()

    def key(self, number: int) -> bytes:
        return b"camera/%08d.png" % number

    def feed(self, messages: Sequence[Message]) -> None:
        for message in messages:
            assert message.key is not None
            path = self.data / message.key.decode()
            path.parent.mkdir(exist_ok=True)
            part = path.with_name(".part")
            part.write_bytes(message.value)
            part.rename(path)

    def source(self) -> Source:
        return FileSource(self.data, "images", checkpoint=self.folder / "checkpoint", follow=self.follow)

    def end(self) -> None:
        """It ends after the last file."""


class TestImages(SourceContract):
    cannot = ONE_FILE_EACH | {"live": "it ends after the last file"}

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SourceBus:
        bus = ImageBus(tmp_path, follow=False)
        bus.quiet = 0.1
        return bus


class TestFollowedImages(SourceContract):
    cannot = ONE_FILE_EACH | {"end": "what is followed does not end"}

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SourceBus:
        return ImageBus(tmp_path, follow=True)


class FileSinkBus(Files, SinkBus):
    def sink(self) -> Sink:
        return FileSink(self.data / "out", self.format)

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        content = (self.data / "out").read_bytes()
        found = FRAMINGS[self.format].find(content, len(content))
        return [Message(content[start:stop]) for start, stop in zip(found.starts, found.stops, strict=True)]

    def vanish(self) -> None:
        (self.data / "out").unlink()

    def restore(self) -> None:
        (self.data / "out").touch()

    def too_large(self) -> Message:
        return Message(None if self.format == "protodata" else b"two\nlines")


NO_PEER = {
    "topics": "a file sink writes one file",
    "cut": "a file has no peer",
    "lose": "a file does not lose written messages",
}


class TestFileSink(SinkContract):
    cannot = NO_METADATA | NO_PEER | {"override": "a file keeps every message"}

    @pytest.fixture(params=["protodata", "lines"])
    def bus(self, tmp_path: Path, request: pytest.FixtureRequest) -> SinkBus:
        return FileSinkBus(tmp_path, request.param, follow=False)


class TestJsonLinesSink(SinkContract):
    cannot = NO_METADATA | NO_PEER | NO_EMPTY_JSON | {"override": "a file keeps every message"}

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SinkBus:
        return FileSinkBus(tmp_path, "jsonl", follow=False)


class ImageSinkBus(SinkBus):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def key(self, number: int) -> bytes:
        return b"camera/%08d.png" % number

    def sink(self) -> Sink:
        return ImageSink(self.folder)

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        return [
            Message(path.read_bytes(), path.relative_to(self.folder).as_posix().encode())
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and not path.name.startswith(".")
        ]

    def vanish(self) -> None:
        shutil.rmtree(self.folder)

    def restore(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def too_large(self) -> Message:
        return Message(b"a payload", b"n" * 300)


class TestImageSink(SinkContract):
    cannot = ONE_FILE_EACH | NO_PEER

    @pytest.fixture
    def bus(self, tmp_path: Path) -> SinkBus:
        return ImageSinkBus(tmp_path / "out")


class FileLoop(Files, LoopBus):
    def sink(self) -> Sink:
        return FileSink(self.data / "0", self.format)

    def source(self) -> Source:
        return FileSource(self.data / "0", self.format, follow=True)


class TestFileRoundTrip(RoundTripContract):
    cannot = NO_METADATA

    @pytest.fixture(params=["protodata", "jsonl", "lines"])
    def bus(self, tmp_path: Path, request: pytest.FixtureRequest) -> LoopBus:
        return FileLoop(tmp_path, request.param, follow=True)


class ImageLoop(ImageBus, LoopBus):
    def sink(self) -> Sink:
        return ImageSink(self.data)


class TestImageRoundTrip(RoundTripContract):
    cannot = ONE_FILE_EACH

    @pytest.fixture
    def bus(self, tmp_path: Path) -> LoopBus:
        return ImageLoop(tmp_path, follow=True)
