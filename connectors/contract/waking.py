"""The check of `Source.wake` in the contracts of sources."""

from __future__ import annotations

import threading
import time

from connectors.contract.bus import Bus
from connectors.contract.reader import Reader
from connectors.source import Source


def check_wake(bus: Bus, source: Source) -> None:
    """Another thread can end a poll that waits for records. Raises `AssertionError`."""
    with Reader(source, bus.patience) as reader:
        reader.listen(bus.quiet)
        done = threading.Event()

        def wake() -> None:
            while not done.wait(0.1):
                source.wake()

        waker = threading.Thread(target=wake)
        waker.start()
        began = time.monotonic()
        try:
            source.poll(1, 2**20, bus.patience)
            assert time.monotonic() - began < bus.patience / 2
        finally:
            done.set()
            waker.join()
