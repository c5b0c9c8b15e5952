"""`EndpointHandler`: handles the packets of the endpoint's clients, in the server's thread."""

from __future__ import annotations

import hmac
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from connectors.mqtt.endpoint.client import EndpointClient
from connectors.mqtt.endpoint.complaints import Complaints
from connectors.mqtt.endpoint.inbox import Arrival, Inbox, Line
from connectors.mqtt.endpoint.replies import Replies, Reply
from connectors.mqtt.protocol.packets import (
    V5,
    Connack,
    Connect,
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
)
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.scan import Scanned
from connectors.mqtt.server import Connection, Handler

_MAX_WINDOW = 100
"""Replies in flight to a client, if it does not ask for fewer."""
_MAX_LINE = 1000
"""Messages of one client that may wait to be polled; beyond that the client is not read."""
_MOST_OWNERS = 100_000
"""The most client ids whose owners are remembered."""
_LOOK_AFTER = 1.0
_SOON = 5.0
"""A client that takes over an id this soon (in seconds) after its last packet is probably another one."""


@dataclass(slots=True)
class EndpointCounts:
    """Counters of an endpoint since it was opened."""

    clients: int = 0
    """Clients whose login was accepted."""
    connected: int = 0
    """Clients that are connected."""
    received: int = 0
    """Messages that were accepted."""
    refused: int = 0
    """Messages on topics that do not match those of the source."""
    dropped: int = 0
    """Messages of QoS 0 that were dropped, as too many of the client's waited."""
    unanswered: int = 0
    """Replies whose client was gone, or refused them."""


class EndpointHandler(Handler):
    """Puts messages of clients into `inbox`, and sends them replies. `replies` has one for each sink.

    `listens_to`: whether a topic matches `topics`. `users`: names and passwords of the users that may log in; `None`:
    any client may connect. `window`: messages of QoS 1 and 2 that a client may send ahead of their acknowledgement.
    `max_packet`: the Maximum Packet Size announced to clients. A reply that a client does not acknowledge in time ends
    its connection.
    """

    def __init__(
        self,
        inbox: Inbox,
        replies: list[Replies],
        listens_to: Callable[[str], bool],
        *,
        users: Mapping[str, str] | None,
        window: int,
        max_packet: int,
        name: str = "mqtt_endpoint",
    ) -> None:
        self.counts = EndpointCounts()
        self._inbox = inbox
        self._replies = replies
        self._listens_to = listens_to
        self._users = users
        self._window = window
        self._max_packet = max_packet
        self._clients: dict[str, EndpointClient] = {}
        self._by_line: dict[Line, EndpointClient] = {}
        self._owners: dict[str, str] = {}
        """The users whose the client ids are, the id that was used last at the end."""
        self._paused: set[EndpointClient] = set()
        self._look_at = 0.0
        self._complaints = Complaints(name)

    def connected(self, connection: Connection, connect: Connect) -> None:
        """As `Handler.connected`."""
        reason = self._allowed(connect)
        if reason.failed:
            connection.refuse(reason)
            return
        assigned = None
        if not connect.client_id:
            assigned = connection.client_id = f"auto-{uuid.uuid4().hex}"
        user = None if self._users is None else connect.username
        if assigned is None and not self._belongs(connection.client_id, user):
            connection.refuse(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
                f"its client id is that of another user than {user!r}; each user's devices need ids of their own",
            )
            return
        before = self._clients.pop(connection.client_id, None)
        if before is not None:
            if time.monotonic() - before.connection.heard_at < _SOON:
                self.sent_away(
                    connection.client_id,
                    connection.address,
                    "it takes over the client id of a connection that was in use until now; each device needs a client "
                    "id of its own",
                )
            before.connection.close(ReasonCode.SESSION_TAKEN_OVER)
        asked = connect.properties.receive_maximum or _MAX_WINDOW
        self.counts.clients += 1
        client = EndpointClient(
            connection,
            self.counts.clients,
            min(asked, _MAX_WINDOW),
            connect.properties.maximum_packet_size,
            self._window if connect.version == V5 else None,
            user,
        )
        self._clients[connection.client_id] = self._by_line[client.line] = client
        connection.state = client
        self.counts.connected += 1
        properties = NONE
        if connect.version == V5:
            # No session is kept: the client itself sends unacknowledged messages again.
            properties = Properties(
                assigned_client_identifier=assigned,
                session_expiry_interval=0,
                receive_maximum=self._window,
                maximum_packet_size=self._max_packet,
            )
        connection.accept(Connack(False, ReasonCode.SUCCESS, properties), connect.keep_alive * 1.5)

    def received(self, connection: Connection, packet: Packet) -> None:
        """As `Handler.received`."""
        client: EndpointClient = connection.state
        match packet:
            case Publish():
                self._take(client, (packet,))
            case Pubrel():
                known = packet.packet_id in client.released
                client.released.discard(packet.packet_id)
                reason = ReasonCode.SUCCESS if known else ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                connection.send(Pubcomp(packet.packet_id, reason))
            case Puback():
                self._settle(client.acknowledged(packet.packet_id))
                self._flow(client)
            case Pubrec():
                self._settle(client.received(packet))
                self._flow(client)
            case Pubcomp():
                client.completed(packet.packet_id)
                self._flow(client)
            case Subscribe():
                # Replies are sent whether the client subscribed to their topic or not.
                connection.send(
                    Suback(
                        packet.packet_id, tuple(ReasonCode(subscription.qos) for subscription in packet.subscriptions)
                    )
                )
            case Unsubscribe():
                connection.send(Unsuback(packet.packet_id, (ReasonCode.SUCCESS,) * len(packet.filters)))
            case _:
                pass

    def messages(self, connection: Connection, block: Scanned) -> None:
        """As `Handler.messages`."""
        self._take(connection.state, block.publishes())

    def writable(self, connection: Connection) -> None:
        """As `Handler.writable`."""
        self._flow(connection.state)

    def gone(self, connection: Connection) -> None:
        """As `Handler.gone`."""
        client: EndpointClient = connection.state
        self.counts.connected -= 1
        if self._clients.get(connection.client_id) is client:
            del self._clients[connection.client_id]
        self._by_line.pop(client.line, None)
        self._paused.discard(client)
        self._lets_go(client)
        self._inbox.end(client.line)
        for reply in client.left():
            self._give_up(reply)

    def sent_away(self, client_id: str, address: str, reason: str) -> None:
        """As `Handler.sent_away`."""
        self._complaints.tell(client_id, address, reason)

    def tick(self, now: float) -> None:
        """As `Handler.tick`."""
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_AFTER
        for reply in [reply for replies in self._replies for reply in replies.overdue(now)]:
            client = self._clients.get(reply.client_id)
            if client is not None:
                client.connection.close(
                    ReasonCode.QUOTA_EXCEEDED, f"a reply was not acknowledged within {reply.sink.timeout:g} s"
                )

    def answer(self, replies: list[Reply]) -> None:
        """Send these replies to their clients."""
        touched: dict[EndpointClient, None] = {}
        for reply in replies:
            client = self._clients.get(reply.client_id)
            if client is None:
                self._give_up(reply)
            elif client.add(reply):
                touched[client] = None
            else:
                client.connection.close(ReasonCode.QUOTA_EXCEEDED, "too many replies wait for it")
                self._give_up(reply)
        for client in touched:
            self._flow(client)

    def make_room(self, replies: Replies) -> None:
        """Disconnect the clients that keep others from their answers."""
        if len(self._clients) < 2:
            return
        for client_id in replies.hoarders(time.monotonic()):
            client = self._clients.get(client_id)
            if client is not None:
                client.connection.close(
                    ReasonCode.QUOTA_EXCEEDED, "it does not take its answers, and there is no room for those of others"
                )

    def acknowledge(self, done: list[tuple[Line, list[Arrival]]]) -> None:
        """Acknowledge these messages to their clients; clients that are gone are left out."""
        for line, arrivals in done:
            client = self._by_line.get(line)
            if client is not None:
                self._lets_go(client)
                client.acknowledge(arrivals)

    def unsent(self, lines: list[Line]) -> int:
        """Bytes that wait to be written to these clients."""
        connections = [self._by_line[line].connection for line in lines if line in self._by_line]
        return sum(connection.waiting for connection in connections if not connection.closing)

    def go_on(self) -> None:
        """Messages were polled: read those clients again that were paused for lack of room."""
        for client in list(self._paused):
            if self._inbox.half_empty and len(client.line.waiting) * 2 <= _MAX_LINE:
                self._pause(client, False)

    @property
    def paused(self) -> bool:
        """Whether a client is paused for lack of room. May be called from any thread."""
        return bool(self._paused)

    def _allowed(self, connect: Connect) -> ReasonCode:
        if connect.properties.authentication_method is not None:
            return ReasonCode.BAD_AUTHENTICATION_METHOD
        if self._users is None:
            return ReasonCode.SUCCESS
        known = self._users.get(connect.username or "")
        right = hmac.compare_digest((known or "").encode(), connect.password or b"") and known is not None
        return ReasonCode.SUCCESS if right else ReasonCode.BAD_USER_NAME_OR_PASSWORD

    def _belongs(self, client_id: str, user: str | None) -> bool:
        """Whether the client id is this user's: whoever uses an id first has it, as its answers go to this id."""
        if user is None:
            return True
        owner = self._owners.pop(client_id, user)
        self._owners[client_id] = owner
        if len(self._owners) > _MOST_OWNERS:
            # The id that was used the longest time ago, of those that are not connected.
            free = next(
                (
                    identifier
                    for identifier in self._owners
                    if identifier not in self._clients and identifier != client_id
                ),
                None,
            )
            if free is not None:
                del self._owners[free]
        return owner == user

    def _take(self, client: EndpointClient, packets: Iterable[Publish]) -> None:
        """Put the accepted messages into the inbox together."""
        arrivals: list[Arrival] = []
        stands = False
        now = time.time_ns() // 1_000_000
        for packet in packets:
            if client.connection.closing:
                break
            if not self._wants(client, packet, len(arrivals)):
                continue
            if packet.qos and client.takes(packet.packet_id):
                stands = True
                self._inbox.standing += self._window
            properties = packet.properties
            if properties.topic_alias is not None:
                properties = replace(properties, topic_alias=None)
            arrivals.append(
                Arrival(
                    client.position,
                    packet.topic,
                    packet.payload,
                    packet.qos,
                    packet.packet_id,
                    packet.retain,
                    packet.dup,
                    properties,
                    now,
                )
            )
            client.position += 1
        if arrivals:
            self.counts.received += len(arrivals)
            self._inbox.put(client.line, arrivals, last=stands)

    def _wants(self, client: EndpointClient, packet: Publish, before: int) -> bool:
        """Whether a message is accepted, while `before` others are about to be put into the inbox; a refused one is
        answered here."""
        if packet.qos and not self._is_new(client, packet):
            return False
        if not self._listens_to(packet.topic):
            self.counts.refused += 1
            self.sent_away(
                client.connection.client_id,
                client.connection.address,
                f"its message for {packet.topic[:100]!r} is refused, as no filter of `topics` matches",
            )
            self._refuse(client, packet)
            return False
        return self._has_room(client, packet, before)

    def _lets_go(self, client: EndpointClient) -> None:
        """The client does not wait for its window any more: some of its messages are about to be acknowledged, or it is
        gone."""
        if client.standing:
            client.standing = False
            self._inbox.standing -= self._window

    def _is_new(self, client: EndpointClient, packet: Publish) -> bool:
        """Whether this message is new, and not sent again. A packet id in use without DUP ends the connection."""
        if packet.packet_id in client.released:
            # The client did not get our PUBREC.
            client.connection.send(Pubrec(packet.packet_id))
            return False
        if packet.packet_id in client.open:
            if not packet.dup:
                text = f"packet identifier {packet.packet_id} is in use"
                client.connection.close(ReasonCode.PROTOCOL_ERROR, text)
            return False
        return True

    def _refuse(self, client: EndpointClient, packet: Publish) -> None:
        # MQTT 3.1.1 has no refusal of a message: it is acknowledged.
        if packet.qos == 1:
            client.connection.send(Puback(packet.packet_id, ReasonCode.NOT_AUTHORIZED))
        elif packet.qos == 2:
            if client.connection.version != V5:
                client.released.add(packet.packet_id)
            client.connection.send(Pubrec(packet.packet_id, ReasonCode.NOT_AUTHORIZED))

    def _has_room(self, client: EndpointClient, packet: Publish, before: int) -> bool:
        """Hold up a client that sends faster than its messages are polled.

        The client is not read, unless its acknowledgements of replies are awaited: these would not be read either, and
        a sink that waits for them may be the reason why messages are not polled. A client that exceeds its Receive
        Maximum is not disconnected for that alone, as paho sends all messages that it has kept when it reconnects.
        """
        waiting = len(client.line.waiting) + before
        if waiting < _MAX_LINE and not self._inbox.full:
            return True
        if not client.awaited:
            self._pause(client, True)
            return True
        if packet.qos == 0:
            self.counts.dropped += 1
            return False
        if waiting < 4 * _MAX_LINE:
            return True
        reason = ReasonCode.RECEIVE_MAXIMUM_EXCEEDED if len(client.open) > self._window else ReasonCode.QUOTA_EXCEEDED
        client.connection.close(reason, f"{waiting} of its messages wait")
        return False

    def _pause(self, client: EndpointClient, paused: bool) -> None:
        client.connection.pause(paused)
        if paused:
            self._paused.add(client)
        else:
            self._paused.discard(client)

    def _flow(self, client: EndpointClient) -> None:
        for reply in client.flow():
            self._settle(reply)
        if client.awaited and client in self._paused:
            self._pause(client, False)

    @staticmethod
    def _settle(reply: Reply | None) -> None:
        if reply is not None:
            reply.sink.settle(reply)

    def _give_up(self, reply: Reply) -> None:
        """Settle a message whose client is gone: no one can receive it any more."""
        self.counts.unanswered += 1
        reply.sink.settle(reply)
