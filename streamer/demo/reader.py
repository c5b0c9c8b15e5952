"""A reader: takes the records of a source as any other consumer would, in its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from connectors.records import Lane, Records
from connectors.source import Source

WAIT = 0.1
"""Seconds of one wait for a first record."""
AT_ONCE = 4096
"""The most records of one poll."""
ROOM = 16 << 20
"""The most bytes of one poll."""


class Reader:
    """Hands each block of records to `take`, which returns whether they are the expected ones."""

    def __init__(self, source: Source, take: Callable[[Records], bool]) -> None:
        self._source = source
        self._take = take
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)
        self._error: Exception | None = None
        self.sees = threading.Event()
        """Set when the first expected records, or an error, have come."""

    def start(self) -> None:
        """Connect and begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading and disconnect; waits up to 5 s for that."""
        self._stop.set()
        self._source.wake()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def check(self) -> None:
        """Raise the error of the thread, if there was one."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._source.open()
            while not self._stop.is_set():
                for records in self._arrived():
                    if len(records) and self._take(records):
                        self.sees.set()
                    # Some buses deliver no more than a window of unacknowledged records.
                    self._source.acknowledge(_positions(records))
                self._source.events()
        except Exception as error:  # noqa: BLE001 - raised by `check`
            self._error = error
            self.sees.set()
        finally:
            self._source.close()

    def _arrived(self) -> list[Records]:
        # Wait for one record only, then take what else is there.
        first = self._source.poll(1, ROOM, WAIT)
        return [first, self._source.poll(AT_ONCE, ROOM, 0.0)] if len(first) else []


def _positions(records: Records) -> dict[Lane, int]:
    """The position behind the last record of each lane."""
    return {span.lane: int(np.max(records.positions[span.start : span.stop])) + 1 for span in records.spans}
