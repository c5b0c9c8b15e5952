"""`TableFile`: columns of a table in a file, whatever its format, and a mark by which a replaced file is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.errors import StreamerError, nearest


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a table may be."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RawTable:
    """The columns that were read of a table."""

    columns: Mapping[str, Sequence[Any]]
    """The values of each column, all of equal length, `None` where there is none."""
    size: int
    """How many rows there are."""
    lines: Sequence[int] = ()
    """In a file of lines the line in which each row ends, counted from 1."""
    typed: bool = True
    """Whether the file has types; otherwise all values are texts, and may stand for others."""

    def place(self, row: int) -> str:
        """Where the row of this position is: `line 7`, `row 7`."""
        return f"line {self.lines[row]}" if self.lines else f"row {row + 1}"


class TableFile(ABC):
    """Reads a table anew at each call; any thread may call."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self.limits = limits

    @property
    def label(self) -> str:
        """The file's name, for messages."""
        return self.path.name

    def mark(self) -> Hashable | None:
        """Equal as long as the file has not been replaced or written to; `None` if it is not there."""
        return mark_of(self.path)

    @abstractmethod
    def read(self, columns: Sequence[str]) -> RawTable:
        """These columns of all rows. Raises `StreamerError` if they cannot be read, or the table is too large."""

    def checked_columns(self, columns: Sequence[str], there: Sequence[str]) -> None:
        """Raise `StreamerError` for a column that is not among those that the table has, or is there twice."""
        for name in columns:
            if name not in there:
                listed = ", ".join(there[:_SHOWN]) + (", ..." if len(there) > _SHOWN else "")
                raise StreamerError(f'{self.label} has no column "{name}"{nearest(name, there, 1000)}; it has {listed}')
            if there.count(name) > 1:
                raise StreamerError(f'{self.label} has two columns that are called "{name}"; rename one')

    def check_rows(self, rows: int) -> None:
        """Raise `StreamerError` if these are more rows than the table may have."""
        if rows > self.limits.rows:
            raise StreamerError(f"{self.label} has more than {self.limits.rows:,} rows; raise maxRows of the step")

    def check_bytes(self, size: int) -> None:
        """Raise `StreamerError` if these are more bytes than the table may have."""
        if size > self.limits.bytes:
            raise StreamerError(f"{self.label} has more than {self.limits.bytes:,} bytes; raise maxBytes of the step")

    def content(self) -> bytes:
        """All bytes of the file. Raises `StreamerError` if it cannot be read or has too many.

        They are read at once: a file that is mapped into memory would end the process when somebody shortens it.
        """
        try:
            with self.path.open("rb") as file:
                content = file.read(self.limits.bytes + 1)
        except OSError as error:
            raise StreamerError(f"{self.path} cannot be read: {error.strerror or error}") from error
        self.check_bytes(len(content))
        return content


def mark_of(path: Path) -> Hashable | None:
    """Inode, size and time of a file, through links: a platform such as Kubernetes swaps links."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


_SHOWN = 20
"""How many columns an error lists."""
