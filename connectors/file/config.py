"""The fields of file connectors in a service file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from connectors.config import LocalPath, SinkConfig, SourceConfig
from connectors.file.framing import MAX_RECORD, Unfinished
from connectors.units import Size

Format = Literal["protodata", "jsonl", "lines", "images"]

CODECS: dict[str, str] = {"protodata": "protodata", "jsonl": "json", "lines": "text", "images": "image"}
"""The default codec of each format."""


_ENDINGS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".txt": "lines",
    ".csv": "lines",
}
"""The format of each text suffix."""


class FileSourceConfig(SourceConfig):
    """Records from files: one file, the files of a folder, or those that match a pattern like `data/*.jsonl`."""

    built_by: ClassVar[str] = "connectors.file.source:FileSource.of"

    type: Literal["file"] = "file"
    """The type of connector."""
    path: LocalPath
    """A file, a folder, or a pattern of files."""
    format: Format = "protodata"
    """The format of the file: `protodata` is messages with their length before them, `jsonl` a JSON document in each line, `lines` a text in each line, `images` a folder of image files, each of them a record."""  # noqa: E501
    codec: str | dict[str, Any] = ""
    """How payloads become values; by default the codec that fits the format."""
    pattern: str | None = None
    """Which files of a folder are read: `**/*.png`. By default all; with format images those with an image's suffix, in sub-folders too."""  # noqa: E501
    checkpoint: LocalPath | None = None
    """A small file with the acknowledged positions, from which the next run goes on; without it every run begins at the first record."""  # noqa: E501
    follow: bool = False
    """Wait for more records at the end of the files, rather than end."""
    unfinished: Unfinished | None = None
    """If a file ends inside a record: `wait` leaves it to the next run, when its writer has completed it; `read` takes a line as it is (half a message is an error); `fail` ends the service with an error. JSON that lacks nothing but its line feed is read in any case. By default `wait`; a line of text without a `checkpoint` is read. With `follow` the service waits."""  # noqa: E501
    max_record: Size = MAX_RECORD
    """The size of the largest record. At a larger one the service stops with an error."""

    @model_validator(mode="before")
    @classmethod
    def _codec_of_format(cls, fields: Any) -> Any:
        return _with_codec(fields)

    @property
    def outside_state_files(self) -> str | None:
        """Why state of steps cannot be saved: without a checkpoint the next run begins before it."""
        if self.checkpoint is not None:
            return None
        return (
            "without a checkpoint each run begins at the first record, which the saved state has seen; give the source "
            "a checkpoint: FILE, or write state: memory"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """A note if the suffix of its path is that of another format."""
        return _other_ending(self.path, self.format)

    @property
    def place(self) -> str:
        """Its path."""
        return str(self.path)


class FileSinkConfig(SinkConfig):
    """Results to a file, or each to a file of its own."""

    built_by: ClassVar[str] = "connectors.file.imagesink:sink_of"
    browsed_by: ClassVar[str | None] = "connectors.file.letters:LetterBrowser.of"

    type: Literal["file"] = "file"
    """The type of connector."""
    path: LocalPath
    """The file to append to, or, for images, the folder."""
    format: Format = "protodata"
    """The format of the file, as for a file source. With images each message is a file named by its key."""
    codec: str | dict[str, Any] = ""
    """How values become payloads; by default the codec that fits the format."""
    max_record: Size = MAX_RECORD
    """The size of the largest record; a larger one is refused."""
    dead_letters: bool = False
    """Whether messages are written with their key and headers, as JSON documents. A service sets it by itself for its `dead_letter` with `format: jsonl`."""  # noqa: E501

    @model_validator(mode="before")
    @classmethod
    def _codec_of_format(cls, fields: Any) -> Any:
        return _with_codec(fields)

    @model_validator(mode="after")
    def _documents_are_lines(self) -> Self:
        if self.dead_letters and self.format != "jsonl":
            raise ValueError("dead_letters are JSON documents; write format: jsonl")
        return self

    @property
    def exclusive(self) -> Mapping[str, str]:
        """Its file or folder, and that of the outbox."""
        return {**super().exclusive, "path": str(self.path)}

    @property
    def notes(self) -> tuple[str, ...]:
        """A note if the suffix of its path is that of another format."""
        return _other_ending(self.path, self.format)

    @property
    def place(self) -> str:
        """Its path."""
        return str(self.path)

    def for_dead_letters(self) -> Self:
        """The same sink; with `format: jsonl` each line is a dead letter with its key and headers."""
        return self.model_copy(update={"dead_letters": True}) if self.format == "jsonl" else self


def _other_ending(path: Path, chosen: Format) -> tuple[str, ...]:
    """A note if the suffix of a path is that of text, and the format is the default, messages with their length."""
    meant = _ENDINGS.get(path.suffix.lower())
    if meant is None or chosen != "protodata":
        return ()
    return (f"{path.name} holds messages with their length before each; for lines write format: {meant}",)


def _with_codec(fields: Any) -> Any:
    if not isinstance(fields, dict) or "codec" in fields:
        return fields
    return fields | {"codec": CODECS.get(str(fields.get("format", "protodata")), "protodata")}
