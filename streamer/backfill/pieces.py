"""`Piece`: the unit of a backfill's work, which is done whole or not at all, and `Outcome`: what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.backfill.places import StoredFile


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, a part of one, or several small files. It travels to the process that runs it."""

    format: str
    """The name of the format of its files (`streamer.backfill.formats`)."""
    files: tuple[StoredFile, ...]
    """Its files, in order."""
    output: str
    """The file of its results below the folder of outputs, joined by `/`, without the ending that its format has."""
    part: tuple[int, int] | None = None
    """Which parts of its one file it is, such as row groups: from the first on, up to the second. `None`: all."""
    rows: int | None = None
    """How many rows it has, as far as that is known before it is read."""
    of: int = 1
    """How many pieces its file is."""

    @property
    def label(self) -> str:
        """The piece in messages."""
        path = self.files[0].path
        if self.part is not None:
            return f"{path}, parts {self.part[0]} to {self.part[1] - 1}"
        return path if len(self.files) == 1 else f"{path} and {len(self.files) - 1} more"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a piece."""

    piece: Piece
    rows: int = 0
    """Records that were read."""
    results: int = 0
    """Rows that were written as results."""
    errors: int = 0
    """Records that failed, which are among the errors of the output."""
    output: str | None = None
    """The file of its results, below the folder of outputs; `None`: there is none."""
    error_output: str | None = None
    """The file of its errors."""
    error: str | None = None
    """The text of the first of them."""
    seconds: float = 0.0
    failure: str | None = None
    """Why the piece is not done: it cannot be read or written, or it ends the process that runs it. `None`: it is."""
