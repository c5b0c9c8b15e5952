"""`Dangerous`: the records of a service that kill the process which runs them, as far as the parent process knows.

In a worker of `streamer run --workers`. Each thread notes what it runs, so that the parent knows it when the worker
dies. Records of such notes are suspects: they are run alone. A record that was noted alone is convicted: it fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from connectors.records import Ints, Lane
from pipelines.errors import StepError, step_of
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.runs.pipelinecalls import Running
from streamer.agent.runs.recordnames import digest, spans_of
from streamer.workers.board import Board, Entry
from streamer.workers.pages import WorkerPage

PROCESS: Final = "process"
"""The step of failures of convicted records, which no step has seen."""


@cache
def worker_page() -> WorkerPage | None:
    """This process's page in the file that it shares with its parent; `None` if it is no worker."""
    return WorkerPage.of_environment()


class SlotNotes:
    """The notes of one thread that runs batches (`streamer.agent.runs.pipelinecalls.CallNotes`)."""

    def __init__(self, page: WorkerPage, service: str, digests: frozenset[str]) -> None:
        self._page = page
        self._service = service
        self._digests = digests
        self._slot = page.slot()

    def begin(self, running: Running) -> None:
        """Note the records of a call that begins."""
        spans = spans_of(self._service, running.batches, running.batch, self._digests)
        self._page.note(self._slot, list(spans), running.since)

    def end(self) -> None:
        """The call has returned."""
        self._page.clear(self._slot)


class Judged(NamedTuple):
    """What is known of the records of a batch."""

    convicted: Mapping[int, StepError]
    """The errors of rows that are not to be run."""
    suspects: Ints
    """Rows that are to be run alone, rising."""


class Dangerous:
    """Reads the board that the parent publishes. Used by the run thread."""

    def __init__(self, page: WorkerPage, service: str, digests: frozenset[str]) -> None:
        """`digests` names the sources whose records are known by their content."""
        self._page = page
        self._service = service
        self._digests = digests
        self._board = Board()

    def notes(self) -> SlotNotes:
        """For another thread that runs batches."""
        return SlotNotes(self._page, self._service, self._digests)

    def acknowledged(self, marks: Mapping[Lane, int]) -> None:
        """These positions are acknowledged: what lies below them comes no more. From any thread."""
        self._page.acknowledged(self._service, marks)

    def judged(self, decoded: DecodedBatch) -> Judged | None:
        """What is known of a batch that is run next; `None`: nothing, as nearly always."""
        if self._page.version != self._board.version:
            self._board = self._page.board()
        if not self._board:
            return None
        convicted: dict[int, StepError] = {}
        suspects: list[int] = []
        for row, entry in self._entries(decoded):
            if entry.convicted:
                convicted[row] = StepError(entry.reason, step=PROCESS)
            else:
                suspects.append(row)
        return Judged(convicted, np.array(sorted(suspects), np.int64)) if convicted or suspects else None

    @staticmethod
    def has_convicted(batches: Sequence[DecodedBatch]) -> bool:
        """Whether records of these batches have failed because they are convicted."""
        return any(step_of(error) == PROCESS for decoded in batches for error in decoded.failed.values())

    def _entries(self, decoded: DecodedBatch) -> list[tuple[int, Entry]]:
        """The rows of the batch that are on the board."""
        records, first = decoded.records, decoded.first
        run = set(decoded.batch.rows.tolist())
        listed: list[tuple[int, Entry]] = []
        for lane, start, stop in records.spans:
            if decoded.source in self._digests:
                if not self._board.has_digests(self._service, lane.source):
                    continue
                for index in range(start, stop):
                    entry = self._board.at(self._service, lane.source, lane.partition, digest(records, index))
                    if entry is not None:
                        listed.append((first + index, entry))
                continue
            positions = records.positions[start:stop]
            ends = int(positions[0]), int(positions[-1])
            for entry in self._board.within(self._service, lane.source, lane.partition, *ends):
                low, high = np.searchsorted(positions, [entry.first, entry.last + 1]).tolist()
                listed += [(first + start + index, entry) for index in range(low, high)]
        return [(row, entry) for row, entry in listed if row in run]
