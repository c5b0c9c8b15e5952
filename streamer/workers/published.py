"""A block of bytes in shared memory that a process replaces as a whole while others read it."""

from __future__ import annotations

import struct
import time
import zlib
from typing import Final

_HEADER: Final = struct.Struct("@QQI")
"""Version, length of the content, checksum."""
HEADER_SIZE: Final = 32
_TRIES: Final = 40
_PAUSE: Final = 0.0005


class Published:
    """A block with one writer. A reader gets the content of a version whole, or nothing.

    The version is written last, and the checksum includes it: a reader that comes in the middle of writing, or after
    the death of a writer in the middle, sees that they do not belong together.
    """

    def __init__(self, memory: memoryview) -> None:
        """`memory` begins with zeros until the first `write`. Its address is a multiple of 8."""
        self._memory = memory
        self._version = memory[:8].cast("Q")
        self.room = len(memory) - HEADER_SIZE
        """The most bytes of the content."""

    @property
    def version(self) -> int:
        """The number of writes. Below a microsecond: a single load."""
        return self._version[0]

    def write(self, content: bytes) -> None:
        """Replace the content. Raises `ValueError` if it is longer than `room`."""
        if len(content) > self.room:
            raise ValueError(f"{len(content)} bytes, and there is room for {self.room}")
        following = self.version + 1
        _HEADER.pack_into(self._memory, 0, self.version, len(content), _checksum(content, following))
        self._memory[HEADER_SIZE : HEADER_SIZE + len(content)] = content
        self._version[0] = following

    def read(self) -> tuple[int, bytes] | None:
        """The version and the content. `None`: nothing was written yet, or it is being written for long."""
        for _ in range(_TRIES):
            version, length, checksum = _HEADER.unpack_from(self._memory, 0)
            if version == 0:
                return None
            if length <= self.room:
                content = bytes(self._memory[HEADER_SIZE : HEADER_SIZE + length])
                if _checksum(content, version) == checksum and self.version == version:
                    return version, content
            time.sleep(_PAUSE)
        return None

    def close(self) -> None:
        """Give the memory back."""
        self._version.release()
        self._memory.release()


def _checksum(content: bytes, version: int) -> int:
    return zlib.crc32(content, version & 0xFFFFFFFF)
