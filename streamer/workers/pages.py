"""`WorkerPage`: a worker process's part of the file that it shares with its parent.

A worker writes which records its threads run at the moment, and what it has acknowledged; it reads the board of records
that killed workers. When it dies, its page tells the parent which records may have done it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipelines.errors import StreamerError
from streamer.workers import layout
from streamer.workers.board import Board, Place
from streamer.workers.layout import PAGES_VARIABLE, WORKER_VARIABLE
from streamer.workers.notes import Span, SpanEncoder
from streamer.workers.published import Published

if TYPE_CHECKING:
    from connectors.records import Lane

__all__ = ["Span", "WorkerPage"]

_LONGEST: Final = 256
"""Bytes of a usual partition's position, generously: more of them than fit are left for later."""


class WorkerPage:
    """A worker's page. `slot` and `acknowledged` may be called by any thread; each slot is used by one thread."""

    def __init__(self, path: Path, worker: int) -> None:
        """`path` is the shared file, `worker` the number of this process. Raises `StreamerError` if they do not fit."""
        self._map, workers = layout.opened(path)
        if not 0 <= worker < workers:
            raise StreamerError(f"{WORKER_VARIABLE}={worker}: {path} is for {workers} workers")
        self.worker = worker
        memory, page = memoryview(self._map), layout.page_at(worker)
        marks = page + layout.MARKS_AT
        self._board = Published(memory[layout.BOARD_AT : layout.BOARD_AT + layout.BOARD_SIZE])
        self._marks = Published(memory[marks : marks + layout.MARKS_SIZE])
        self._headers = page
        self._notes = page + layout.NOTES_AT
        self._encoder = SpanEncoder()
        self._slots = 0
        self._runs = [0] * layout.SLOTS
        self._seen = Board()
        self._acknowledged: dict[Place, int] = {}
        self._published: dict[Place, int] = {}
        self._guard = threading.Lock()

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> WorkerPage | None:
        """The page of this process; `None` if it is not a worker of `streamer run --workers`."""
        path, worker = environment.get(PAGES_VARIABLE), environment.get(WORKER_VARIABLE)
        if not path or not worker:
            return None
        if not worker.isdecimal():
            raise StreamerError(
                f'{WORKER_VARIABLE}="{worker}" is not the number of a worker; with {PAGES_VARIABLE} it is'
            )
        return cls(Path(path), int(worker))

    def slot(self) -> int:
        """A free place for notes, for a thread that runs batches. Raises `StreamerError` if there is none."""
        with self._guard:
            if self._slots == layout.SLOTS:
                raise StreamerError(
                    f"a process runs {layout.SLOTS} batches at the same time at most; lower limits.parallel, or run "
                    "fewer services in a process"
                )
            self._slots += 1
            return self._slots - 1

    def note(self, slot: int, spans: Sequence[Span], since: float) -> None:
        """Write that the records of `spans` are run from now on; `since` is `time.monotonic()`.

        A process that dies in the middle leaves no note in this slot.
        """
        header = self._headers + slot * layout.NOTE_HEADER
        self._map[header] = layout.FLAG_EMPTY
        content, whole = self._encoder.encode(spans, layout.NOTE_SIZE)
        begin = self._notes + slot * layout.NOTE_SIZE
        self._map[begin : begin + len(content)] = content
        self._runs[slot] += 1
        layout.NOTE.pack_into(self._map, header + layout.FIELDS_OF_NOTE, len(content), since, self._runs[slot])
        # A single byte, so that there is no moment at which it is half there.
        self._map[header] = layout.FLAG_WHOLE if whole else layout.FLAG_MORE

    def clear(self, slot: int) -> None:
        """Write that this slot runs nothing."""
        self._map[self._headers + slot * layout.NOTE_HEADER] = layout.FLAG_EMPTY

    @property
    def version(self) -> int:
        """The version of the board; it changes with the board. Cheap enough to be compared before each batch."""
        return self._board.version

    def board(self) -> Board:
        """The board as it is now, or as it was last if it is being written at the moment."""
        read = self._board.read()
        with self._guard:
            if read is not None and read[0] != self._seen.version:
                self._seen = Board.from_bytes(*read)
                self._publish()
            return self._seen

    def acknowledged(self, service: str, marks: Mapping[Lane, int]) -> None:
        """Tell the parent the positions that are acknowledged, by lane: those below are finished.

        It removes suspects below them from the board. Only lanes that have an entry there are written.
        """
        if not marks:
            return
        with self._guard:
            for lane, position in marks.items():
                self._acknowledged[service, lane.source, lane.partition] = position
            if self._seen:
                self._publish()

    def close(self) -> None:
        """Unmap the file."""
        self._board.close()
        self._marks.close()
        self._map.close()

    def _publish(self) -> None:
        marks = {place: position for place, position in self._acknowledged.items() if place in self._seen}
        if marks != self._published:
            self._published = marks
            lines = [[*place, position] for place, position in marks.items()]
            content = json.dumps(lines[: self._marks.room // _LONGEST], separators=(",", ":")).encode()
            if len(content) <= self._marks.room:
                self._marks.write(content)
