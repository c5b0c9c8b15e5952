"""Reading a folder in which each file is a record."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from connectors.file.checkpoint import Place
from connectors.file.reading import Delivered, Reading, Rows
from connectors.records import Ints
from pipelines.errors import ConnectorError
from pipelines.values.imageheader import SUFFIXES

RESCAN = 0.2
"""Seconds between two searches for new files."""


class ImageFolder(Reading):
    """The files of a folder, in the order of their names. Keys are names relative to it, positions count files.

    Without a `pattern` it takes files with an image's suffix, in sub-folders too; hidden files never. `follow`: new
    files are delivered if their names sort after those that were delivered before; write them elsewhere or under a
    hidden name and rename them, as a file is read as soon as it exists.
    """

    def __init__(
        self, folder: Path, topic: str, pattern: str | None, start: Place, *, max_record: int, follow: bool
    ) -> None:
        super().__init__(topic, start)
        self._folder = folder
        self._pattern = pattern
        self._max_record = max_record
        self._follow = follow
        self._given: int
        self.rewind()

    def read(self, max_records: int, max_bytes: int) -> Rows:
        """As `Reading.read`. `ConnectorError` for a file that cannot be read or is larger than `max_record`."""
        if self._given == len(self._names):
            self._look_for_more()
        names: list[str] = []
        values: list[bytes] = []
        size = 0
        while self._given < len(self._names) and len(names) < max_records and size < max_bytes:
            name = self._names[self._given]
            try:
                value = self._content(name)
            except ConnectorError:
                if names:
                    break
                raise
            names.append(name)
            values.append(value)
            size += len(value)
            self._given += 1
        positions = np.arange(self._number, self._number + len(names), dtype=np.int64)
        if names:
            self._number += len(names)
            self._last = names[-1]
            self._delivered.append(Delivered(positions, names))
        self.exhausted = not self._follow and self._given == len(self._names)
        return Rows(values, positions, [name.encode() for name in names], self._timestamps_of(names))

    def rewind(self) -> None:
        """As `Reading.rewind`."""
        self._delivered.clear()
        self.exhausted = False
        self._number = self.acknowledged.records
        self._last = self.acknowledged.name
        self._names: list[str] = []
        self._given = 0
        self._looked = float("-inf")

    def close(self) -> None:
        """Does nothing: no file is open between two reads."""

    def _place(self, records: int, mark: Any, origin: Any) -> Place:
        return Place(records, name=str(mark))

    def _look_for_more(self) -> None:
        if time.monotonic() - self._looked < RESCAN:
            return
        self._looked = time.monotonic()
        names = [
            path.relative_to(self._folder).as_posix()
            for path in self._folder.glob(self._pattern or "**/*")
            if (self._pattern or path.suffix.lower() in SUFFIXES) and path.is_file()
        ]
        self._names = sorted(name for name in names if name > self._last and not _hidden(name))
        self._given = 0

    def _content(self, name: str) -> bytes:
        path = self._folder / name
        try:
            size = path.stat().st_size
            if size > self._max_record:
                raise ConnectorError(f"{path} has {size} bytes, more than max_record ({self._max_record})")
            return path.read_bytes()
        except OSError as error:
            raise ConnectorError(f"{path} cannot be read: {error}") from error

    def _timestamps_of(self, names: list[str]) -> Callable[[], Ints]:
        return lambda: np.array([_modified(self._folder / name) for name in names], np.int64)


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return -1
