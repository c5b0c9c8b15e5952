"""Ctrl-C in a demo."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stop(threading.Event):
    """Set when the user ends a demo; `set` is called by the handler of a signal, in the main thread.

    Usually the demo looks at it now and then, so that records in flight are still run. While nothing is in flight yet,
    in a block of `at_once`, it raises `KeyboardInterrupt` instead: a download or the start of a broker may take long.
    """

    def __init__(self) -> None:
        super().__init__()
        self._at_once = False

    def set(self) -> None:
        """Stop the demo. Raises `KeyboardInterrupt` within a block of `at_once`."""
        super().set()
        if self._at_once and threading.current_thread() is threading.main_thread():
            self._at_once = False
            raise KeyboardInterrupt

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within the block, `set` raises `KeyboardInterrupt`; so does the beginning of a block after it."""
        self._at_once = True
        try:
            if self.is_set():
                raise KeyboardInterrupt
            yield
        finally:
            self._at_once = False


@contextmanager
def announced(stop: Stop, announce: Callable[[], None]) -> Iterator[None]:
    """Within the block, call `announce` as soon as `stop` is set.

    It is called in a thread of its own: the handler of a signal may not print, as it may run in the middle of a print,
    and the main thread may be busy for seconds.
    """
    over = False

    def wait() -> None:
        stop.wait()
        if not over:
            announce()

    thread = threading.Thread(target=wait, name="announce stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        if not stop.is_set():
            over = True
            stop.set()
        thread.join(5.0)
