"""Deadlines for calls that have none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

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
        future: Future[Result] = Future()
        before = self._last

        def work() -> None:
            if before is not None:
                before.join()
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                future.set_exception(error)

        self._last = threading.Thread(target=work, name="kafka deadline", daemon=True)
        self._last.start()
        return future.result(timeout)
