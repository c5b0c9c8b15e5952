"""SIGTERM, SIGINT and SIGHUP on the command line: the first drains, a second ends at once with exit code 130.

Imported before all else: it may only import light modules.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from streamer.agent.signals import HANGUP, stopping_signals

CUT_SHORT = 130

_BEFORE: dict[int, Any] = {}


def ending_at_once() -> None:
    """From now on, until `draining`, a signal ends the process with exit code 0, as no records are in flight."""
    for number in stopping_signals():
        # Not by an exception, which imported code could swallow.
        _BEFORE[number] = signal.signal(number, lambda number, frame: os._exit(0))


@contextmanager
def draining(stop: Callable[[], None], note: str = "", last: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Inside, the first signal calls `stop` and writes `note` to stderr; a second one calls `last` and ends the
    process.

    A repeated hangup does not count as a second signal: a shell repeats that of its terminal. In any other thread than
    the main one this does nothing. After `ending_at_once` the handlers stay to the end of the process: a signal that
    comes while the last lines are written does not change the exit code.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stays = bool(_BEFORE)
    signals = tuple(_BEFORE) or stopping_signals()
    _BEFORE.clear()
    before = {number: signal.getsignal(number) for number in signals}
    stopping = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        if number == HANGUP:
            _leave_terminal()
        if stopping:
            if number == HANGUP:
                return
            with suppress(Exception):
                sys.stdout.flush()
            with suppress(Exception):
                last()
            # At once: neither threads that are stuck nor exit handlers are waited for.
            os._exit(CUT_SHORT)
        stopping = True
        if note:
            # Not print: a handler may run in the middle of one.
            with suppress(OSError):
                os.write(2, f"{note}\n".encode())
        stop()

    for number in signals:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in {} if stays else before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def drain_at_hangup() -> None:
    """Turn the first SIGHUP into a SIGTERM, for a worker of another engine that drains at SIGTERM only."""
    if HANGUP is None or HANGUP not in stopping_signals():
        return

    def on_hangup(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        _leave_terminal()
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(HANGUP, on_hangup)


def _leave_terminal() -> None:
    """Discard further output to a terminal that is gone, where writing would raise an error."""
    for descriptor in (1, 2):
        try:
            os.write(descriptor, b"")
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
