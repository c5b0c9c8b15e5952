"""An MQTT broker that does what brokers do when they fail, or do it in their own way. In this process, by `Faults`."""

from __future__ import annotations

import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from memorybroker import MemoryBroker
from memorybroker.broker import ALIASES, Broker
from memorybroker.messages import Message
from memorybroker.session import Session
from memorybroker.window import Window

from connectors.mqtt.protocol.packets import Connect, Packet, Publish, Subscription
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.server import Connection, Limits, Server
from streamer.devbroker.ports import HOST


class BatchWindow(Window):
    """As HiveMQ CE: one message, then batches of `limit`, each when the one before is acknowledged as a whole."""

    def __init__(self, limit: int = 50) -> None:
        super().__init__(limit)
        self._left = 1
        self._sent = 0

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


@dataclass(slots=True)
class Faults:
    """What the broker does wrong, or in its own way. Set it at any time, from any thread."""

    window: Callable[[Connect], Window] | None = None
    """How many messages are in flight, whatever the client asked for: `lambda connect: Window(20)`."""
    strict: bool = False
    """A PUBACK out of order closes the connection, as rumqttd does."""
    redeliver_as_new: bool = False
    """What is delivered again has DUP 0 and new packet ids, as of rumqttd."""
    refuse_connects: deque[ReasonCode] = field(default_factory=deque)
    """The next clients are refused with these reasons, one each."""
    granted: Properties | None = None
    """What the CONNACK grants in MQTT 5, in place of what is usual."""
    grant: Callable[[str, int], ReasonCode] | None = None
    """What a subscription (filter, QoS) gets: a lower QoS, or a failure."""
    refuse: Callable[[Publish], ReasonCode | None] | None = None
    """Why a message is refused (the reason in PUBACK or PUBREC); `None` if it is not."""
    drop: Callable[[Packet], bool] | None = None
    """Whether this packet, from or to a client, is lost on the way. PINGREQ and CONNECT are never asked about."""


class _Connection(Connection):
    """Loses what it is told to lose."""

    faults: Faults

    def send(self, *packets: Packet) -> None:
        drop = self.faults.drop
        super().send(*(packet for packet in packets if drop is None or not drop(packet)))


class _Broker(Broker):
    def __init__(self, limits: Limits, faults: Faults) -> None:
        super().__init__(limits)
        self.faults = faults
        self.acknowledgements: list[int] = []
        self.connects: list[Connect] = []
        self.most_unacknowledged = 0

    def allow(self, connect: Connect) -> ReasonCode:
        self.connects.append(connect)
        return self.faults.refuse_connects.popleft() if self.faults.refuse_connects else super().allow(connect)

    def granted(self, connect: Connect, properties: Properties) -> Properties:
        found = self.faults.granted
        usual = super().granted(connect, properties)
        if found is None:
            return usual
        return replace(found, assigned_client_identifier=usual.assigned_client_identifier)

    def grant(self, session: Session, subscription: Subscription) -> ReasonCode:
        decide = self.faults.grant
        return super().grant(session, subscription) if decide is None else decide(subscription.filter, subscription.qos)

    def window_of(self, connect: Connect) -> Window:
        return super().window_of(connect) if self.faults.window is None else self.faults.window(connect)

    def resume(self, session: Session) -> None:
        if self.faults.redeliver_as_new:
            session.waiting.extendleft(reversed(session.sent.values()))
            session.sent.clear()
            session.flow()
        else:
            super().resume(session)

    def take(self, connection: Connection, packet: Publish) -> ReasonCode:
        reason = None if self.faults.refuse is None else self.faults.refuse(packet)
        return super().take(connection, packet) if reason is None else reason

    def received(self, connection: Connection, packet: Packet) -> None:
        if self.faults.drop is None or not self.faults.drop(packet):
            super().received(connection, packet)

    def acknowledged(self, session: Session, packet_id: int) -> None:
        self.most_unacknowledged = max(self.most_unacknowledged, len(session.sent))
        self.acknowledgements.append(packet_id)
        first = next(iter(session.sent), None)
        if self.faults.strict and packet_id != first:
            assert session.connection is not None
            session.connection.close(None, f"PUBACK {packet_id} before {first}")
        else:
            super().acknowledged(session, packet_id)


class FaultyMqtt(MemoryBroker):
    """The development broker with `faults`, and with what can happen to a broker as methods. From any thread."""

    def __init__(self, faults: Faults | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: with what connections are encrypted."""
        self.faults = faults or Faults()
        self._tls = tls
        super().__init__(broker=lambda limits: _Broker(limits, self.faults))
        self._thawed = threading.Event()

    def made_server(self, port: int, limits: Limits) -> Server:
        connection = type("_FaultyConnection", (_Connection,), {"faults": self.faults})
        return Server(self.broker, HOST, port, limits=limits, aliases=ALIASES, connection=connection, context=self._tls)

    @property
    def inside(self) -> _Broker:
        """The broker proper; to be read in `ask`, or when nothing moves."""
        assert isinstance(self.broker, _Broker)
        return self.broker

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
        return self.ask(
            lambda broker: len(broker.sessions[client_id].messages()) if client_id in broker.sessions else 0
        )

    def in_flight(self, client_id: str) -> int:
        """How many messages of QoS 1 and 2 the client has been sent and has not acknowledged."""
        return self.ask(lambda broker: len(broker.sessions[client_id].sent))

    def publish(self, topic: str, *payloads: bytes, qos: int = 1, retain: bool = False) -> None:
        """Messages as from some client."""
        self.ask(lambda broker: [broker.publish(Message(topic, payload, qos, retain)) for payload in payloads])

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
            session = broker.sessions[client_id]
            for one in filters:
                session.subscriptions.pop(one)
                broker._subscriptions.remove(session, one)
            if not filters:
                broker.forget_session(client_id)
                broker.sessions[client_id] = session

        self.ask(forget)

    def restart(self) -> None:
        """Stop listening, end all connections, and come back on the same port with all sessions."""
        port = self.port
        self.server.stop(None)
        self.server = self.made_server(port, self.server.limits)
        self.server.start()

    def stop(self) -> None:
        self.thaw()
        super().stop()

    def _each(self, client_id: str | None, function: Callable[[Connection], None]) -> None:
        def act() -> None:
            for connection in list(self.server.connections):
                if connection.accepted and client_id in (None, connection.client_id):
                    function(connection)

        self.server.ask(act)
