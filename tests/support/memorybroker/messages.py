"""A message inside the development broker, on its way to subscribers."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from connectors.mqtt.protocol.packets import V311, Publish, Version, Will
from connectors.mqtt.protocol.properties import NONE, Properties


@dataclass(frozen=True, slots=True)
class Message:
    """A published message. `expires_at` is on `time.monotonic`, `None`: never."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = NONE
    expires_at: float | None = None

    @classmethod
    def of(cls, packet: Publish | Will) -> Message:
        """The message in a packet; a topic alias has done its work."""
        properties = packet.properties
        expiry = properties.message_expiry_interval
        if properties is not NONE:
            properties = replace(properties, topic_alias=None, message_expiry_interval=None, will_delay_interval=None)
        return cls(
            packet.topic,
            packet.payload,
            packet.qos,
            packet.retain,
            properties,
            None if expiry is None else time.monotonic() + expiry,
        )

    @property
    def size(self) -> int:
        """Its bytes, about."""
        return len(self.topic) + len(self.payload) + 64

    @property
    def expired(self) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and time.monotonic() >= self.expires_at

    def packet(self, delivery: Delivery, version: Version, dup: bool) -> Publish:
        """The PUBLISH that takes it to a client."""
        properties = self.properties
        if version == V311:
            properties = NONE
        elif self.expires_at is not None or delivery.identifiers:
            left = None if self.expires_at is None else max(1, round(self.expires_at - time.monotonic()))
            properties = replace(
                properties, message_expiry_interval=left, subscription_identifiers=delivery.identifiers
            )
        dup = dup and delivery.qos > 0
        return Publish(self.topic, self.payload, delivery.qos, delivery.retain, dup, delivery.packet_id, properties)


@dataclass(slots=True)
class Delivery:
    """A message on its way to one session: with which QoS, and how far it has come."""

    message: Message
    qos: int
    retain: bool
    identifiers: tuple[int, ...] = ()
    packet_id: int = 0
    received: bool = False
    """QoS 2: the client has sent its PUBREC, so that only a PUBREL may follow."""
