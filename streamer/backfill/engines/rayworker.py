"""`RayWorker`: what runs in an actor of Ray. Importing it needs no Ray."""

from __future__ import annotations

import pickle
import platform
import sys
import threading
from importlib.metadata import version

from pipelines.errors import DISTRIBUTION, RAISED, StreamerError
from streamer.backfill.engines.engine import Job, Worker
from streamer.backfill.pieces import Outcome, Piece


class RayWorker:
    """An actor that runs pieces, one at a time; only `stop` is called meanwhile."""

    def __init__(self, driver: str, job: bytes) -> None:
        """`driver`: the version of streamer where the driver runs. `job`: a pickled `Job`."""
        self._driver = driver
        self._job = job
        self._stopped = threading.Event()
        self._worker: Worker | None = None

    def open(self) -> str | None:
        """Load the models. Returns why that cannot be done, else `None`."""
        here = version(DISTRIBUTION)
        if here != self._driver:
            return (
                f"the worker on {platform.node()} has {DISTRIBUTION} {here}, and the driver {self._driver}; install "
                f"the same version for {sys.executable}"
            )
        try:
            job: Job = pickle.loads(self._job)  # noqa: S301 - of this project's driver, as the actor itself is
            self._worker = job.open()
        except RAISED as error:  # Not all errors can travel.
            text = str(error) if isinstance(error, StreamerError) else f"{type(error).__name__}: {error}"
            return f"a worker on {platform.node()} cannot open the service: {text}"
        return None

    def run(self, piece: Piece) -> Outcome | None:
        """As `streamer.backfill.engines.engine.Worker.run`; the job is open."""
        assert self._worker is not None
        return self._worker.run(piece, self._stopped.is_set)

    def stop(self) -> None:
        """Break off the piece that runs."""
        self._stopped.set()

    def close(self) -> None:
        """Release the models."""
        if self._worker is not None:
            self._worker.close()
