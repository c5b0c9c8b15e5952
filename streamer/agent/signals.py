"""Stopping a service on SIGTERM, SIGINT and SIGHUP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""The signal of a terminal that was closed, or a login that ended; not on Windows."""


def stopping_signals() -> tuple[signal.Signals, ...]:
    """The signals that stop a service. A hangup that is ignored, as under `nohup`, stays so."""
    if HANGUP is None or signal.getsignal(HANGUP) is signal.SIG_IGN:
        return signal.SIGTERM, signal.SIGINT
    return signal.SIGTERM, signal.SIGINT, HANGUP


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within this context the first SIGTERM, SIGINT or SIGHUP calls `stop`; a second one goes to the earlier handler,
    but further hangups do nothing: a shell repeats the one of its terminal.

    Python allows signal handlers in the main thread only: in any other thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in stopping_signals()}

    def first(number: int, frame: FrameType | None) -> None:
        restore()
        if HANGUP is not None and HANGUP in before:
            signal.signal(HANGUP, signal.SIG_IGN)
        stop()

    def restore() -> None:
        for number, handler in before.items():
            # None: the handler was set by other code than Python's, and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        restore()
