"""The behaviour of a broker, right or wrong: sessions, subscriptions, and messages from clients to clients."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from connectors.mqtt.protocol.packets import (
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.topics import matches
from connectors.mqtt.server import Connection, Handler, Limits
from faultymqtt.session import Session
from faultymqtt.windows import Window

ALIASES = 100
"""Topic aliases that a client may set."""


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


class Broker(Handler):
    """MQTT 3.1.1 and 5.0: all three QoS, sessions, retained messages, wills. All data is in memory.

    What it lacks, such as shared subscriptions and expiry, is tested with mosquitto.
    """

    def __init__(self, limits: Limits, faults: Faults) -> None:
        self.faults = faults
        self.sessions: dict[str, Session] = {}
        self.connects: list[Connect] = []
        self.acknowledgements: list[int] = []
        self.most_unacknowledged = 0
        self._limits = limits
        self._retained: dict[str, Publish] = {}

    def publish(self, message: Publish) -> ReasonCode:
        """Pass a message on to its subscribers: one copy for each session, with the best QoS of its subscriptions."""
        message = replace(message, dup=False, packet_id=0, properties=replace(message.properties, topic_alias=None))
        if message.retain:
            self._retained[message.topic] = message
        count = 0
        for session in self.sessions.values():
            wanted = [each for each in session.subscriptions.values() if matches(each[0].filter, message.topic)]
            if wanted:
                count += 1
                identifiers = tuple(identifier for _, identifier in wanted if identifier is not None)
                properties = replace(message.properties, subscription_identifiers=identifiers)
                qos = min(message.qos, max(subscription.qos for subscription, _ in wanted))
                retain = message.retain and any(subscription.retain_as_published for subscription, _ in wanted)
                session.add(replace(message, qos=qos, retain=retain, properties=properties))
        return ReasonCode.SUCCESS if count else ReasonCode.NO_MATCHING_SUBSCRIBERS

    def forget_session(self, client_id: str) -> None:
        """As if the client had never been here. If it is connected it stays so, with no subscriptions."""
        session = self.sessions.pop(client_id, None)
        if session is not None:
            session.subscriptions.clear()
            session.forget_messages()

    def connected(self, connection: Connection, connect: Connect) -> None:
        self.connects.append(connect)
        if self.faults.refuse_connects:
            connection.refuse(self.faults.refuse_connects.popleft())
            return
        assigned = None
        if not connect.client_id:
            assigned = connection.client_id = f"auto-{uuid.uuid4().hex}"
        session = self._resumed(connection.client_id, connect)
        present = session is not None
        if session is None:
            session = self.sessions[connection.client_id] = Session(connection.client_id)
        session.window = self._window(connect)
        v5 = connect.version == V5
        session.stays = bool(connect.properties.session_expiry_interval) if v5 else not connect.clean_start
        session.connection = connection
        connection.state = (session, connect.will)
        properties = self._granted(assigned) if v5 else NONE
        connection.accept(Connack(present, ReasonCode.SUCCESS, properties), connect.keep_alive * 1.5)
        if self.faults.redeliver_as_new:
            session.waiting.extendleft(reversed(session.sent.values()))
            session.sent.clear()
        session.resend()

    def received(self, connection: Connection, packet: Packet) -> None:
        if self.faults.drop is not None and self.faults.drop(packet):
            return
        session: Session = connection.state[0]
        match packet:
            case Publish():
                self._published(connection, session, packet)
            case Puback():
                self._acknowledged(session, packet.packet_id)
            case Pubrec() if packet.reason.failed:
                session.acknowledged(packet.packet_id)
            case Pubrec():
                session.received.add(packet.packet_id)
                connection.send(Pubrel(packet.packet_id))
            case Pubrel():
                session.taken.discard(packet.packet_id)
                connection.send(Pubcomp(packet.packet_id))
            case Pubcomp():
                session.acknowledged(packet.packet_id)
            case Subscribe():
                self._subscribe(connection, session, packet)
            case Unsubscribe():
                known = [session.subscriptions.pop(each, None) is not None for each in packet.filters]
                reasons = (ReasonCode.SUCCESS if each else ReasonCode.NO_SUBSCRIPTION_EXISTED for each in known)
                connection.send(Unsuback(packet.packet_id, tuple(reasons)))
            case Disconnect():
                if packet.reason is ReasonCode.SUCCESS:
                    connection.state = (session, None)
                if packet.properties.session_expiry_interval is not None:
                    session.stays = packet.properties.session_expiry_interval > 0
            case Auth():
                connection.close(ReasonCode.PROTOCOL_ERROR, "no authentication was agreed on")
            case _:
                raise AssertionError(f"a server never gets {type(packet).__name__}")
        session.flow()

    def writable(self, connection: Connection) -> None:
        connection.state[0].flow()

    def gone(self, connection: Connection) -> None:
        session, will = connection.state
        self._publish_will(will)
        if session.connection is connection:
            session.connection = None
            if not session.stays:
                self.forget_session(session.client_id)

    def _resumed(self, client_id: str, connect: Connect) -> Session | None:
        """The session that this client resumes, if there is one; its older connection is closed."""
        session = self.sessions.get(client_id)
        if session is None:
            return None
        if session.connection is not None:
            session.connection.close(ReasonCode.SESSION_TAKEN_OVER)
            session.connection = None
        if connect.clean_start:
            self.forget_session(client_id)
            return None
        return session

    def _window(self, connect: Connect) -> Window:
        if self.faults.window is not None:
            return self.faults.window(connect)
        if connect.version == V311:
            return Window(1000)
        return Window(connect.properties.receive_maximum or 65_535)

    def _granted(self, assigned: str | None) -> Properties:
        usual = Properties(maximum_packet_size=self._limits.max_packet, topic_alias_maximum=ALIASES)
        return replace(self.faults.granted or usual, assigned_client_identifier=assigned)

    def _published(self, connection: Connection, session: Session, packet: Publish) -> None:
        if packet.qos == 2 and packet.packet_id in session.taken:
            # Sent again, as our PUBREC did not arrive: it was passed on already.
            connection.send(Pubrec(packet.packet_id))
            return
        reason = None if self.faults.refuse is None else self.faults.refuse(packet)
        if reason is None:
            reason = self.publish(packet)
        if packet.qos == 1:
            connection.send(Puback(packet.packet_id, reason))
        elif packet.qos == 2:
            if not reason.failed:
                session.taken.add(packet.packet_id)
            connection.send(Pubrec(packet.packet_id, reason))

    def _acknowledged(self, session: Session, packet_id: int) -> None:
        self.most_unacknowledged = max(self.most_unacknowledged, len(session.sent))
        self.acknowledgements.append(packet_id)
        first = next(iter(session.sent), None)
        if self.faults.strict and packet_id != first:
            assert session.connection is not None
            session.connection.close(None, f"PUBACK {packet_id} before {first}")
        else:
            session.acknowledged(packet_id)

    def _subscribe(self, connection: Connection, session: Session, packet: Subscribe) -> None:
        identifier = next(iter(packet.properties.subscription_identifiers), None)
        granted: list[ReasonCode] = []
        retained: list[Publish] = []
        for wanted in packet.subscriptions:
            decide = self.faults.grant
            reason = ReasonCode(wanted.qos) if decide is None else decide(wanted.filter, wanted.qos)
            granted.append(reason)
            if reason.failed:
                continue
            new = wanted.filter not in session.subscriptions
            session.subscriptions[wanted.filter] = (replace(wanted, qos=reason.value), identifier)
            if wanted.retain_handling == 0 or (wanted.retain_handling == 1 and new):
                identifiers = () if identifier is None else (identifier,)
                for topic, message in self._retained.items():
                    if message.payload and matches(wanted.filter, topic):
                        told = replace(message.properties, subscription_identifiers=identifiers)
                        retained.append(replace(message, qos=min(message.qos, reason.value), properties=told))
        connection.send(Suback(packet.packet_id, tuple(granted)))
        for message in retained:
            session.add(message)

    def _publish_will(self, will: Will | None) -> None:
        if will is not None:
            self.publish(Publish(will.topic, will.payload, will.qos, will.retain))
