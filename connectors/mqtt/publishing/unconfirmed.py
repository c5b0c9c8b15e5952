"""`Unconfirmed`: the messages between a sink and its publisher, counted until they are confirmed or lost."""

from __future__ import annotations

import threading
import time
from collections import deque

from connectors.records import Ints
from pipelines.errors import ConnectorError


class Unconfirmed:
    """What the sink's thread gives (`give`), and what becomes of it in the publisher's thread. Any thread may read the
    numbers; `changed` is notified when some have changed.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.confirmed: deque[Ints] = deque()
        """Row numbers of confirmed messages, once for each message."""
        self.lost: dict[int, ConnectorError] = {}
        """Rows whose message the broker refused; guarded by `changed`."""
        self._sizes: deque[tuple[int, int]] = deque()
        self._bytes_given = 0
        self._bytes_done = 0
        self._given = 0
        self._done = 0
        self._oldest: deque[tuple[int, float]] = deque()

    @property
    def bytes(self) -> int:
        """Bytes of the messages; a block counts wholly as long as one of its messages is unconfirmed."""
        return self._bytes_given - self._bytes_done

    @property
    def messages(self) -> int:
        """The number of messages."""
        return self._given - self._done

    @property
    def waited(self) -> float:
        """Seconds since `give` of the oldest message; 0 if there is none."""
        try:
            return time.monotonic() - self._oldest[0][1] if self.messages else 0.0
        except IndexError:
            return 0.0

    def give(self, count: int, size: int) -> None:
        """The sink gives a block of so many messages and bytes."""
        self._bytes_given += size
        self._given += count
        self._oldest.append((self._given, time.monotonic()))
        self._sizes.append((self._given, size))

    def confirm(self, rows: Ints, count: int, first: int) -> None:
        """`count` messages that answer these rows are confirmed; `first` is the number of the oldest that is not."""
        self.confirmed.append(rows)
        self._settle(count, first)

    def lose(self, rows: Ints, error: ConnectorError, first: int) -> None:
        """A message that answers these rows is lost; `first` as for `confirm`."""
        with self.changed:
            self.lost.update(dict.fromkeys(rows.tolist(), error))
        self._settle(1, first)

    def tell(self) -> None:
        """Notify `changed`."""
        with self.changed:
            self.changed.notify_all()

    def _settle(self, count: int, first: int) -> None:
        self._done += count
        while self._sizes and self._sizes[0][0] <= first:
            self._bytes_done += self._sizes.popleft()[1]
        while self._oldest and self._oldest[0][0] <= first:
            self._oldest.popleft()
        self.tell()
