"""A broker's state of one client, kept also while the client is away."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from connectors.mqtt.protocol.packets import V311, Publish, Pubrel, Subscription
from connectors.mqtt.protocol.properties import NONE
from connectors.mqtt.server import Connection
from faultymqtt.windows import Window


class Session:
    """The subscriptions of a client, and the messages on their way to it, as the packets that take them there."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.connection: Connection | None = None
        self.stays = False
        """Whether it is kept without a connection."""
        self.window = Window(0)
        self.subscriptions: dict[str, tuple[Subscription, int | None]] = {}
        """By filter, with the subscription identifier."""
        self.waiting: deque[Publish] = deque()
        self.sent: dict[int, Publish] = {}
        """Sent and unacknowledged, by packet id, in the order they were sent."""
        self.received: set[int] = set()
        """Packet ids in `sent` that the client has answered by PUBREC, so that only a PUBREL may follow."""
        self.taken: set[int] = set()
        """Packet ids of messages of QoS 2 from the client that were passed on and not released yet."""
        self.last_id = 0
        """The packet id of the message that was sent last."""

    def add(self, message: Publish) -> None:
        """Queue a message for the client; one of QoS 0 is lost while it is away."""
        if self.connection is not None or message.qos:
            self.waiting.append(message)
            self.flow()

    def flow(self) -> None:
        """Send waiting messages, as far as the window and the connection have room."""
        connection = self.connection
        while connection is not None and self.waiting and connection.room and not connection.closing:
            message = self.waiting[0]
            if message.qos:
                if self.window.room(len(self.sent)) <= 0 or len(self.sent) >= 65_535:
                    return
                message = replace(message, packet_id=self._free_id())
                self.sent[message.packet_id] = message
            self.waiting.popleft()
            self._send(connection, message)

    def resend(self) -> None:
        """After a reconnect: send the unacknowledged messages once more, with the same packet ids, in order."""
        assert self.connection is not None
        for packet_id, message in self.sent.items():
            if packet_id in self.received:
                self.connection.send(Pubrel(packet_id))
            else:
                self._send(self.connection, replace(message, dup=True))
        self.flow()

    def acknowledged(self, packet_id: int) -> None:
        """The client is done with this message."""
        self.received.discard(packet_id)
        if self.sent.pop(packet_id, None) is not None:
            self.window.acknowledged()

    def forget_messages(self) -> None:
        """Discard all messages, waiting and sent."""
        for each in (self.waiting, self.sent, self.received, self.taken):
            each.clear()

    @staticmethod
    def _send(connection: Connection, message: Publish) -> None:
        connection.send(replace(message, properties=NONE) if connection.version == V311 else message)

    def _free_id(self) -> int:
        while True:
            self.last_id = self.last_id % 65_535 + 1
            if self.last_id not in self.sent:
                return self.last_id
