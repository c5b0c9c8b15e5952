"""`RayEngine`: pieces in the actors of a cluster of Ray, each a process of its own on any of the cluster's machines."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

from pipelines.errors import DISTRIBUTION, StreamerError
from streamer.backfill.engines.engine import Job
from streamer.backfill.engines.raycluster import RayCluster, check_ray
from streamer.backfill.engines.rayworker import RayWorker
from streamer.backfill.pieces import Outcome, Piece

_TICK: Final = 0.5
"""Seconds that nothing may happen before that is said."""
_CLOSING: Final = 10.0
"""Seconds that actors get to release their models."""
_BESIDE: Final = "beside"
"""What is called so is not queued behind the piece that runs."""
_LOST: Final = 3
"""So many actors in a row may die before one of them has opened the job."""
_DEADLY: Final = (
    "the process that ran it has died twice, the second time with this piece alone: the memory of the machine is too "
    "small, a library crashes, or the machine went away"
)


class RayEngine:
    """Runs pieces in `workers` actors (`streamer.backfill.engines.engine.Engine`), by default one for each CPU.

    The cluster is that which this process is connected to, else that of `RAY_ADDRESS`, else one that runs on this
    machine, else one that is started on it and ends with the iterator of outcomes.
    """

    def __init__(self, workers: int | None = None) -> None:
        """Raises `MissingPackageError` without Ray."""
        check_ray()
        self._workers = workers

    def outcomes(
        self, job: Job, pieces: Iterable[Piece], stop: threading.Event
    ) -> Generator[Outcome | None, None, None]:
        """As `Engine.outcomes`. Raises `StreamerError` if the cluster cannot be reached."""
        cluster = RayCluster.connected(self._workers)
        pool = _Pool(cluster.ray, self._workers or cluster.cpus, job)
        try:
            yield from pool.outcomes(iter(pieces), stop)
        finally:
            pool.close()
            cluster.close()


@dataclass(slots=True)
class _Pool:
    """Actors, each of which does nothing, opens the job, or runs a piece."""

    ray: Any
    workers: int
    job: Job
    idle: deque[Any] = field(default_factory=deque)
    opening: dict[Any, Any] = field(default_factory=dict)
    """The actor that opens the job, by Ray's reference to the end of that."""
    running: dict[Any, tuple[Any, Piece]] = field(default_factory=dict)
    """The actor that runs a piece, and the piece, in the same way."""
    suspects: deque[Piece] = field(default_factory=deque)
    """Pieces whose actor has died, to be run alone."""
    lost: int = 0
    """How many actors have died since one has opened the job."""

    def outcomes(self, pieces: Iterator[Piece], stop: threading.Event) -> Generator[Outcome | None, None, None]:
        for _ in range(self.workers):
            self._start()
        alone: Piece | None = None
        stopping = False
        while True:
            if stop.is_set() and not stopping:
                stopping = True
                for actor, _ in self.running.values():
                    actor.stop.options(concurrency_group=_BESIDE).remote()
            while not stopping and self.idle and alone is None:
                piece = next(pieces, None)
                if piece is None:
                    if self.running or not self.suspects:
                        break
                    piece = alone = self.suspects.popleft()
                actor = self.idle.popleft()
                self.running[actor.run.remote(piece)] = actor, piece
            if not self.running and (stopping or self.idle):
                return
            ready, _ = self.ray.wait([*self.running, *self.opening], timeout=_TICK)
            if not ready:
                yield None
            for reference in ready:
                if reference in self.opening:
                    self._opened(reference)
                    continue
                piece = self.running[reference][1]
                try:
                    outcome = self._outcome(reference)
                except self.ray.exceptions.RayActorError as error:
                    if piece is alone:
                        yield Outcome(piece, failure=f"{_DEADLY} ({_first_line(error)})")
                    else:
                        self.suspects.append(piece)
                else:
                    if outcome is not None:
                        yield outcome
                alone = None if piece is alone else alone

    def close(self) -> None:
        """End all actors; those that run nothing release their models before."""
        closing = [actor.close.remote() for actor in self.idle]
        if closing:
            self.ray.wait(closing, num_returns=len(closing), timeout=_CLOSING)
        for actor in [*self.idle, *self.opening.values(), *(actor for actor, _ in self.running.values())]:
            self.ray.kill(actor)

    def _start(self) -> None:
        # Pieces are run once more by this class, which knows which of them has ended an actor.
        actor = self.ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, concurrency_groups={_BESIDE: 1})(
            RayWorker
        ).remote(version(DISTRIBUTION), pickle.dumps(self.job))
        self.opening[actor.open.remote()] = actor

    def _opened(self, reference: Any) -> None:
        actor = self.opening.pop(reference)
        try:
            failure = self.ray.get(reference)
        except self.ray.exceptions.RayActorError as error:
            self.lost += 1
            if self.lost >= _LOST:
                raise StreamerError(f"Ray's workers die before they have opened the service: {error}") from error
            self._start()
            return
        if failure is not None:
            raise StreamerError(failure)
        self.lost = 0
        self.idle.append(actor)

    def _outcome(self, reference: Any) -> Outcome | None:
        """What a piece has come to. Raises `RayActorError` if its actor has died, after another is on its way."""
        actor, _ = self.running.pop(reference)
        try:
            outcome: Outcome | None = self.ray.get(reference)
        except self.ray.exceptions.RayActorError:
            # It may be there still, where only the network is gone.
            self.ray.kill(actor)
            self._start()
            raise
        self.idle.append(actor)
        return outcome


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
