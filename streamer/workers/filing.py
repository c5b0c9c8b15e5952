"""`PagesFile`: the shared file as the parent sees it. It writes the board, and reads what workers wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from streamer.workers import layout
from streamer.workers.board import Board, Place
from streamer.workers.notes import Note, decode_spans
from streamer.workers.published import HEADER_SIZE, Published


class Running(NamedTuple):
    """That a slot of a living worker runs a batch."""

    slot: int
    number: int
    """It rises with each note of the slot."""
    since: float
    """As in `Note`."""


class PagesFile:
    """The file that a parent shares with its workers."""

    def __init__(self, path: Path, workers: int) -> None:
        """Creates the file."""
        self.path = path
        self._map = layout.create(path, workers)
        memory = memoryview(self._map)
        self._board = Published(memory[layout.BOARD_AT : layout.BOARD_AT + layout.BOARD_SIZE])
        self._marks: list[Published] = []
        self._read = [0] * workers
        for worker in range(workers):
            marks = layout.page_at(worker) + layout.MARKS_AT
            self._marks.append(Published(memory[marks : marks + layout.MARKS_SIZE]))
        memory.release()

    @property
    def room(self) -> int:
        """The most bytes of a board."""
        return self._board.room

    def publish(self, board: Board) -> None:
        """Have all workers see this board. Raises `ValueError` if it is larger than `room`."""
        self._board.write(board.to_bytes())

    def running(self, worker: int) -> list[Running]:
        """What a living worker runs. What is written at the moment may be read half: only trust what two looks saw."""
        running = []
        for slot in range(layout.SLOTS):
            flag, _, since, number = self._header(worker, slot)
            # Not only up to the first slot without a note: that of a service without records has none for long.
            if flag != layout.FLAG_EMPTY:
                running.append(Running(slot, number, since))
        return running

    def service_of(self, worker: int, slot: int) -> str | None:
        """The service whose records a slot of a living worker runs; `None` if it cannot be read at the moment."""
        try:
            note = self._note(worker, slot)
        except (ValueError, UnicodeDecodeError):
            return None
        return None if note is None or not note.spans else note.spans[0].service

    def has_run(self, worker: int) -> bool:
        """Whether the worker has begun a batch since its page was cleared."""
        return any(self._header(worker, slot)[3] > 0 for slot in range(layout.SLOTS))

    def notes(self, worker: int) -> list[Note]:
        """The notes that a dead worker left."""
        return [note for slot in range(layout.SLOTS) if (note := self._note(worker, slot)) is not None]

    def marks(self, worker: int) -> dict[Place, int]:
        """The acknowledged positions of partitions that have entries on the board, if they are new since the last
        call."""
        if self._marks[worker].version == self._read[worker]:
            return {}
        read = self._marks[worker].read()
        if read is None:
            return {}
        self._read[worker] = read[0]
        return {(service, source, partition): position for service, source, partition, position in json.loads(read[1])}

    def clear(self, worker: int) -> None:
        """Forget all that a dead worker wrote, before the next begins."""
        page = layout.page_at(worker)
        size = layout.MARKS_AT + HEADER_SIZE
        self._map[page : page + size] = bytes(size)
        self._read[worker] = 0

    def close(self) -> None:
        """Unmap the file, and delete it."""
        for published in (self._board, *self._marks):
            published.close()
        self._map.close()
        self.path.unlink(missing_ok=True)

    def _header(self, worker: int, slot: int) -> tuple[int, int, float, int]:
        at = layout.page_at(worker) + slot * layout.NOTE_HEADER
        length, since, number = layout.NOTE.unpack_from(self._map, at + layout.FIELDS_OF_NOTE)
        return self._map[at], length, since, number

    def _note(self, worker: int, slot: int) -> Note | None:
        flag, length, since, _ = self._header(worker, slot)
        if flag == layout.FLAG_EMPTY or length > layout.NOTE_SIZE:
            return None
        begin = layout.page_at(worker) + layout.NOTES_AT + slot * layout.NOTE_SIZE
        return Note(since, decode_spans(self._map[begin : begin + length]), flag == layout.FLAG_WHOLE)
