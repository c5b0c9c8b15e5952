"""`Checkpoint`: the acknowledged positions of files, kept in a small file."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from connectors.file.identity import FileId, Inode, OpenFile, inode_of
from connectors.source import CheckpointNote
from pipelines.errors import ConnectorError

INTERVAL = 0.5
"""Seconds between two writes of the file, unless a caller waits for one."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of the next record: the number of finished records, and the byte at which it begins and in which file,
    or the last finished file of a folder."""

    records: int = 0
    offset: int = 0
    name: str = ""
    file: FileId | None = None
    """The file in which `offset` counts bytes; `None` in checkpoints of former versions."""

    def is_in(self, path: Path) -> bool:
        """Whether this is its file. Raises `OSError` if it cannot be read."""
        if self.file is None or not self.file.same_inode(path.stat()):
            return False
        file = OpenFile(path)
        try:
            return self.file.fits(file, self.offset)
        finally:
            file.close()


class Checkpoint:
    """Places by file name, kept in `path`, or only in memory if that is `None`.

    The file is replaced as a whole, so that a crash leaves the old one or the new one.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._places: dict[str, Place] = {}
        self._notes: dict[str, CheckpointNote] = {}
        self._by_inode: dict[Inode, Place] = {}
        self._dirty = False
        self._written = 0.0

    def load(self) -> None:
        """Read the file if there is one. `ConnectorError` if it is not a checkpoint."""
        self._places, self._notes, self._by_inode = {}, {}, {}
        if self._path is None or not self._path.exists():
            return
        try:
            document = json.loads(self._path.read_bytes())
            if document["version"] != 1:
                raise ValueError(f"version {document['version']}")
            self._places = {name: _place(fields) for name, fields in document["files"].items()}
            self._notes = {name: _note(fields) for name, fields in document.get("states", {}).items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConnectorError(
                f"{self._path} is not a checkpoint of a file source ({error}); delete it to begin at the first record"
            ) from error
        for place in sorted(self._places.values(), key=lambda place: place.offset):
            self._note_inode(place)

    def noted(self, name: str) -> CheckpointNote | None:
        """The saved state that the place of this file is of."""
        return self._notes.get(name)

    def note(self, name: str, noted: CheckpointNote | None) -> None:
        """The place that `put` is about to get is of this saved state; `None`: of none."""
        if noted is not None:
            self._notes[name] = noted
        else:
            self._notes.pop(name, None)

    def place(self, name: str) -> Place:
        """The place at which reading of this file begins."""
        return self._places.get(name, Place())

    def place_in(self, path: Path) -> Place | None:
        """The place up to which this file was read, under whatever name; `None` if it is none that was read to its end
        or was in the checkpoint that was loaded. Raises `OSError` if the file cannot be read.
        """
        place = self._by_inode.get(inode_of(path.stat()))
        return place if place is not None and place.is_in(path) else None

    def finish(self, place: Place) -> None:
        """The file of this place was read to its end, and has lost its name."""
        self._note_inode(place)

    def put(self, name: str, place: Place) -> None:
        """All records of this file before this place are done."""
        if self._places.get(name) != place:
            self._places[name] = place
            self._dirty = True

    def _note_inode(self, place: Place) -> None:
        if place.file is not None:
            self._by_inode[place.file.device, place.file.inode] = place

    def write(self, *, now: bool) -> None:
        """Write the file if a place has changed; unless `now`, only some time after the last write.

        `ConnectorError`, retriable, if that fails.
        """
        if self._path is None or not self._dirty or not (now or time.monotonic() - self._written >= INTERVAL):
            return
        document: dict[str, Any] = {
            "version": 1,
            "files": {name: asdict(place) for name, place in self._places.items()},
        }
        if self._notes:
            document["states"] = {name: asdict(noted) for name, noted in self._notes.items()}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps(document).encode())
        except OSError as error:
            raise ConnectorError(f"the checkpoint {self._path} cannot be written: {error}", retriable=True) from error
        self._dirty = False
        self._written = time.monotonic()


def _place(fields: dict[str, Any]) -> Place:
    file = fields.get("file")
    return Place(**{**fields, "file": None if file is None else FileId(**file)})


def _note(fields: dict[str, Any]) -> CheckpointNote:
    return CheckpointNote(str(fields["store"]), str(fields["host"]), int(fields["checkpoint"]))


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file at `path` durably: after a crash it has the old content or the new one."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the folder to the disk, so that new and renamed files survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
