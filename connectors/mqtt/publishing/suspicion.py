"""`Suspicion`: finds the message at which a broker ends the connection without a reason."""

from __future__ import annotations

from connectors.mqtt.session.session import Session
from connectors.records import Ints

ENDS = 2
"""Connections in a row that end without an acknowledgement, after which fewer messages are published ahead."""
TRIES = 3
"""Connections in a row that end at the same message, published alone, after which it is given up."""

MOST = 1 << 16
"""The most messages that are ever published ahead."""


class Suspicion:
    """Brokers of MQTT 3.1.1 cannot refuse a message, so many end the connection at one that is too large or that the
    client may not publish. It would be published again at once, and hold up all others for good.

    So after some connections without progress the messages that were on the way are published again with care: once a
    ping on the new connection was answered, first one, then two ahead of their acknowledgements, then four. A message
    at which the connection ends again and again, though no other is on the way, is refused: a network or a broker that
    fails would not let the ping be answered and that message not, each time.
    """

    def __init__(self, session: Session) -> None:
        self.careful = False
        """Whether messages are published with care on this connection."""
        self._session = session
        self._ping: int | None = None
        self._ends = 0
        self._until = 0
        self._ahead = 1
        self._suspect = -1
        self._tries = 0

    def begin(self, first: int) -> None:
        """A connection begins; `first` is the number of the oldest unconfirmed message."""
        self.careful = first < self._until
        self._ping = self._session.ping() if self.careful else None

    def answered(self, first: int) -> bool:
        """Whether the connection has answered its ping, or need not any more."""
        self.careful = first < self._until
        return not self.careful or self._ping is None or self._session.answered(self._ping)

    @property
    def ahead(self) -> int:
        """How many messages may be on the way at a time, with care."""
        return self._ahead

    def progress(self) -> None:
        """Note that the broker has answered for some messages."""
        self._ends = self._tries = 0
        self._ahead = min(2 * self._ahead, MOST)

    def ended(self, sent: Ints, first: int) -> int | None:
        """Note the end of a connection with these messages unanswered. Returns the number of a refused message."""
        if not len(sent):
            self._ends = self._tries = 0
            return None
        self._ends += 1
        if first >= self._until and self._ends < ENDS:
            return None
        tried = first < self._until and len(sent) == 1
        self._until = max(self._until, int(sent[-1]) + 1)
        self._ahead = 1
        if not tried:
            self._tries = 0
            return None
        number = int(sent[0])
        self._tries = self._tries + 1 if number == self._suspect else 1
        self._suspect = number
        if self._tries < TRIES:
            return None
        self._ends = self._tries = 0
        return number
