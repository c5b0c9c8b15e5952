"""`Marks`: which versions of the models ended the process while they were being opened, and what follows from that."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from connectors.file.lock import lock
from connectors.models.cache import FetchError, cache_folder
from pipelines.errors import ConnectorError
from streamer.models.files import State

_FOLDER: Final = "opening"
_OFTEN: Final = 2
"""How often a version has to end the process for it not to be chance."""


class Caution(Enum):
    """What a start does about a version that ended the process when it was opened alone, as the first."""

    ALONE = "alone"
    """It may have been chance, and nothing else would be served: it is opened again. After the second time it is left
    out where there is another."""
    OTHERS = "others"
    """The process serves other models, which would end with it: it is left out."""
    NONE = "none"
    """Somebody asks for it: it is opened, whatever became of it."""


class Left(NamedTuple):
    """A mark that no process holds any more: the one that did has ended while it opened the version."""

    file: Path
    since: str
    before: Mapping[str, int] | None
    """The versions that were in use then, by the folder that holds them; `None`: it was opened as the first."""
    times: int = 1
    """How often in a row, if it was opened as the first."""

    @property
    def reason(self) -> str:
        """For people, with what to do next."""
        return (
            f"the process ended while it opened these files ({self.since}); they are tried again once they have "
            f"changed, or at a start without {self.file}"
        )

    def is_borne(self, caution: Caution) -> bool:
        """Whether the version is to be opened all the same."""
        if caution is Caution.ALONE:
            return self.before is None and self.times < _OFTEN
        return caution is Caution.NONE


class Marks:
    """Files that are there while a version is being opened.

    A library that ends the process, or the system that does for want of memory, leaves the file behind. Each is locked
    by its process, so that those of other processes that are still opening do not count. Where there is no folder for
    them nothing is marked.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._guard = threading.Lock()
        self._ended = False
        self._open: dict[Path, int] = {}
        """The marks of this process, with their descriptors."""
        try:
            self._folder: Path | None = cache_folder() / _FOLDER
        except FetchError:
            self._folder = None

    @contextmanager
    def opening(self, variant: str, files: State, before: State | None) -> Iterator[None]:
        """There is a mark inside the block. `before`: the files of the version that is in use, if there is one."""
        mark = self._begun(variant, files, before)
        try:
            yield
        finally:
            if mark is not None:
                self._end(mark)

    def left(self, variant: str, files: State) -> Left | None:
        """The mark that an opening of these files has left, if one has: the last one as the first, else any."""
        left: list[Left] = []
        for file in self._of(variant, files):
            if file not in self._open and not _is_held(file):
                with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                    left.append(_read(file))
        return max(left, key=lambda mark: (mark.before is None, mark.times), default=None)

    def clear(self, variant: str, files: State) -> None:
        """These files can be opened after all."""
        for file in self._of(variant, files):
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def end(self) -> None:
        """The process may end now: what is still being opened, or will be, is not the cause. From any thread."""
        with self._guard:
            self._ended = True
        for mark in [*self._open]:
            self._end(mark)

    def _of(self, variant: str, files: State) -> list[Path]:
        if self._folder is None:
            return []
        try:
            return sorted(self._folder.glob(f"{self._key(variant, files)}-*.json"))
        except OSError:
            return []

    def _key(self, variant: str, files: State) -> str:
        versions = {str(path): number for path, number in files.versions.items()}
        return hashlib.sha256(repr((self._service, variant, versions, files.marks)).encode()).hexdigest()[:32]

    def _begun(self, variant: str, files: State, before: State | None) -> Path | None:
        if self._folder is None or not files.marks:
            return None
        left = self.left(variant, files) if before is None else None
        mark = self._folder / f"{self._key(variant, files)}-{uuid4().hex[:8]}.json"
        document = {
            "service": self._service,
            "version": files.label,
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "before": None if before is None else {str(path): number for path, number in before.versions.items()},
            "times": 1 if left is None or left.before is not None else left.times + 1,
        }
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError:
            # A file system that is full or cannot be written to keeps no version from being opened.
            return None
        with self._guard:
            self._open[mark] = descriptor
            ended = self._ended
        if ended:
            self._end(mark)
            return None
        try:
            lock(descriptor, mark)
            os.write(descriptor, json.dumps(document).encode())
            # A driver may take the whole machine with it.
            os.fsync(descriptor)
        except (OSError, ConnectorError):
            self._end(mark)
            return None
        return mark

    def _end(self, mark: Path) -> None:
        with self._guard:
            descriptor = self._open.pop(mark, None)
        if descriptor is None:
            return
        with suppress(OSError):
            mark.unlink(missing_ok=True)
        os.close(descriptor)


def _read(file: Path) -> Left:
    document = json.loads(file.read_bytes())
    before = document["before"]
    numbers = None if before is None else {path: int(number) for path, number in before.items()}
    return Left(file, str(document["since"]), numbers, int(document.get("times", 1)))


def _is_held(file: Path) -> bool:
    """Whether the process that has made a mark is still opening the version, or has just done so."""
    try:
        descriptor = os.open(file, os.O_RDWR)
    except OSError:
        return not os.access(file, os.R_OK)
    try:
        lock(descriptor, file)
    except ConnectorError:
        return True
    finally:
        os.close(descriptor)
    return False
