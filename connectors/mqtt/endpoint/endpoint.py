"""The server that a service's source and sinks share."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from connectors.mqtt.endpoint.handler import EndpointHandler
from connectors.mqtt.endpoint.inbox import Inbox
from connectors.mqtt.endpoint.replies import Replies
from connectors.mqtt.server import Limits, Server
from pipelines.errors import ConnectorError


@dataclass(frozen=True)
class Listening:
    """How the endpoint listens. `window`: messages that a client may send ahead of their acknowledgement."""

    host: str
    port: int
    context: ssl.SSLContext | None
    limits: Limits
    max_held: int
    window: int
    users: Mapping[str, str] | None
    listens_to: Callable[[str], bool]


class Endpoint:
    """One listening server of this process, found by name; it ends when the source that opened it is closed."""

    _known: dict[str, Endpoint] = {}  # noqa: RUF012 - one for the process
    _lock = threading.Lock()

    def __init__(self, name: str) -> None:
        self.name = name
        self.replies: list[Replies] = []
        """The replies of each sink."""
        self.inbox: Inbox | None = None
        self.handler: EndpointHandler | None = None
        self.server: Server | None = None

    @classmethod
    def of(cls, name: str) -> Endpoint:
        """The endpoint of this name: a source of a service."""
        with cls._lock:
            return cls._known.setdefault(name, Endpoint(name))

    def listen(self, how: Listening) -> tuple[Inbox, EndpointHandler, Server]:
        """Accept clients from now on. Raises `ConnectorError` if the port is taken, or it listens already."""
        if self.server is not None:
            raise ConnectorError(f"{self.name} listens already: a service of this name runs in this process")
        inbox = Inbox(how.max_held)
        handler = EndpointHandler(
            inbox,
            self.replies,
            how.listens_to,
            users=how.users,
            window=how.window,
            max_packet=how.limits.max_packet,
            name=self.name,
        )
        server = Server(
            handler, how.host, how.port, limits=how.limits, context=how.context, aliases=how.window, name=self.name
        )
        server.start()
        self.inbox, self.handler, self.server = inbox, handler, server
        return inbox, handler, server

    def close(self) -> None:
        """Disconnect all clients. Messages to them from now on have no receiver."""
        server, self.server = self.server, None
        if server is not None:
            server.stop()
            for replies in self.replies:
                replies.give_up()
        with self._lock:
            if self._known.get(self.name) is self:
                del self._known[self.name]
