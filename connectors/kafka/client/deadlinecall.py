"""Deadlines for calls that have none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

Result = TypeVar("Result")


class DeadlineCalls:
    """Runs blocking calls of one client, each in a thread of its own and with a timeout, one after the other.

    A call that is late goes on in its thread; the next call waits for it, so that a client is never closed during a
    call.
    """

    def __init__(self) -> None:
        self._last: threading.Thread | None = None

    def run(self, call: Callable[[], Result], timeout: float) -> Result:
        """The result of `call`. Raises its error, and `TimeoutError` after `timeout` seconds."""
        before = self._last

        def work() -> Result:
            if before is not None:
                before.join()
            return call()

        future, self._last = _prepared(work, "kafka deadline")
        self._last.start()
        return future.result(timeout)


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
            self._running, self._thread = _prepared(call, f"kafka {name}")
            self._thread.start()
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


def _prepared(call: Callable[[], Result], name: str) -> tuple[Future[Result], threading.Thread]:
    future: Future[Result] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            future.set_exception(error)

    return future, threading.Thread(target=work, name=name, daemon=True)
