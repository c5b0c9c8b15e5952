"""`Engine`: runs the pieces of a backfill in worker processes, and what it is given for that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable
from typing import Protocol

from streamer.backfill.pieces import Outcome, Piece


class Worker(Protocol):
    """An open pipeline, which runs pieces one after the other. Owned by one thread."""

    def run(self, piece: Piece, stopped: Callable[[], bool]) -> Outcome | None:
        """Read, run and write a piece. `None`: it was broken off, as `stopped` said so, and has written nothing.

        A piece that cannot be read or written is an outcome with a `failure`. `stopped` is asked before each batch.
        """

    def close(self) -> None:
        """Release the models."""


class Job(Protocol):
    """What all pieces of a backfill have in common. It can be pickled, and unpickled where nothing is imported yet."""

    def open(self) -> Worker:
        """A worker with its models loaded. Raises `StreamerError`."""


class Engine(Protocol):
    """Runs pieces by `Job.open` and `Worker.run`: a worker process opens the job once, and runs a piece at a time."""

    def outcomes(
        self, job: Job, pieces: Iterable[Piece], stop: threading.Event
    ) -> Generator[Outcome | None, None, None]:
        """The outcome of each piece as it is there, in any order; `None` at least about every half second.

        Pieces are asked for as workers get free, with a few that wait. A piece whose worker process dies is run once
        more, alone; if that dies too, the outcome has this as its failure.

        Once `stop` is set no more pieces begin, those that run are broken off, and the iterator ends. It releases all
        processes when it ends or is closed. Raises `StreamerError` if workers cannot open the job.
        """
