"""`ResumableCalls`: blocking calls with a timeout, after which they go on and are waited for again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from connectors.daemonpool import DaemonPool

Result = TypeVar("Result")


class Abandoned(Exception):
    """A call was given up while it ran: its object serves others now, and the call must not change it."""


class ResumableCalls:
    """Runs blocking calls of one client in a thread, one after the other. One that is late goes on, and is waited for
    again by `run` with the same name. Used by one thread.
    """

    def __init__(self) -> None:
        self._name = ""
        self._running: Future[Any] | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether a call was late, and its end was not waited for since."""
        return self._running is not None

    def run(self, name: str, call: Callable[[], Result], timeout: float) -> Result:
        """The result of the running call of this name, or else of `call`. Raises its error, and `TimeoutError` after
        `timeout` seconds.

        A running call of another name ends first; its outcome is not learned.
        """
        deadline = time.monotonic() + timeout
        if self._running is not None and self._name != name:
            wait([self._running], timeout)
            if not self._running.done():
                raise TimeoutError
            self._running = None
        if self._running is None:
            self._name = name
            pool = DaemonPool(1, f"kafka {name}")
            (self._thread,) = pool.threads
            self._running = pool.submit(call)
            pool.shutdown()
        running = self._running
        wait([running], max(0.0, deadline - time.monotonic()))
        if not running.done():
            raise TimeoutError
        self._running = None
        result: Result = running.result()
        return result

    def give_up(self) -> threading.Thread | None:
        """Do not wait for the running call any more. Returns its thread; `None` if there is none."""
        late = None if self._running is None else self._thread
        self._running = self._thread = None
        return late

    def check(self) -> None:
        """For a running call itself: raise `Abandoned` if it was given up."""
        if threading.current_thread() is not self._thread:
            raise Abandoned
