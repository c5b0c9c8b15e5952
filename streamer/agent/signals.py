"""Stopping a service on SIGTERM and SIGINT."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within this context the first SIGTERM or SIGINT calls `stop`; a second one goes to the earlier handler.

    Python allows signal handlers in the main thread only: in any other thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def first(number: int, frame: FrameType | None) -> None:
        restore()
        stop()

    def restore() -> None:
        for number, handler in before.items():
            # None: the handler was set by other code than Python's, and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    for number in _SIGNALS:
        signal.signal(number, first)
    try:
        yield
    finally:
        restore()
