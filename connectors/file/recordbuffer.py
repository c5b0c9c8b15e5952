"""`RecordBuffer`: the bytes of a file that were read and not delivered yet, and the records among them."""

from __future__ import annotations

import numpy as np

from connectors.file.framing import Framing
from connectors.records import Ints

CHUNK = 2**20


class RecordBuffer:
    """Complete records, in order, and the rest: bytes behind them that are no complete record yet."""

    def __init__(self, framing: Framing, max_record: int, number: int, offset: int) -> None:
        """Empty. The next record begins at the byte `offset` of its file, and its position is `number`."""
        self.number = number
        """The position of the record that begins with the rest."""
        self.offset = offset
        """Where the rest begins in the file."""
        self.rest = b""
        self.problem: str | None = None
        """Why no record after the complete ones can be read."""
        self._framing = framing
        self._max_record = max_record
        self._missing = 0
        self._values: list[bytes] = []
        self._numbers = self._nexts = np.zeros(0, np.int64)
        self._given = 0

    def __len__(self) -> int:
        """How many complete records were not delivered."""
        return len(self._values) - self._given

    @property
    def byte_count(self) -> int:
        """Bytes of these records and of the rest."""
        return len(self.rest) + sum(map(len, self._values[self._given :]))

    @property
    def wanted(self) -> int:
        """How many bytes to read next: as many as the rest has, so that a long record is not copied for every chunk."""
        return max(CHUNK, self._missing, len(self.rest))

    def add(self, chunk: bytes) -> None:
        """Add bytes that follow the rest. All complete records were delivered before."""
        buffer = self.rest + chunk
        edges = self._framing.find(buffer, self._max_record)
        self._values = [buffer[start:stop] for start, stop in zip(edges.starts, edges.stops, strict=True)]
        self._numbers = np.array(edges.numbers, np.int64) + self.number
        self._nexts = np.array(edges.nexts, np.int64) + self.offset
        self._missing = edges.missing
        self.problem = edges.problem
        self.rest = buffer
        if edges.nexts:
            self.number += edges.numbers[-1] + 1
            self.rest = buffer[edges.nexts[-1] :]
            self.offset += edges.nexts[-1]

    def end_with(self, start: int, stop: int) -> None:
        """The file ends with the rest: this part of it is a record, unless the part is empty."""
        if start < stop:
            self._values = [self.rest[start:stop]]
            self._numbers = np.array([self.number], np.int64)
            self._nexts = np.array([self.offset + len(self.rest)], np.int64)
            self.number += 1
        self.offset += len(self.rest)
        self.rest = b""

    def deliver(self, max_records: int, max_bytes: int) -> tuple[list[bytes], Ints, Ints]:
        """The next complete records, at most `max_records` and about `max_bytes` bytes: payloads, positions `int64
        (N,)`, and where in the file the record after each begins, `int64 (N,)`."""
        start = stop = self._given
        size = 0
        while stop < len(self._values) and stop - start < max_records and size < max_bytes:
            size += len(self._values[stop])
            stop += 1
        records = self._values[start:stop], self._numbers[start:stop], self._nexts[start:stop]
        self._given = stop
        if not len(self):
            self._values, self._given = [], 0
        return records
