"""`ImageSink`: writes each message to a file of its own in a folder."""

from __future__ import annotations

import os
import string
from pathlib import Path

from connectors.file.checkpoint import sync_folder
from connectors.file.config import FileSinkConfig
from connectors.file.sink import NO_ROOM, FileSink
from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from pipelines.errors import ConnectorError
from pipelines.values.imageheader import sniff

PLAIN = frozenset((string.ascii_letters + string.digits + "-_.,=+@ ()[]{}~#").encode())
"""Bytes that are kept in a file name; others are written as `%` and two hexadecimal digits."""
SUFFIXES = {"JPEG": ".jpg", "TIFF": ".tif"}
"""The suffixes of image files that are not the names of their formats."""


def sink_of(config: FileSinkConfig) -> Sink:
    """The sink of the format that is configured."""
    if config.format == "images":
        return ImageSink(config.path, name=config.label)
    letters = config.dead_letters
    return FileSink(config.path, config.format, max_record=config.max_record, letters=letters, name=config.label)


class ImageSink(Sink):
    """Writes each payload to the file that its key names, below a folder; a later one with the same key replaces it.

    A key may name sub-folders with `/`, never a path outside; a name without a suffix gets that of its content. Files
    appear complete, under their names, at the next `barrier`, which also syncs them to the disk.
    """

    def __init__(self, folder: str | Path, *, name: str = "file") -> None:
        self.name = name
        self._folder = Path(folder)
        self._open = False
        self._parts: dict[Path, Path] = {}
        self._unconfirmed: list[Ints] = []
        self._confirmed: list[Ints] = []

    def open(self) -> None:
        """Create the folder. `ConnectorError` if that fails."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConnectorError(f"{self._folder} cannot be written: {error}") from error
        self._open = True

    def send(self, messages: Messages, deadline: float) -> Refused:
        """As `Sink.send`. Messages without a key or a payload, and names that the system does not accept, are
        refused."""
        if not self._open:
            raise ConnectorError(f"{self.name} is not open")
        refused: dict[int, ConnectorError] = {}
        for index, value in enumerate(messages.values):
            error = self._write(None if messages.keys is None else messages.keys[index], value)
            if error is None:
                self._unconfirmed.append(messages.parents(index))
            else:
                refused[index] = error
        return refused

    def barrier(self, deadline: float) -> Lost:
        """As `Sink.barrier`. `ConnectorError`, not retriable, if the disk failed."""
        try:
            for part in self._parts.values():
                _sync(part)
            for path, part in self._parts.items():
                part.replace(path)
            for folder in {path.parent for path in self._parts}:
                sync_folder(folder)
        except OSError as error:
            raise ConnectorError(f"{self._folder}: files could not be put in place: {error}") from error
        self._parts.clear()
        self._confirmed.extend(self._unconfirmed)
        self._unconfirmed = []
        return {}

    def confirmed(self) -> list[Ints]:
        """As `Sink.confirmed`."""
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def close(self) -> None:
        """Remove the files of messages since the last barrier."""
        self._open = False
        for part in self._parts.values():
            part.unlink(missing_ok=True)
        self._parts.clear()
        self._unconfirmed = []

    def _write(self, key: bytes | None, value: bytes | None) -> ConnectorError | None:
        if not key or value is None:
            missing = "key to name its file" if value is not None else "payload"
            return ConnectorError(f"{self._folder}: a message without a {missing} cannot be written")
        path = self._folder / file_name(key, value)
        part = path.with_name(f".{path.name}.part")
        try:
            # The name of a file is reserved before the file appears.
            file = next((parent for parent in path.parents if parent in self._parts), None)
            if file is not None or path.is_dir():
                return ConnectorError(f"{file or path} cannot be both a file and a folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(value)
        except OSError as error:
            return ConnectorError(f"{path} cannot be written: {error}", retriable=error.errno in NO_ROOM)
        self._parts[path] = part
        return None


def file_name(key: bytes, content: bytes = b"") -> str:
    """The relative name for a key: never one that leads out of its folder.

    Bytes with a special meaning in file systems are written as `%XX`, `%` itself and a part's leading dot too; an empty
    part becomes `%`: so no two keys have the same name. A name without a suffix gets that of the content, if that is an
    image; only a key that ends with this suffix then has the same name.
    """
    name = "/".join(_part(part) for part in key.split(b"/"))
    if "." in name.rsplit("/", 1)[-1]:
        return name
    image_format = sniff(content)
    return name if image_format is None else name + SUFFIXES.get(image_format, f".{image_format.lower()}")


def _part(part: bytes) -> str:
    if not part:
        return "%"
    return "".join(
        chr(byte) if byte in PLAIN and not (index == 0 and byte == 0x2E) else f"%{byte:02X}"
        for index, byte in enumerate(part)
    )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
