"""`RetriedCall`: a call that may block beyond its deadline, made again until its outcome is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for

from connectors.daemonpool import DaemonPool
from connectors.sink import Voided
from pipelines.errors import ConnectorError
from streamer.delivery.sending import pause

CALL = 5.0
"""Seconds of one call at most, by its deadline; it is made again until its outcome is known."""
LEAST_CALL = 0.5
"""Seconds of one call when there is no time left: enough for a bus that answers."""
SLICE = 0.05
"""Seconds of one wait, between which messages of the intake threads are served."""


class RetriedCall:
    """Makes one call at a time on a thread of its own, again after a pause until its outcome is known."""

    def __init__(self, name: str) -> None:
        self.trouble = ""
        """Why the last call has to be made again; empty if it has not."""
        self.tries = 0
        """How often it has failed."""
        self.again_at = 0.0
        """When the next call is made at the earliest, on `time.monotonic`."""
        self._pool = DaemonPool(1, name)
        self._call: Callable[[float], None] | None = None
        self._future: Future[None] | None = None

    def start(self, call: Callable[[float], None]) -> None:
        """Make this call, with its deadline, in place of the one before."""
        self._call, self.tries, self.trouble = call, 0, ""
        self._submit(call)

    def has_returned(self) -> bool:
        """Look at the outcome of the call, or make it again if that is due; whether it has returned. Does not wait.

        Raises `Voided`, and `ConnectorError` where another call is no use.
        """
        if self._call is None:
            return False
        if self._future is None:
            if time.monotonic() >= self.again_at:
                self._submit(self._call)
            return False
        if not self._future.done():
            return False
        future, self._future = self._future, None
        try:
            future.result()
        except ConnectorError as error:
            if isinstance(error, Voided) or not error.retriable:
                raise
            self.trouble = str(error)
            self.again_at = time.monotonic() + pause(self.tries)
            self.tries += 1
            return False
        self._call = None
        return True

    def rest(self, deadline: float) -> None:
        """Wait a little for the call that is under way, or for the next."""
        left = min(deadline - time.monotonic(), SLICE)
        if self._future is not None:
            wait_for([self._future], timeout=max(left, 0.0))
        else:
            until = self.again_at - time.monotonic()
            time.sleep(max(min(left, until if until > 0 else SLICE), 0.0))

    def close(self) -> None:
        """End the thread, when the last call has returned: sinks are closed by another thread then."""
        self._pool.shutdown()
        if self._future is not None:
            wait_for([self._future], timeout=CALL + LEAST_CALL)

    def _submit(self, call: Callable[[float], None]) -> None:
        self._future = self._pool.submit(call, time.monotonic() + CALL)
