"""`LocalFiles`: the files of this machine, and what is mounted on it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

from connectors.file.checkpoint import sync_folder
from connectors.file.lock import lock
from pipelines.errors import ConnectorError, StreamerError
from streamer.backfill.patterns import Pattern
from streamer.backfill.places import Place, StoredFile

_PART: Final = ".backfill-part"
"""The end of the hidden name that a file has until it is whole."""
_LONGEST: Final = 40
"""Characters of the name that a hidden one has of it: file systems take 255 bytes."""
_LOCK: Final = "lock"


class LocalFiles(Place):
    """Paths of this machine. A file that is written is beside its place, under a hidden name, until it is whole."""

    def absolute(self, location: str) -> str:
        return Path(os.path.abspath(Path(location).expanduser())).as_posix()  # noqa: PTH100 - with links as they are

    def is_folder(self, path: str) -> bool:
        return Path(path).is_dir()

    def matching(self, pattern: Pattern) -> Iterator[StoredFile]:
        for path in self._paths(pattern):
            relative = path.relative_to(pattern.base).as_posix()
            try:
                status = path.stat()
            except OSError as error:
                raise StreamerError(f"{path} cannot be read: {error.strerror}") from error
            yield StoredFile(path.as_posix(), relative, status.st_size, str(status.st_mtime_ns))

    def open(self, path: str) -> BinaryIO:
        try:
            return Path(path).open("rb")
        except OSError as error:
            raise StreamerError(f"{path} cannot be read: {error.strerror}") from error

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        target = Path(path)
        hidden = target.with_name(f".{target.name[:_LONGEST]}.{uuid4().hex}{_PART}")
        with _writing(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            file = hidden.open("wb")
        try:
            with file:
                # Errors of whoever writes are not all of this file.
                yield file
                with _writing(path):
                    file.flush()
                    os.fsync(file.fileno())
            with _writing(path):
                hidden.replace(target)
                sync_folder(target.parent)
        finally:
            hidden.unlink(missing_ok=True)

    def remove(self, path: str) -> None:
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            raise StreamerError(f"{path} cannot be removed: {error.strerror}") from error

    def names(self, folder: str) -> list[str]:
        with suppress(FileNotFoundError):
            return sorted(path.name for path in Path(folder).iterdir() if path.is_file())
        return []

    def clean(self, folder: str) -> None:
        for path in Path(folder).rglob(f".*{_PART}"):
            path.unlink(missing_ok=True)

    @contextmanager
    def lock(self, folder: str) -> Iterator[None]:
        path = Path(folder, _LOCK)
        with _writing(folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a")
        with file:
            try:
                lock(file.fileno(), path)
            except ConnectorError:
                raise StreamerError(
                    f"{path}: another backfill is writing there: wait for its end, or choose another folder"
                ) from None
            yield

    def _paths(self, pattern: Pattern) -> list[Path]:
        base = Path(pattern.base)
        # Names may have brackets and braces themselves.
        exact = base.joinpath(*pattern.rest)
        if exact.is_file():
            return [exact]
        if not pattern.wild:
            return []
        names = {
            name
            for text in Pattern("", pattern.rest).plain()
            for name in glob.iglob(text, root_dir=base, recursive=True)  # noqa: PTH207 - Path.glob finds hidden files
            if not pattern.skips(name)
        }
        return sorted(path for path in map(base.joinpath, names) if path.is_file())


@contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StreamerError(f"{path} cannot be written: {error.strerror or error}; choose another folder") from error
