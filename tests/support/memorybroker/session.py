"""The development broker's state of a client, kept also while the client is away."""

from __future__ import annotations

from collections import deque

from connectors.mqtt.protocol.packets import Pubrel, Subscription
from connectors.mqtt.server import Connection
from memorybroker.messages import Delivery, Message
from memorybroker.window import Window

FOREVER = 0xFFFFFFFF
"""The session expiry interval that means never."""


class Session:
    """One client's session: its subscriptions, and the messages on their way to it.

    At most `max_messages` wait; later ones are dropped and counted, as is QoS 0 for a client that is away.
    """

    def __init__(self, client_id: str, window: Window, max_messages: int) -> None:
        self.client_id = client_id
        self.connection: Connection | None = None
        self.expiry = 0
        """Seconds that it is kept without a connection; `FOREVER`: for good."""
        self.left_at: float | None = None
        """When its connection ended, on `time.monotonic`."""
        self.window = window
        self.subscriptions: dict[str, tuple[Subscription, int | None]] = {}
        """By filter, with the subscription identifier."""
        self.waiting: deque[Delivery] = deque()
        self.sent: dict[int, Delivery] = {}
        """Sent and unacknowledged, by packet id, in the order they were sent."""
        self.taken: set[int] = set()
        """Packet ids of messages of QoS 2 from the client that were passed on and not released yet."""
        self.dropped = 0
        self.max_packet: int | None = None
        self._max_messages = max_messages
        self._last_id = 0

    def add(self, delivery: Delivery) -> None:
        """Queue a message for the client."""
        away = self.connection is None and delivery.qos == 0
        if away or len(self.waiting) + len(self.sent) >= self._max_messages:
            self.dropped += 1
            return
        self.waiting.append(delivery)
        self.flow()

    def flow(self) -> None:
        """Send waiting messages, as far as the window and the connection have room."""
        connection = self.connection
        if connection is None:
            return
        while self.waiting and connection.room and not connection.closing:
            delivery = self.waiting[0]
            if delivery.qos and (self.window.room(len(self.sent)) <= 0 or len(self.sent) >= 65_535):
                return
            self.waiting.popleft()
            if not delivery.message.expired:
                self._send(connection, delivery)

    def resend(self, dup: bool = True) -> None:
        """After a reconnect: send the unacknowledged messages once more, with the same packet ids, in order."""
        connection = self.connection
        assert connection is not None
        for delivery in self.sent.values():
            if delivery.received:
                connection.send(Pubrel(delivery.packet_id))
            else:
                connection.send(delivery.message.packet(delivery, connection.version, dup))
        self.flow()

    def acknowledged(self, packet_id: int) -> bool:
        """The client is done with this message; whether there was one."""
        found = self.sent.pop(packet_id, None) is not None
        if found:
            self.window.acknowledged()
        return found

    def received(self, packet_id: int) -> bool:
        """The client has sent its PUBREC; whether there was such a message."""
        delivery = self.sent.get(packet_id)
        if delivery is None or delivery.qos != 2:
            return False
        delivery.received = True
        return True

    def forget_messages(self) -> None:
        """Discard all messages, waiting and sent."""
        self.waiting.clear()
        self.sent.clear()
        self.taken.clear()

    def messages(self) -> list[Message]:
        """The unacknowledged messages, sent or not."""
        return [delivery.message for delivery in (*self.sent.values(), *self.waiting)]

    def _send(self, connection: Connection, delivery: Delivery) -> None:
        if delivery.qos:
            delivery.packet_id = self._free_id()
        if self.max_packet is not None:
            packet = delivery.message.packet(delivery, connection.version, False)
            if len(packet.payload) + len(packet.topic) + 16 > self.max_packet:
                self.dropped += 1
                return
        if delivery.qos:
            self.sent[delivery.packet_id] = delivery
        connection.send(delivery.message.packet(delivery, connection.version, False))

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % 65_535 + 1
            if self._last_id not in self.sent:
                return self._last_id
