"""How many messages of QoS 1 and 2 a broker sends before the client acknowledges some."""

from __future__ import annotations


class Window:
    """At most `limit` unacknowledged messages, as in the standard. Classes for other brokers derive from this."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def room(self, unacknowledged: int) -> int:
        """How many more may be sent now."""
        return self.limit - unacknowledged

    def acknowledged(self) -> None:
        """The client has acknowledged a message."""
