"""`InputFormat`: how files of a format become pieces, and a piece blocks of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from connectors.config import SourceConfig
from pipelines.data.batch import Batch
from streamer.backfill.payloads import PayloadDecoder
from streamer.backfill.pieces import Piece
from streamer.backfill.places import Place, StoredFile
from streamer.definition.service import Service

ROWS_OF_PIECE = 100_000
"""Rows that a part of a file has at least, so that opening the file again and again does not count."""
ERROR = "_error"
"""The column of errors: the text of the error of a record that failed. Of inputs it is passed over."""


class Block(ABC):
    """Rows that are run together."""

    batch: Batch
    """The rows, with numbers that no other block of the piece has."""
    failed: Mapping[int, Exception]
    """The errors of the records that could not be read, by row number; they are not in `batch`."""
    rows: int
    """How many records it has, those that failed and those that pass by among them."""

    origins: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """`InputFormat.origins` of its format."""

    @property
    def origin(self) -> Batch:
        """The same rows, with the values of `origins`."""
        return self.batch

    @abstractmethod
    def failures(self, failed: Mapping[int, Exception]) -> Any:
        """The records with these row numbers, and their errors, for the file of errors (`InputFormat.errors`)."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What is known of files before they are read."""

    pieces: Sequence[Piece]
    schema: Any | None = None
    """The `pyarrow.Schema` of the records, without `_error`; `None`: not known."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What a format needs to read pieces."""

    place: Place
    rows: int
    """The most rows of a block."""
    max_bytes: int
    """Bytes at which a block is full, about."""
    payloads: Callable[[frozenset[str]], PayloadDecoder]
    """What decodes records as the service does, by the types of the codecs that files of the format may have."""
    service: Service
    decoder: Callable[[SourceConfig], PayloadDecoder]
    """What decodes records of a source of the service."""


class InputFormat(ABC):
    """A format of files. Without state."""

    name: ClassVar[str]
    """Its name in pieces and messages."""
    suffixes: ClassVar[tuple[str, ...]]
    """The ends of its files' names, in lower case."""
    together: ClassVar[bool] = False
    """Whether many files are a piece: then `planned` gets the files of a folder at once, else each by itself."""
    origins: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """The columns of results that say where their records are from, besides those to keep, and the `pyarrow` type of
    each."""
    errors: ClassVar[Literal["parquet", "jsonl"]] = "parquet"
    """The format of the file of errors, which can be an input again."""

    @abstractmethod
    def planned(self, place: Place, files: Sequence[StoredFile]) -> Planned:
        """The pieces of a file, or of the files of a folder; it may read the beginning or the end of a file.

        Raises `StreamerError`, `OSError` or `pyarrow.ArrowException` for a file that cannot be read.
        """

    @abstractmethod
    def blocks(self, piece: Piece, feed: Feed) -> Generator[Block, None, None]:
        """The rows of a piece, block by block. Raises as `planned`."""

    def stem(self, file: StoredFile) -> str:
        """The relative path of a file without the end that says its format."""
        lower = file.relative.lower()
        ends = [suffix for suffix in self.suffixes if lower.endswith(suffix)]
        return file.relative[: -max(map(len, ends))] if ends else file.relative


def parts_of(file: StoredFile, format: str, stem: str, rows: Sequence[int]) -> list[Piece]:
    """Runs of whole parts of a file, such as row groups, of which part i has `rows[i]` rows."""
    edges, count = [0], 0
    for place, number in enumerate(rows, 1):
        count += number
        if count >= ROWS_OF_PIECE:
            edges.append(place)
            count = 0
    # What is left over at the end belongs to the last run.
    edges = [*edges[: max(1, len(edges) - 1)], len(rows)] if edges[-1] != len(rows) else edges
    return parts_at(file, format, stem, edges, rows)


def parts_at(
    file: StoredFile, format: str, stem: str, edges: Sequence[int], rows: Sequence[int] | None = None
) -> list[Piece]:
    """The runs of parts of a file that begin and end at these edges; of few parts the whole file."""
    count = len(edges) - 1
    if count < 2:
        return [Piece(format, (file,), stem, rows=None if rows is None else sum(rows))]
    return [
        Piece(
            format,
            (file,),
            f"{stem}-{place:05d}-of-{count:05d}",
            (first, last),
            None if rows is None else sum(rows[first:last]),
            count,
        )
        for place, (first, last) in enumerate(pairwise(edges))
    ]
