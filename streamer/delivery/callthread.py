"""`CallThread`: a thread for calls that may block beyond their deadline."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future


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
