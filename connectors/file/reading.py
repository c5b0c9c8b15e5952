"""`Reading`: a lane of a file source, such as a file or a folder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from connectors.file.checkpoint import Place
from connectors.file.identity import Inode
from connectors.records import Ints


@dataclass(slots=True)
class Rows:
    """Records read from one lane."""

    values: list[bytes]
    positions: Ints
    keys: list[bytes] | None = None
    timestamps: Callable[[], Ints] | None = None


@dataclass(slots=True)
class Delivered:
    """Records that were delivered and are not acknowledged."""

    positions: Ints
    marks: Any
    """For each record, the argument of `Reading._place`."""
    origin: Any = None
    """The argument of `Reading._place` that all records share."""


class Reading(ABC):
    """A lane of a file source: delivers records from `acknowledged` on, and keeps the places of unacknowledged ones."""

    topic: str
    """The file's path below the source's folder."""
    exhausted: bool
    """Whether all records were delivered and no more are awaited."""

    def __init__(self, topic: str, acknowledged: Place) -> None:
        self.topic = topic
        self.exhausted = False
        self.acknowledged = acknowledged
        self.waits: str | None = None
        """What is missing at the present end: the rest of a record; `None`: nothing."""
        self.finished: list[Place] = []
        """The ends of files that are acknowledged whole, and whose name another file has now. The source takes them."""
        self._delivered: deque[Delivered] = deque()

    @property
    def held_bytes(self) -> int:
        """Bytes read and not delivered."""
        return 0

    def held(self) -> set[Inode]:
        """The files that are read, and those whose records are not all acknowledged, whatever their names are now."""
        return set()

    @abstractmethod
    def read(self, max_records: int, max_bytes: int) -> Rows:
        """The next available records: at most `max_records`, and about `max_bytes` bytes; none if there are none.

        `ConnectorError` if the next one cannot be read.
        """

    @abstractmethod
    def rewind(self) -> None:
        """Deliver records from `acknowledged` on again."""

    @abstractmethod
    def close(self) -> None:
        """Close open files."""

    def acknowledge(self, position: int) -> None:
        """Note that all records below this position are done."""
        while self._delivered:
            first = self._delivered[0]
            done = int(np.searchsorted(first.positions, position))
            if done == 0:
                return
            self.acknowledged = self._place(int(first.positions[done - 1]) + 1, first.marks[done - 1], first.origin)
            if done < len(first.positions):
                first.positions, first.marks = first.positions[done:], first.marks[done:]
                return
            self._delivered.popleft()

    @abstractmethod
    def _place(self, records: int, mark: Any, origin: Any) -> Place:
        """The place behind a record, given its mark and origin (`Delivered`)."""
