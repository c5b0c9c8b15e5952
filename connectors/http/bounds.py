"""`Bounds`: what the connections of a server are limited to."""

from __future__ import annotations

from typing import Final, Protocol

PATIENCE: Final = 10.0
"""Seconds that a TLS handshake may take; the head of a request, from the connection or its first byte on; and in which
a client has to read some of its answer."""
LONGEST_HEAD: Final = 64 << 10
"""The most bytes of a request's first line and headers, and of anything else in it that is no body."""


class Abortable(Protocol):
    """A connection that can be ended at once."""

    def abort(self) -> None:
        """End it, and discard what was not sent yet."""


class Bounds:
    """The limits of a server's connections, and those that are open."""

    def __init__(self, connections: int, longest_head: int = LONGEST_HEAD, *, brief: bool = False) -> None:
        """`connections` is the most at a time: one more is closed at once.

        `brief`: for answers that are short. Then the oldest connection is closed to make room for one more, and each
        connection has to end within the time that a head may take, unless its answer is a stream.
        """
        self.longest_head = longest_head
        self.brief = brief
        self._most = connections
        self._open: dict[Abortable, None] = {}

    @property
    def patience(self) -> float:
        """Seconds that a client has for each of its parts."""
        return PATIENCE

    def admits(self, connection: Abortable) -> bool:
        """Whether this connection, which is new, may stay."""
        if len(self._open) >= self._most:
            if not self.brief:
                return False
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.abort()
        self._open[connection] = None
        return True

    def forget(self, connection: Abortable) -> None:
        """This connection has ended."""
        self._open.pop(connection, None)

    def make_room(self) -> None:
        """End connections, as the process has no file descriptors left: all whose answers are short."""
        for connection in list(self._open) if self.brief else ():
            connection.abort()
