"""A client of the endpoint while it is connected."""

from __future__ import annotations

from collections import deque

import numpy as np

from connectors.mqtt.endpoint.inbox import Arrival, Line
from connectors.mqtt.endpoint.replies import Reply
from connectors.mqtt.protocol.bulk import encode_acks
from connectors.mqtt.protocol.packets import V5, PacketType, Publish, Pubrec, Pubrel
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.writing import encode
from connectors.mqtt.server import Connection

MAX_UNSENT = 1000
"""Replies that may wait for the window of a client; a client with more is disconnected."""


class EndpointClient:
    """The state of one connection; all in the server's thread, but for its `line`.

    `window`: replies that it accepts ahead of their acknowledgement. `ahead`: messages that it sends ahead of their
    acknowledgement, if that is known. `user`: who has logged in, if clients have to.
    """

    def __init__(
        self,
        connection: Connection,
        number: int,
        window: int,
        max_packet: int | None,
        ahead: int | None,
        user: str | None = None,
    ) -> None:
        self.connection = connection
        self.line = Line(connection.client_id, number, user)
        self.open: set[int] = set()
        """Packet ids of unacknowledged messages of QoS 1 and 2."""
        self.released: set[int] = set()
        """Packet ids of messages of QoS 2 that are acknowledged by PUBREC, and whose PUBREL has not come."""
        self.position = 0
        self.standing = False
        """Whether it may send no more messages until some are acknowledged."""
        self._ahead = ahead
        self._window = window
        self._max_packet = max_packet
        self._unsent: deque[Reply] = deque()
        self._sent: dict[int, Reply] = {}
        self._received: set[int] = set()
        self._last_id = 0

    @property
    def awaited(self) -> bool:
        """Whether replies wait for the client's acknowledgement, so that its connection has to be read."""
        return bool(self._sent)

    def takes(self, packet_id: int) -> bool:
        """A message of QoS 1 or 2 came; whether the client may send no more until some are acknowledged."""
        self.open.add(packet_id)
        before, self.standing = self.standing, len(self.open) == self._ahead or self.standing
        return self.standing and not before

    def acknowledge(self, arrivals: list[Arrival]) -> None:
        """These messages are done: tell the client, in their order (which is one of each QoS), in one write."""
        done = [arrival for arrival in arrivals if arrival.packet_id in self.open]
        once = [arrival.packet_id for arrival in done if arrival.qos == 1]
        twice = [arrival.packet_id for arrival in done if arrival.qos == 2]
        self.open.difference_update(once, twice)
        self.released.update(twice)
        self.connection.write(
            encode_acks(PacketType.PUBACK, np.array(once, np.uint16))
            + encode_acks(PacketType.PUBREC, np.array(twice, np.uint16))
        )

    def add(self, reply: Reply) -> bool:
        """Send a reply as soon as the client's window allows; false if too many wait already."""
        if len(self._unsent) >= MAX_UNSENT:
            return False
        self._unsent.append(reply)
        return True

    def flow(self) -> list[Reply]:
        """Send replies as far as the client's window and the network allow; returns those whose acknowledgement is not
        awaited."""
        settled: list[Reply] = []
        connection = self.connection
        while self._unsent and connection.room and not connection.closing:
            reply = self._unsent[0]
            if reply.qos and len(self._sent) >= self._window:
                break
            self._unsent.popleft()
            packet = self._packet(reply)
            data = encode(packet, connection.version)
            if self._max_packet is not None and len(data) > self._max_packet:
                # Larger than the client's Maximum Packet Size: it cannot be delivered.
                settled.append(reply)
                continue
            if reply.qos:
                self._sent[packet.packet_id] = reply
            else:
                settled.append(reply)
            connection.write(data)
        return settled

    def acknowledged(self, packet_id: int) -> Reply | None:
        """The client has acknowledged this packet id: returns the reply of QoS 1, if there is one."""
        reply = self._sent.get(packet_id)
        if reply is None or reply.qos != 1:
            return None
        return self._sent.pop(packet_id)

    def received(self, packet: Pubrec) -> Reply | None:
        """The client has received a reply of QoS 2, or refuses it: returns the reply. Its packet id is free at
        PUBCOMP."""
        reply = self._sent.get(packet.packet_id)
        if reply is not None and reply.qos == 2 and packet.reason.failed:
            return self._sent.pop(packet.packet_id)
        if reply is not None:
            self._received.add(packet.packet_id)
        self.connection.send(Pubrel(packet.packet_id))
        return reply

    def completed(self, packet_id: int) -> None:
        """PUBCOMP: the packet id of a reply of QoS 2 is free."""
        if packet_id in self._received:
            self._received.discard(packet_id)
            self._sent.pop(packet_id, None)

    def left(self) -> list[Reply]:
        """Remove and return the unconfirmed replies of a client that is gone."""
        replies = [*self._sent.values(), *self._unsent]
        self._sent.clear()
        self._unsent.clear()
        return replies

    def _packet(self, reply: Reply) -> Publish:
        properties = NONE
        if self.connection.version == V5 and (reply.headers or reply.correlation is not None):
            properties = Properties(user_properties=reply.headers, correlation_data=reply.correlation)
        packet_id = self._free_id() if reply.qos else 0
        return Publish(reply.topic, reply.payload, reply.qos, packet_id=packet_id, properties=properties)

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self._sent:
                return self._last_id
