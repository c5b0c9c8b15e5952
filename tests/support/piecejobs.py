"""Jobs for engines: workers whose pieces say by their names what becomes of them, and notes of what they did."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import StreamerError
from streamer.backfill.pieces import Outcome, Piece
from streamer.backfill.places import StoredFile


def piece(name: str) -> Piece:
    return Piece("jsonl", (StoredFile(f"/in/{name}", name, 1, ""),), name, rows=3)


@dataclass(frozen=True)
class NotingJob:
    """Each process writes what it does into a file of this folder, named by its number."""

    folder: Path
    fails: bool = False
    """The job cannot be opened."""
    dies: bool = False
    """Opening it ends the process."""

    def open(self) -> NotingWorker:
        if self.fails:
            raise StreamerError("model.onnx: there is no such file")
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return NotingWorker(self.folder)

    def notes(self) -> dict[str, list[str]]:
        """What each process did, in order."""
        return {path.name: path.read_text().split() for path in self.folder.iterdir()}


class NotingWorker:
    def __init__(self, folder: Path) -> None:
        self._notes = folder / str(os.getpid())
        self._thread = threading.get_ident()
        self._note("open")

    def run(self, piece: Piece, stopped: Callable[[], bool]) -> Outcome | None:
        assert threading.get_ident() == self._thread, "a worker is of one thread"
        name = piece.output
        self._note(name)
        died_before = sum(name in path.read_text().split() for path in self._notes.parent.iterdir()) > 1
        if name == "deadly" or (name == "dies-once" and not died_before):
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "unreadable":
            return Outcome(piece, failure="no Parquet file")
        while name == "meets-another" and len([*self._notes.parent.iterdir()]) < 2:
            time.sleep(0.01)
        while name == "endless":
            if stopped():
                self._note("broken-off")
                return None
            time.sleep(0.01)
        return Outcome(piece, 3, 3, output=f"{name}.jsonl")

    def close(self) -> None:
        self._note("close")

    def _note(self, word: str) -> None:
        with self._notes.open("a") as notes:
            notes.write(f"{word}\n")
