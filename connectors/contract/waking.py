"""The checks of `Source.wake` and `Source.await_records` in the contracts of sources."""

from __future__ import annotations

import threading
import time

from connectors.contract.bus import Bus, SourceBus
from connectors.contract.reader import Reader
from connectors.message import Message
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


def check_await_records(bus: SourceBus, source: Source) -> None:
    """A source that can tell without a poll says that records are there once there are some, and not before.

    Raises `AssertionError`.
    """
    if type(source).await_records is Source.await_records:
        return
    with Reader(source, bus.patience) as reader:
        reader.listen(bus.quiet)
        assert source.await_records(0.05) is False
        source.wake()
        began = time.monotonic()
        assert source.await_records(bus.patience) is False
        assert time.monotonic() - began < bus.patience / 2
        bus.feed([Message(bus.payload(0, 10), bus.key(0))])
        assert source.await_records(bus.patience) is True
        assert len(source.poll(10, 2**20, 0.0)) == 1
