"""`LocalEngine`: pieces in processes of this machine, which are started fresh."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pipelines.errors import StreamerError
from streamer.backfill.engines.engine import Job, Worker
from streamer.backfill.pieces import Outcome, Piece

_WAITING: Final = 2
"""How many pieces wait for a worker."""
_TICK: Final = 0.5
"""Seconds that nothing may happen before that is said."""
_MOST_LOST: Final = 3
"""How many pools may end one after the other before any process has opened the job."""
_DEADLY: Final = (
    "its process has died twice, the second time with this piece alone: the memory is too small, or a library crashes"
)
_OF_TERMINALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name))
"""Terminals send these to all their processes; the driver says when to stop."""

_job: Job | None = None
_worker: Worker | None = None
_stopped: Any = None
_opened: Any = None


class LocalEngine:
    """Runs pieces in `workers` processes (`streamer.backfill.engines.engine.Engine`)."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def outcomes(
        self, job: Job, pieces: Iterable[Piece], stop: threading.Event
    ) -> Generator[Outcome | None, None, None]:
        """As `Engine.outcomes`. A process that dies takes its pool with it: a new pool goes on."""
        waiting = iter(pieces)
        lost = _Lost()
        while (unfinished := (yield from _pooled(job, waiting, self.workers, stop, lost))) is not None:
            # Which of them has ended the process is seen when each runs alone.
            for suspect in unfinished:
                if not stop.is_set() and (yield from _pooled(job, iter([suspect]), 1, stop, lost)) is not None:
                    yield Outcome(suspect, failure=_DEADLY)


@dataclass(slots=True)
class _Lost:
    """How many pools have ended since a process has opened the job."""

    pools: int = 0

    def count(self, *, opened: bool) -> None:
        """A pool has ended. Raises `StreamerError` if no process gets as far as to open the job."""
        self.pools = 0 if opened else self.pools + 1
        if self.pools == _MOST_LOST:
            raise StreamerError(
                "worker processes die before they have opened the service: the memory is too small, or a library "
                "crashes; a program that calls this has to do so below `if __name__ == '__main__':`"
            )


def _pooled(
    job: Job, pieces: Iterator[Piece], workers: int, stop: threading.Event, lost: _Lost
) -> Generator[Outcome | None, None, list[Piece] | None]:
    """The outcomes of pieces in a pool of processes.

    Returns `None` when all are there, or `stop` is set; if a process has died, the pieces that were under way or
    waited for it, which have no outcome.
    """
    context = multiprocessing.get_context("spawn")
    stopped, opened = context.Event(), context.Event()
    running: dict[Future[Outcome | None], Piece] = {}
    with ExitStack() as ends:
        pool = ProcessPoolExecutor(workers, context, _begin, (job, stopped, opened))
        ends.callback(pool.shutdown, cancel_futures=True)
        ends.callback(stopped.set)
        while True:
            while not stop.is_set() and len(running) < workers + _WAITING:
                piece = next(pieces, None)
                if piece is None:
                    break
                try:
                    with _signals_waiting():
                        running[pool.submit(_run, piece)] = piece
                except BrokenProcessPool as error:
                    failed: Future[Outcome | None] = Future()
                    failed.set_exception(error)
                    running[failed] = piece
            if stop.is_set():
                stopped.set()
                for future in running:
                    future.cancel()
            if not running:
                return None
            done, _ = wait(running, _TICK, FIRST_COMPLETED)
            if not done:
                yield None
            broken = []
            for future in done:
                piece = running.pop(future)
                if future.cancelled():
                    continue
                if isinstance(future.exception(), BrokenProcessPool):
                    broken.append(piece)
                elif (outcome := future.result()) is not None:
                    yield outcome
            if broken:
                # All that are left are broken too, or have ended before.
                wait(running)
                for future, piece in running.items():
                    if future.cancelled() or isinstance(future.exception(), BrokenProcessPool):
                        broken.append(piece)
                    elif (outcome := future.result()) is not None:
                        yield outcome
                if stop.is_set():
                    return None
                lost.count(opened=opened.is_set())
                return broken


@contextmanager
def _signals_waiting() -> Iterator[None]:
    """Inside, those of terminals wait, in processes that are started too, until they are passed over there.

    Else such a process shows where in its imports it was interrupted.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(job: Job, stopped: Any, opened: Any) -> None:
    """Called in each process before its first piece."""
    global _job, _stopped, _opened
    _job, _stopped, _opened = job, stopped, opened
    for number in _OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_TERMINALS)
    threading.Thread(target=_end_with_driver, name="streamer-driver", daemon=True).start()


def _end_with_driver() -> None:
    # The queue of a pool does not tell that a driver was killed.
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)


def _run(piece: Piece) -> Outcome | None:
    global _worker
    if _worker is None:
        assert _job is not None
        try:
            _worker = _job.open()
        except (StreamerError, OSError) as error:
            # Errors with several arguments cannot be sent to another process.
            raise StreamerError(str(error)) from None
        _opened.set()
    return _worker.run(piece, _stopped.is_set)
