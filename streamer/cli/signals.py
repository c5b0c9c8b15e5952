"""SIGTERM and SIGINT on the command line: the first drains, the second ends at once with exit code 130.

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

SIGNALS = (signal.SIGTERM, signal.SIGINT)
CUT_SHORT = 130

_BEFORE: dict[signal.Signals, Any] = {}


def ending_at_once() -> None:
    """From now on, until `draining`, a signal ends the process with exit code 0, as no records are in flight."""
    for number in SIGNALS:
        # Not by an exception: there is code of others in between, and imports that would swallow it.
        _BEFORE[number] = signal.signal(number, lambda number, frame: os._exit(0))


@contextmanager
def draining(stop: Callable[[], None], note: str = "") -> Iterator[None]:
    """Inside, the first signal calls `stop` and writes `note` to stderr; the second one ends the process.

    In another thread than the main one, which gets all signals, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: _BEFORE.pop(number, signal.getsignal(number)) for number in SIGNALS}
    stopping = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            with suppress(Exception):
                sys.stdout.flush()
            # At once: neither threads that are stuck nor exit handlers are waited for.
            os._exit(CUT_SHORT)
        stopping = True
        if note:
            # Not print: a handler may run in the middle of one.
            os.write(2, f"{note}\n".encode())
        stop()

    for number in SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
