"""The behaviour of a broker: sessions, subscriptions, and messages from clients to clients."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
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
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.topics import shared
from connectors.mqtt.server import Connection, Handler, Limits
from memorybroker.messages import Delivery, Message
from memorybroker.retained import Retained
from memorybroker.session import FOREVER, Session
from memorybroker.subscriptions import Subscribed, Subscriptions
from memorybroker.window import Window

MAX_MESSAGES = 100_000
"""Messages that wait for one session."""
WINDOW = 1000
"""Messages of QoS 1 and 2 in flight to a client of MQTT 3.1.1, which cannot set a Receive Maximum."""
MAX_SESSIONS = 10_000
ALIASES = 100
"""Topic aliases that a client may set."""


@dataclass(slots=True)
class _Client:
    """State of a connection, as opposed to the session."""

    session: Session
    will: Will | None = None


@dataclass(slots=True)
class _Later:
    """A will that waits for its delay, or for the client to come back."""

    will: Will
    at: float = field(default=0.0)


class Broker(Handler):
    """MQTT 3.1.1 and 5.0: all three QoS, sessions and their expiry, retained messages, wills, shared subscriptions.

    All data is in memory and bounded. `users`: names and passwords that may log in; without it every client may.
    Tests override the methods without an underscore, to behave as other brokers do.
    """

    def __init__(self, limits: Limits, *, users: Mapping[str, str] | None = None, receive: int | None = None) -> None:
        self.sessions: dict[str, Session] = {}
        self._limits = limits
        self._users = users
        self._receive = receive
        self._subscriptions = Subscriptions()
        self._retained = Retained()
        self._wills: dict[str, _Later] = {}

    def allow(self, connect: Connect) -> ReasonCode:
        """Whether the client may connect: `SUCCESS`, or the reason why not."""
        if connect.properties.authentication_method is not None:
            return ReasonCode.BAD_AUTHENTICATION_METHOD
        if self._users is None:
            return ReasonCode.SUCCESS
        known = self._users.get(connect.username or "")
        right = known is not None and known.encode() == connect.password
        return ReasonCode.SUCCESS if right else ReasonCode.BAD_USER_NAME_OR_PASSWORD

    def grant(self, session: Session, subscription: Subscription) -> ReasonCode:
        """The QoS that a subscription gets, or the reason why it gets none."""
        return ReasonCode(subscription.qos)

    def granted(self, connect: Connect, properties: Properties) -> Properties:
        """The properties of the CONNACK for a client of MQTT 5: these, and the broker's limits."""
        return replace(
            properties,
            receive_maximum=self._receive,
            maximum_packet_size=self._limits.max_packet,
            topic_alias_maximum=ALIASES,
        )

    def window_of(self, connect: Connect) -> Window:
        """How many messages are in flight to this client."""
        asked = connect.properties.receive_maximum
        if connect.version == V5:
            return Window(65_535 if asked is None else asked)
        return Window(WINDOW)

    def resume(self, session: Session) -> None:
        """Deliver unacknowledged messages to a returning client again."""
        session.resend()

    def take(self, connection: Connection, packet: Publish) -> ReasonCode:
        """Whether a message may be published: `SUCCESS` or `NO_MATCHING_SUBSCRIBERS`, or why it is refused."""
        matched = self.publish(Message.of(packet), connection.client_id)
        return ReasonCode.SUCCESS if matched else ReasonCode.NO_MATCHING_SUBSCRIBERS

    def acknowledged(self, session: Session, packet_id: int) -> None:
        """A client acknowledges a message of QoS 1."""
        session.acknowledged(packet_id)

    def forget_session(self, client_id: str) -> None:
        """As if the client had never been here. If it is connected it stays so, with no subscriptions."""
        session = self.sessions.pop(client_id, None)
        if session is None:
            return
        for wanted in session.subscriptions:
            self._subscriptions.remove(session, wanted)
        session.subscriptions.clear()
        session.forget_messages()

    def publish(self, message: Message, publisher: str = "") -> int:
        """Pass a message on to its subscribers; returns how many there are."""
        if message.retain:
            self._retained.keep(message)
        deliveries: dict[str, tuple[Session, Delivery]] = {}
        count = 0
        for one in self._subscriptions.matching(message.topic):
            if one.subscription.no_local and one.session.client_id == publisher:
                continue
            count += 1
            self._add_up(deliveries, one, message)
        for session, delivery in deliveries.values():
            session.add(delivery)
        return count

    def connected(self, connection: Connection, connect: Connect) -> None:
        """As `Handler.connected`."""
        reason = self.allow(connect)
        if reason.failed:
            connection.refuse(reason)
            return
        assigned = None
        if not connect.client_id:
            assigned = connection.client_id = f"auto-{uuid.uuid4().hex}"
        client_id = connection.client_id
        session = self._take_over(client_id, connect)
        present = session is not None
        if session is None:
            if len(self.sessions) >= MAX_SESSIONS:
                connection.refuse(ReasonCode.QUOTA_EXCEEDED, f"there are {MAX_SESSIONS} sessions already")
                return
            session = self.sessions[client_id] = Session(client_id, Window(0), MAX_MESSAGES)
        session.window = self.window_of(connect)
        session.expiry = _expiry(connect)
        session.max_packet = connect.properties.maximum_packet_size
        session.connection, session.left_at = connection, None
        connection.state = _Client(session, connect.will)
        properties = NONE
        if connect.version == V5:
            properties = self.granted(connect, Properties(assigned_client_identifier=assigned))
        connection.accept(Connack(present, ReasonCode.SUCCESS, properties), connect.keep_alive * 1.5)
        if present:
            self.resume(session)

    def received(self, connection: Connection, packet: Packet) -> None:
        """As `Handler.received`."""
        client: _Client = connection.state
        session = client.session
        match packet:
            case Publish():
                self._published(connection, session, packet)
            case Puback():
                self.acknowledged(session, packet.packet_id)
                session.flow()
            case Pubrec():
                self._pubrec(connection, session, packet)
            case Pubrel():
                known = packet.packet_id in session.taken
                session.taken.discard(packet.packet_id)
                connection.send(Pubcomp(packet.packet_id, _found(known)))
            case Pubcomp():
                session.acknowledged(packet.packet_id)
                session.flow()
            case Subscribe():
                self._subscribe(connection, session, packet)
            case Unsubscribe():
                connection.send(Unsuback(packet.packet_id, tuple(self._unsubscribe(session, packet))))
            case Disconnect():
                self._goodbye(connection, client, packet)
            case Auth():
                connection.close(ReasonCode.PROTOCOL_ERROR, "no authentication was agreed on")
            case _:
                raise AssertionError(f"a server never gets {type(packet).__name__}")

    def writable(self, connection: Connection) -> None:
        """As `Handler.writable`."""
        connection.state.session.flow()

    def gone(self, connection: Connection) -> None:
        """As `Handler.gone`."""
        client: _Client = connection.state
        session = client.session
        if client.will is not None:
            delay = client.will.properties.will_delay_interval or 0
            self._wills[session.client_id] = _Later(client.will, time.monotonic() + min(delay, session.expiry))
        if session.connection is not connection:
            return
        session.connection, session.left_at = None, time.monotonic()
        if not session.expiry:
            self._end(session)
        self._publish_wills(time.monotonic())

    def tick(self, now: float) -> None:
        """As `Handler.tick`."""
        self._publish_wills(now)
        for session in list(self.sessions.values()):
            if session.left_at is not None and session.expiry != FOREVER and now - session.left_at >= session.expiry:
                self._end(session)

    def _take_over(self, client_id: str, connect: Connect) -> Session | None:
        """The session that this client resumes, if there is one; its older connection is closed."""
        session = self.sessions.get(client_id)
        if session is None:
            return None
        older = session.connection
        if older is not None:
            older.close(ReasonCode.SESSION_TAKEN_OVER)
            will, older.state.will = older.state.will, None
            if will is not None and (connect.clean_start or not will.properties.will_delay_interval):
                self.publish(Message.of(will))
            session.connection = None
        if connect.clean_start:
            self._end(session)
            return None
        self._wills.pop(client_id, None)
        return session

    def _end(self, session: Session) -> None:
        later = self._wills.pop(session.client_id, None)
        self.forget_session(session.client_id)
        if later is not None:
            self.publish(Message.of(later.will))

    def _publish_wills(self, now: float) -> None:
        for client_id in [client_id for client_id, later in self._wills.items() if now >= later.at]:
            self.publish(Message.of(self._wills.pop(client_id).will))

    def _goodbye(self, connection: Connection, client: _Client, packet: Disconnect) -> None:
        if packet.reason is ReasonCode.SUCCESS:
            client.will = None
        asked = packet.properties.session_expiry_interval
        if asked is not None:
            if asked and not client.session.expiry:
                connection.close(ReasonCode.PROTOCOL_ERROR, "a session that was to end with the connection cannot stay")
            else:
                client.session.expiry = asked

    def _published(self, connection: Connection, session: Session, packet: Publish) -> None:
        if packet.qos == 0:
            self.take(connection, packet)
        elif packet.qos == 1:
            connection.send(Puback(packet.packet_id, self.take(connection, packet)))
        elif packet.packet_id in session.taken:
            # Sent again, as our PUBREC did not arrive: it was passed on already.
            connection.send(Pubrec(packet.packet_id))
        elif self._receive is not None and connection.version == V5 and len(session.taken) >= self._receive:
            connection.close(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED)
        else:
            reason = self.take(connection, packet)
            if not reason.failed:
                session.taken.add(packet.packet_id)
            connection.send(Pubrec(packet.packet_id, reason))

    def _pubrec(self, connection: Connection, session: Session, packet: Pubrec) -> None:
        if packet.reason.failed:
            session.acknowledged(packet.packet_id)
            session.flow()
        else:
            connection.send(Pubrel(packet.packet_id, _found(session.received(packet.packet_id))))

    def _subscribe(self, connection: Connection, session: Session, packet: Subscribe) -> None:
        identifier = next(iter(packet.properties.subscription_identifiers), None)
        granted: list[ReasonCode] = []
        retained: list[tuple[Subscription, list[Message]]] = []
        for wanted in packet.subscriptions:
            reason = self.grant(session, wanted)
            granted.append(reason)
            if reason.failed:
                continue
            subscription = Subscription(
                wanted.filter, reason.value, wanted.no_local, wanted.retain_as_published, wanted.retain_handling
            )
            new = wanted.filter not in session.subscriptions
            session.subscriptions[wanted.filter] = (subscription, identifier)
            self._subscriptions.add(session, subscription, identifier)
            wants = wanted.retain_handling == 0 or (wanted.retain_handling == 1 and new)
            if wants and shared(wanted.filter)[0] is None:
                retained.append((subscription, self._retained.matching(wanted.filter)))
        connection.send(Suback(packet.packet_id, tuple(granted)))
        for subscription, messages in retained:
            for message in messages:
                qos = min(message.qos, subscription.qos)
                session.add(Delivery(message, qos, True, () if identifier is None else (identifier,)))

    def _unsubscribe(self, session: Session, packet: Unsubscribe) -> list[ReasonCode]:
        found: list[ReasonCode] = []
        for unwanted in packet.filters:
            known = session.subscriptions.pop(unwanted, None) is not None
            self._subscriptions.remove(session, unwanted)
            found.append(ReasonCode.SUCCESS if known else ReasonCode.NO_SUBSCRIPTION_EXISTED)
        return found

    @staticmethod
    def _add_up(deliveries: dict[str, tuple[Session, Delivery]], one: Subscribed, message: Message) -> None:
        """One copy for each session, with the best QoS of its subscriptions and the identifiers of all."""
        wanted = one.subscription
        qos = min(message.qos, wanted.qos)
        retain = message.retain and wanted.retain_as_published
        identifiers: tuple[int, ...] = () if one.identifier is None else (one.identifier,)
        # A shared subscription gets a copy of its own.
        key = f"{one.session.client_id}\0{wanted.filter if wanted.filter.startswith('$share/') else ''}"
        if key in deliveries:
            _, known = deliveries[key]
            qos, retain, identifiers = max(qos, known.qos), retain or known.retain, known.identifiers + identifiers
        deliveries[key] = (one.session, Delivery(message, qos, retain, identifiers))


def _expiry(connect: Connect) -> int:
    if connect.version == V311:
        return 0 if connect.clean_start else FOREVER
    return connect.properties.session_expiry_interval or 0


def _found(known: bool) -> ReasonCode:
    return ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
