"""Places with files: a folder of this machine, and whatever else has files. All of backfill reads and writes by them.

A location is a path, or a URL whose scheme says which place it is in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO

from streamer.backfill.patterns import Pattern


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of an input."""

    path: str
    """Where it is, so that every process finds it: an absolute path, or a URL."""
    relative: str
    """Its path below the fixed part of the pattern that it matches, joined by `/`."""
    size: int
    """Bytes."""
    stamp: str
    """Changes when the file is written again: its time of modification, or its etag."""

    @property
    def version(self) -> tuple[str, int, str]:
        """Changes with its path and its content."""
        return self.path, self.size, self.stamp


class Place(ABC):
    """Files of one kind of location. Owned by one thread; each process has its own.

    Raises `StreamerError` that names the location and says what to do, where something cannot be read or written.
    """

    @abstractmethod
    def absolute(self, location: str) -> str:
        """The location as every process understands it, without `/` at its end, and the same for the same folder."""

    @abstractmethod
    def is_folder(self, path: str) -> bool:
        """Whether it is a folder that is there."""

    @abstractmethod
    def matching(self, pattern: Pattern) -> Iterator[StoredFile]:
        """The files that match, in the order of their names; none is no error. `pattern.skips` are not among them."""

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """The content of a file, which can be sought in; the caller closes it."""

    @abstractmethod
    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A file to be written from its beginning, in folders that are made.

        It appears whole when the context ends, in place of one that was there, and lasts; if it ends with an error,
        nothing appears.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, sorted; none if there is no such folder."""

    @abstractmethod
    def clean(self, folder: str) -> None:
        """Remove what writers below this folder have left that were ended in the middle. Nobody else writes there."""

    @abstractmethod
    def lock(self, folder: str) -> AbstractContextManager[None]:
        """The folder, which is made, for this process alone, as far as the place can do that.

        Raises `StreamerError` if another process has it.
        """

    def read(self, path: str) -> bytes:
        """The content of a small file."""
        with self.open(path) as file:
            return file.read()

    def write(self, path: str, content: bytes) -> None:
        """Write a small file, as `create` does."""
        with self.create(path) as file:
            file.write(content)

    def child(self, folder: str, *names: str) -> str:
        """The path of a file or folder below a folder; the names may have several parts."""
        return "/".join([folder.removesuffix("/"), *names])
