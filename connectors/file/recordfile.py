"""Reading one file of records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from connectors.file.checkpoint import Place
from connectors.file.framing import Framing
from connectors.file.reading import Reading, Rows
from pipelines.errors import ConnectorError

CHUNK = 2**20


class RecordFile(Reading):
    """The records of one file. Positions are record (line) numbers from 0.

    It reads a chunk at a time, so that it holds about `CHUNK` bytes or one record. `follow`: at the end of the file it
    waits for more records, and for the rest of an incomplete one.
    """

    def __init__(
        self, path: Path, topic: str, framing: Framing, start: Place, *, max_record: int, follow: bool
    ) -> None:
        super().__init__(topic, start)
        self._path = path
        self._framing = framing
        self._max_record = max_record
        self._follow = follow
        self._file: BinaryIO | None = None
        self._given: int
        self.rewind()

    @property
    def held_bytes(self) -> int:
        """As `Reading.held_bytes`."""
        return len(self._buffer) + sum(map(len, self._values[self._given :]))

    def read(self, max_records: int, max_bytes: int) -> Rows:
        """As `Reading.read`. `ConnectorError` names the byte where the file cannot be read further."""
        if self._given == len(self._values) and not self.exhausted:
            self._fill()
        stop = self._given
        size = 0
        while stop < len(self._values) and stop - self._given < max_records and size < max_bytes:
            size += len(self._values[stop])
            stop += 1
        rows = slice(self._given, stop)
        self._given = stop
        if stop == len(self._values):
            self._see_whether_it_ends()
        if rows.start < stop:
            self._delivered.append((self._numbers[rows], self._nexts[rows]))
        return Rows(self._values[rows], self._numbers[rows])

    def rewind(self) -> None:
        """As `Reading.rewind`."""
        self.close()
        self._delivered.clear()
        self.exhausted = False
        self._buffer = b""
        self._buffer_at = self.acknowledged.offset
        self._number = self.acknowledged.records
        self._values: list[bytes] = []
        self._numbers = np.zeros(0, np.int64)
        self._nexts = np.zeros(0, np.int64)
        self._given = 0
        self._missing = 0
        self._problem: str | None = None
        self._at_end = False

    def close(self) -> None:
        """As `Reading.close`."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _place(self, records: int, mark: Any) -> Place:
        return Place(records, int(mark))

    def _fill(self) -> None:
        """Read until there is at least one record, or the present end of the file."""
        self._values, self._given = [], 0
        while not self._values:
            self._raise_problem()
            file = self._opened()
            # As much as the buffer holds, so that a long record is not copied once for every chunk.
            chunk = b"" if file is None else file.read(max(CHUNK, self._missing, len(self._buffer)))
            self._at_end = not chunk
            if chunk:
                self._buffer += chunk
                self._find()
            elif self._follow:
                self._check_it_is_the_same()
                return
            else:
                self._take_the_rest()
                return

    def _find(self) -> None:
        found = self._framing.find(self._buffer, self._max_record)
        buffer = self._buffer
        self._values = [buffer[start:stop] for start, stop in zip(found.starts, found.stops, strict=True)]
        self._numbers = np.array(found.numbers, np.int64) + self._number
        self._nexts = np.array(found.nexts, np.int64) + self._buffer_at
        self._missing = found.missing
        self._problem = found.problem
        if found.nexts:
            self._number += found.numbers[-1] + 1
            self._buffer = buffer[found.nexts[-1] :]
            self._buffer_at += found.nexts[-1]

    def _take_the_rest(self) -> None:
        if self._buffer:
            rest = self._framing.rest(self._buffer)
            if isinstance(rest, str):
                self._problem = rest
                self._raise_problem()
                return
            start, stop = rest
            if start < stop:
                self._values = [self._buffer[start:stop]]
                self._numbers = np.array([self._number], np.int64)
                self._nexts = np.array([self._buffer_at + len(self._buffer)], np.int64)
            self._buffer_at += len(self._buffer)
            self._buffer = b""
        self._see_whether_it_ends()

    def _see_whether_it_ends(self) -> None:
        """Check for the end before the next read, so that the source reports it with its last record."""
        if self._given < len(self._values) or self._follow or self._buffer or self._problem:
            return
        if self._at_end or self._size() <= self._buffer_at:
            self.exhausted = True
            self.close()

    def _opened(self) -> BinaryIO | None:
        if self._file is None:
            try:
                size = self._size()
                if size < self._buffer_at:
                    raise ConnectorError(
                        f"{self._path} has {size} bytes, but {self._buffer_at} were acknowledged: it is another file "
                        "now; delete the checkpoint to begin at its first record"
                    )
                self._file = self._path.open("rb", buffering=0)
            except FileNotFoundError:
                if self._follow:
                    return None
                raise ConnectorError(f"{self._path} is not there any more") from None
            except OSError as error:
                raise ConnectorError(f"{self._path} cannot be read: {error}") from error
            self._file.seek(self._buffer_at)
        return self._file

    def _size(self) -> int:
        return self._path.stat().st_size

    def _check_it_is_the_same(self) -> None:
        if self._file is None:
            return
        opened = os.fstat(self._file.fileno())
        try:
            same = self._path.stat().st_ino == opened.st_ino
        except FileNotFoundError:
            same = False
        if not same or opened.st_size < self._buffer_at + len(self._buffer):
            raise ConnectorError(
                f"{self._path} was replaced or cut short while it was followed: let its writer append, or give each "
                "new file a name of its own and follow the folder"
            )

    def _raise_problem(self) -> None:
        if self._problem is not None:
            raise ConnectorError(f"{self._path}: record {self._number} at byte {self._buffer_at}: {self._problem}")
