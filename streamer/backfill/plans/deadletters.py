"""Dead letters as the input of a backfill: which there are, and which of them are not done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipelines.errors import DefinitionError
from streamer.backfill.formats.inputformat import ROWS_OF_PIECE
from streamer.backfill.formats.letters import partition_file
from streamer.backfill.formats.registry import FORMATS
from streamer.backfill.pieces import Piece
from streamer.backfill.plans.listing import InputFile
from streamer.definition.service import Service
from streamer.letters.replayed import GROUP
from streamer.letters.route import readable_letters

LETTERS: Final = "letters"
"""The input that is the dead letters of the service."""


def partitions(service: Service) -> list[InputFile]:
    """The partitions of the service's dead letters, each with the offsets that it has now.

    Raises `DefinitionError` if they cannot be read again, and `ConnectorError` if their bus does not answer, or there
    is no such topic or file.
    """
    topic, there = readable_letters(service)
    with there.reader(topic, GROUP) as reader:
        lows, ends = reader.range()
        topic_id = reader.topic_id()
    return [
        InputFile(partition_file(topic, number, topic_id), FORMATS[LETTERS], (lows[number], end))
        for number, end in sorted(ends.items())
    ]


def pieces_left(entry: InputFile, done: Iterable[tuple[int, int]]) -> list[Piece]:
    """The pieces of the offsets of a partition that are in none of the runs that are `done`, in order.

    Raises `DefinitionError` if a run that is done ends after the last letter: it is of other letters.
    """
    assert entry.offsets is not None, "it is of files"
    at, end = entry.offsets
    pieces: list[Piece] = []
    for start, stop in [*sorted(done), (end, end)]:
        if stop > end:
            raise DefinitionError(
                f"{entry.file.path} has {end:,} letters, and those before {stop:,} are done: they are of another topic "
                "or file; choose another --output, or do all of it anew with --again"
            )
        for first in range(at, start, ROWS_OF_PIECE):
            last = min(first + ROWS_OF_PIECE, start)
            output = f"{entry.file.relative}-{first}-{last}"
            pieces.append(Piece(entry.format.name, (entry.file,), output, (first, last), last - first))
        at = max(at, stop)
    return pieces
