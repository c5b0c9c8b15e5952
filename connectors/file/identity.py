"""`FileId`: which file it is, whatever its name, so that a file that took another's name is not taken for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

HEAD = 1024
"""Bytes of the beginning of a file by which it is known."""


Inode = tuple[int, int]
"""The device and the number of an inode: no two files have the same at one time."""


def inode_of(stat: os.stat_result) -> Inode:
    """The inode of this file."""
    return stat.st_dev, stat.st_ino


@dataclass(frozen=True, slots=True)
class FileId:
    """A file as it was read up to some byte: where the file system has it, and how it begins."""

    device: int
    inode: int
    head_bytes: int
    """How many of its first bytes are known: those that were read, `HEAD` at most."""
    head: str
    """Their SHA-256, in hexadecimal digits."""
    modified: int
    """When it had been written to last, in nanoseconds since 1970: what took its place is younger."""

    @classmethod
    def of(cls, stat: os.stat_result, head: bytes) -> FileId:
        """The file of `stat`, of which `head` was read."""
        return cls(stat.st_dev, stat.st_ino, len(head), sha256(head).hexdigest(), stat.st_mtime_ns)

    def fits(self, file: OpenFile, offset: int) -> bool:
        """Whether this is the file, and has `offset` bytes or more.

        File systems of networks, containers and some disks get another device number when they are mounted again;
        inode numbers of two devices cannot be compared, so there the beginning decides alone.
        """
        if file.stat.st_dev == self.device and not self.same_inode(file.stat):
            return False
        return self.begins(file, offset)

    def same_inode(self, stat: os.stat_result) -> bool:
        """Whether the file of `stat` is where this one was. Once this one is deleted, a new file may be there."""
        return inode_of(stat) == (self.device, self.inode)

    def begins(self, file: OpenFile, offset: int) -> bool:
        """Whether this file begins in the same way, as a copy does, and has `offset` bytes or more."""
        return file.size() >= offset and sha256(file.first_bytes(self.head_bytes)).hexdigest() == self.head


class OpenFile:
    """A file that is being read. It notices when it is cut short or written anew while it is read.

    Raises `OSError`, for example `FileNotFoundError`, when it is created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        """Its name when it was opened; it may have another one by now."""
        self.start = 0
        """The byte from which it is read."""
        self.number = 0
        """The position of the record there."""
        self.stat: os.stat_result
        """What the file system said when it was last asked."""
        self._file: BinaryIO = path.open("rb", buffering=0)
        self.stat = os.fstat(self._file.fileno())
        self._head = b""
        self._at = 0
        self._checked: tuple[int, int] | None = None

    def size(self) -> int:
        """Its present size in bytes."""
        self.stat = os.fstat(self._file.fileno())
        return self.stat.st_size

    def is_at(self, path: Path) -> bool:
        """Whether the file has this name now."""
        try:
            return os.path.samestat(self.stat, path.stat())
        except OSError:
            return False

    def id(self, offset: int) -> FileId:
        """The file, as it was read up to this byte."""
        return FileId.of(self.stat, self._head[:offset])

    def begin(self, offset: int, number: int) -> None:
        """Read from this byte on, where the record of this position begins."""
        self.start, self.number = offset, number
        self._head = self.first_bytes(min(offset, HEAD))
        self._at = offset
        self._file.seek(offset)

    def read(self, most: int) -> bytes | None:
        """The next bytes; none at its present end. `None` if it is not the file any more that it was: it was cut short,
        or written anew. It is looked at after reading, so that no byte of the new content is ever taken.
        """
        chunk = self._file.read(most)
        head = self._head + chunk[: HEAD - len(self._head)]
        self._at += len(chunk)
        size = self.size()
        now = (self.stat.st_mtime_ns, size)
        if now != self._checked:
            if size < self._at or self.first_bytes(len(head)) != head:
                self._at -= len(chunk)
                return None
            self._checked = now
        self._head = head
        return chunk

    def first_bytes(self, count: int) -> bytes:
        """Its first bytes, as they are now; reading goes on where it was."""
        if not count:
            return b""
        at = self._file.tell()
        self._file.seek(0)
        head = self._file.read(count)
        self._file.seek(at)
        return head

    def close(self) -> None:
        """Close it; what is known of it stays."""
        self._file.close()
