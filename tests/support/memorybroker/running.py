"""`MemoryBroker`: the broker in a thread of this process, from its start to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self, TypeVar

from connectors.mqtt.server import Limits, Server
from memorybroker.broker import ALIASES, Broker
from pipelines.errors import ConnectorError
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.ports import HOST
from streamer.devbroker.program import Started

T = TypeVar("T")


class MemoryBroker(Started):
    """A broker for MQTT 3.1.1 and 5.0 in a thread of this process, listening on 127.0.0.1 only.

    It holds all data in memory: messages that it has confirmed are gone when it ends. `port`: 0 takes any free one.
    `broker`: another behaviour than the usual one, for tests. `users`: names and passwords that may log in; without
    them every client may.

    Raises `BrokerError` from `start()` where the port is taken.
    """

    host = HOST

    def __init__(
        self,
        port: int = 0,
        *,
        users: Mapping[str, str] | None = None,
        broker: Callable[[Limits], Broker] | None = None,
        limits: Limits | None = None,
    ) -> None:
        limits = limits or Limits(connections=10_000, max_packet=268_435_455)
        self.broker = broker(limits) if broker is not None else Broker(limits, users=users)
        self.server = self.made_server(port, limits)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.server.port

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"mqtt://{self.host}:{self.port}"

    def describe(self) -> str:
        """A description in one line."""
        return f"an MQTT broker for tests on {self.url}, all data in memory and gone when it stops"

    def made_server(self, port: int, limits: Limits) -> Server:
        """The server below it, not yet started; for tests to override."""
        return Server(self.broker, HOST, port, limits=limits, aliases=ALIASES, name="the broker for tests")

    def start(self) -> Self:
        """Listen from now on."""
        try:
            self.server.start()
        except ConnectorError as error:
            raise BrokerError(f"{error}: stop the program that listens there or choose another port") from error
        return self

    def stop(self) -> None:
        """Disconnect all clients and discard all data."""
        self.server.stop()

    def ask(self, function: Callable[[Broker], T]) -> T:
        """The result of `function(broker)`, run in the broker's thread."""
        return self.server.ask(lambda: function(self.broker))
