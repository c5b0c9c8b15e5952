"""`RayWorker`: what runs in an actor of Ray. Importing it needs no Ray."""

from __future__ import annotations

import pickle
import platform
import threading

from pipelines.errors import RAISED, StreamerError
from streamer.backfill.engines.engine import Job, Worker
from streamer.backfill.pieces import Outcome, Piece
from streamer.shipped import check_version


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
        try:
            check_version(self._driver)
            job: Job = pickle.loads(self._job)  # noqa: S301 - of this project's driver, as the actor itself is
            self._worker = job.open()
        except StreamerError as error:
            return str(error)
        except RAISED as error:  # Not all errors can travel.
            return f"a worker on {platform.node()} cannot open the service: {type(error).__name__}: {error}"
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
