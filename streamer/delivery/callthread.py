"""`CallThread`: a thread for calls that may block beyond their deadline; `RetriedCall` makes them until they return."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import partial

from connectors.sink import Voided
from pipelines.errors import ConnectorError
from streamer.delivery.sending import pause

CALL = 5.0
"""Seconds of one call at most, by its deadline; it is made again until its outcome is known."""
LEAST_CALL = 0.5
"""Seconds of one call when there is no time left: enough for a bus that answers."""
SLICE = 0.05
"""Seconds of one wait, between which messages of the intake threads are served."""


class CallThread:
    """Runs calls, one after the other. A daemon: a call that never returns holds up no process that ends."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[], None]) -> Future[None]:
        """Queue a call; the future is done when it has returned, or holds its exception."""
        future: Future[None] = Future()
        self._calls.put((future, call))
        return future

    def close(self, seconds: float) -> None:
        """End when the calls so far have returned, which is waited for so long at most."""
        self._calls.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (found := self._calls.get()) is not None:
            future, call = found
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - it is raised where the future is looked at
                future.set_exception(error)
            else:
                future.set_result(None)


class RetriedCall:
    """Makes one call at a time on a `CallThread`, again after a pause until its outcome is known."""

    def __init__(self, name: str) -> None:
        self.trouble = ""
        """Why the last call has to be made again; empty if it has not."""
        self.tries = 0
        """How often it has failed."""
        self.again_at = 0.0
        """When the next call is made at the earliest, on `time.monotonic`."""
        self._thread = CallThread(name)
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
        self._thread.close(CALL + LEAST_CALL)

    def _submit(self, call: Callable[[float], None]) -> None:
        self._future = self._thread.submit(partial(call, time.monotonic() + CALL))
