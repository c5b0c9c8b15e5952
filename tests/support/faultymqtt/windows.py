"""How many messages of QoS 1 and 2 a broker sends before the client acknowledges some."""

from __future__ import annotations


class Window:
    """At most `limit` unacknowledged messages, as in the standard."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def room(self, unacknowledged: int) -> int:
        """How many more may be sent now."""
        return self.limit - unacknowledged

    def acknowledged(self) -> None:
        """The client has acknowledged a message."""


class BatchWindow(Window):
    """As HiveMQ CE: one message, then batches of `limit`, each when the one before is acknowledged as a whole."""

    def __init__(self, limit: int = 50) -> None:
        super().__init__(limit)
        self._left = 1

    def room(self, unacknowledged: int) -> int:
        return self._left - unacknowledged

    def acknowledged(self) -> None:
        self._left -= 1
        if not self._left:
            self._left = self.limit


class OverrunWindow(Window):
    """As mosquitto 2.0: every acknowledgement releases `limit` more messages, whatever is in flight."""

    def __init__(self, limit: int = 64) -> None:
        super().__init__(limit)
        self._credit = limit

    def room(self, unacknowledged: int) -> int:
        return self._credit - unacknowledged

    def acknowledged(self) -> None:
        self._credit += self.limit - 1
