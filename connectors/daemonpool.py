"""`DaemonPool`: threads for calls that may never return: steps of users, and calls of bus clients."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

Returned = TypeVar("Returned")


class DaemonPool(Executor):
    """A pool of daemon threads: a call that never returns holds up neither `shutdown` nor the end of the process.

    The library's `ThreadPoolExecutor` waits for its threads when the process ends, without a limit.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.threads = [
            threading.Thread(target=self._run, name=f"{name}_{number}", daemon=True) for number in range(threads)
        ]
        """`NAME_0`, `NAME_1`, ...: each of the first calls starts one of them."""
        self._unstarted = deque(self.threads)

    def submit(self, call: Callable[..., Returned], /, *args: Any, **kwargs: Any) -> Future[Returned]:
        """Run `call` on a thread of the pool; the future has what it returns or raises."""
        future: Future[Returned] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                returned = call(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is looked at
                future.set_exception(error)
            else:
                future.set_result(returned)

        self._work.put(run)
        if self._unstarted:
            self._unstarted.popleft().start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """The threads end when they have done what was submitted. Does not wait for them, whatever `wait` says."""
        for _ in self.threads:
            self._work.put(None)

    def _run(self) -> None:
        while (run := self._work.get()) is not None:
            run()
            # So that the batch is freed while the thread waits for the next call.
            del run
