"""`Slots`: bounds how many calls are under way at a time, for threads and for tasks of asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import Future


class Slots:
    """So many slots. Whoever waits for one gets it in the order of asking."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[Future[None]] = deque()

    def take(self, deadline: float) -> bool:
        """Take a slot; wait until `deadline` (seconds of `time.monotonic`) for it. Returns whether there was a slot."""
        granted = self._asked()
        if granted is None:
            return True
        try:
            granted.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return not granted.cancel()
        except BaseException:
            # Ctrl-C, for example.
            if not granted.cancel():
                self.free()
            raise
        return True

    async def taken_by_task(self, deadline: float) -> bool:
        """As `take`, without blocking the event loop."""
        granted = self._asked()
        if granted is None:
            return True
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await asyncio.wrap_future(granted)
        except BaseException as error:
            if granted.cancel():
                if isinstance(error, TimeoutError):
                    return False
            elif isinstance(error, TimeoutError):
                return True
            else:
                # The slot came while the task was being cancelled.
                self.free()
            raise
        return True

    def free(self) -> None:
        """Give a slot back."""
        with self._lock:
            while self._waiting:
                granted = self._waiting.popleft()
                # False: it does not wait any more.
                if granted.set_running_or_notify_cancel():
                    granted.set_result(None)
                    return
            self._free += 1

    def _asked(self) -> Future[None] | None:
        """`None` with a slot taken, or else what is done when there is one."""
        with self._lock:
            if self._free:
                self._free -= 1
                return None
            granted: Future[None] = Future()
            self._waiting.append(granted)
            return granted
