"""`FaultyMqtt`: an MQTT broker in a thread of this process, from its start to its end."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from typing import Self, TypeVar

from connectors.mqtt.protocol.packets import Connect, Packet, Publish
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.server import Connection, Limits, Server
from faultymqtt.broker import ALIASES, Broker, Faults
from streamer.devbroker.ports import HOST
from streamer.devbroker.program import Started

T = TypeVar("T")


class _Connection(Connection):
    """Loses what it is told to lose."""

    faults: Faults

    def send(self, *packets: Packet) -> None:
        drop = self.faults.drop
        super().send(*(packet for packet in packets if drop is None or not drop(packet)))


class FaultyMqtt(Started):
    """A broker for MQTT 3.1.1 and 5.0 on 127.0.0.1, with `faults`, and with what can happen to a broker as methods.

    All data is in memory, and gone when it ends. It may be used from any thread.
    """

    host = HOST

    def __init__(self, *, tls: ssl.SSLContext | None = None, limits: Limits | None = None) -> None:
        """`tls`: with what connections are encrypted."""
        limits = limits or Limits(connections=10_000, max_packet=268_435_455)
        self.faults = Faults()
        self.inside = Broker(limits, self.faults)
        """The broker proper; to be read in `ask`, or when nothing moves."""
        self._tls = tls
        self._thawed = threading.Event()
        self.server = self._made_server(0, limits)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.server.port

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"mqtt://{self.host}:{self.port}"

    def describe(self) -> str:
        return f"an MQTT broker for tests on {self.url}"

    def start(self) -> Self:
        self.server.start()
        return self

    def stop(self) -> None:
        self.thaw()
        self.server.stop()

    def ask(self, function: Callable[[Broker], T]) -> T:
        """The result of `function(broker)`, run in the broker's thread."""
        return self.server.ask(lambda: function(self.inside))

    @property
    def connects(self) -> list[Connect]:
        """Every CONNECT so far."""
        return list(self.inside.connects)

    @property
    def acknowledgements(self) -> list[int]:
        """The packet ids of every PUBACK so far."""
        return list(self.inside.acknowledgements)

    @property
    def most_unacknowledged(self) -> int:
        """The most messages of QoS 1 and 2 that were in flight to a client when it acknowledged one."""
        return self.inside.most_unacknowledged

    @property
    def clients(self) -> set[str]:
        """Who is connected."""
        return self.ask(lambda broker: {name for name, session in broker.sessions.items() if session.connection})

    @property
    def subscribers(self) -> set[str]:
        """Who is connected and has subscribed: what is published from now on goes to them."""
        return self.ask(
            lambda broker: {
                name for name, session in broker.sessions.items() if session.connection and session.subscriptions
            }
        )

    def unacknowledged(self, client_id: str) -> int:
        """How many messages the client has not acknowledged, those counted that it has not been sent yet."""

        def count(broker: Broker) -> int:
            session = broker.sessions.get(client_id)
            return 0 if session is None else len(session.sent) + len(session.waiting)

        return self.ask(count)

    def in_flight(self, client_id: str) -> int:
        """How many messages of QoS 1 and 2 the client has been sent and has not acknowledged."""
        return self.ask(lambda broker: len(broker.sessions[client_id].sent))

    def publish(self, topic: str, *payloads: bytes, qos: int = 1, retain: bool = False) -> None:
        """Messages as from some client."""
        self.ask(lambda broker: [broker.publish(Publish(topic, payload, qos, retain)) for payload in payloads])

    def send_raw(self, client_id: str, data: bytes) -> None:
        """Send these bytes to the client as they are, such as a packet that breaks the rules."""
        self._each(client_id, lambda connection: connection.write(data))

    def freeze(self) -> None:
        """Answer nothing until `thaw`; connections stay open, and more can be made."""
        self._thawed.clear()
        frozen = threading.Event()

        def stand_still() -> None:
            frozen.set()
            self._thawed.wait()

        self.server.call(stand_still)
        frozen.wait()

    def thaw(self) -> None:
        """Go on."""
        self._thawed.set()

    def cut(self, client_id: str | None = None) -> None:
        """End the connection of this client, or of all, without a word."""
        self._each(client_id, lambda connection: connection.close())

    def disconnect(self, client_id: str, reason: ReasonCode) -> None:
        """Send the client away with this reason (MQTT 5)."""
        self._each(client_id, lambda connection: connection.close(reason))

    def forget(self, client_id: str | None = None) -> None:
        """Forget the session of this client, or of all, and end its connection, as a broker that was restarted does."""
        self.cut(client_id)

        def forget(broker: Broker) -> None:
            for name in list(broker.sessions) if client_id is None else [client_id]:
                broker.forget_session(name)

        self.ask(forget)

    def unsubscribe(self, client_id: str, *filters: str) -> None:
        """Forget these subscriptions of the client, all by default, and let it believe that it is subscribed."""

        def forget(broker: Broker) -> None:
            subscriptions = broker.sessions[client_id].subscriptions
            for each in filters or tuple(subscriptions):
                del subscriptions[each]

        self.ask(forget)

    def restart(self) -> None:
        """Stop listening, end all connections, and come back on the same port with all sessions."""
        port = self.port
        self.server.stop(None)
        self.server = self._made_server(port, self.server.limits)
        self.server.start()

    def _made_server(self, port: int, limits: Limits) -> Server:
        connection = type("_FaultyConnection", (_Connection,), {"faults": self.faults})
        return Server(self.inside, HOST, port, limits=limits, aliases=ALIASES, connection=connection, context=self._tls)

    def _each(self, client_id: str | None, function: Callable[[Connection], None]) -> None:
        def act() -> None:
            for connection in list(self.server.connections):
                if connection.accepted and client_id in (None, connection.client_id):
                    function(connection)

        self.server.ask(act)
