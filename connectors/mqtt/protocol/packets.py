"""The packets of MQTT 3.1.1 and 5.0 as values. Chapter 3 of the standards defines their fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal, TypeAlias

from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reasons import ReasonCode

Version: TypeAlias = Literal[4, 5]
"""The protocol level as CONNECT carries it: 4 is MQTT 3.1.1, 5 is MQTT 5.0."""

V311: Final[Version] = 4
V5: Final[Version] = 5


class PacketType(IntEnum):
    """The kind of a packet: the high nibble of its first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the server publishes when the client is lost."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Connect:
    """Client to server: begin or resume a session.

    `clean_start` is called Clean Session in MQTT 3.1.1; `keep_alive` is in seconds, 0 means none.
    """

    client_id: str
    clean_start: bool = True
    keep_alive: int = 0
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    will: Will | None = None
    properties: Properties = NONE
    version: Version = V5


@dataclass(frozen=True, slots=True)
class Connack:
    """Server to client. `reason` is MQTT 5's also in MQTT 3.1.1, whose return codes have their equals there."""

    session_present: bool = False
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Publish:
    """A message. `packet_id` is 0 at QoS 0, and only there; an empty `topic` goes with a topic alias."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Puback:
    """The receiver has taken over a message of QoS 1, or refuses it."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Pubrec:
    """The receiver has taken over a message of QoS 2, or refuses it."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Pubrel:
    """The sender of a message of QoS 2 releases it."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Pubcomp:
    """The receiver of a message of QoS 2 has released its packet id."""

    packet_id: int
    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Subscription:
    """One topic filter of a SUBSCRIBE with its options; all but `qos` are MQTT 5's."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Client to server: at least one subscription."""

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Suback:
    """Server to client: the granted QoS or a failure for each subscription, in order."""

    packet_id: int
    reasons: tuple[ReasonCode, ...]
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Client to server: at least one topic filter."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Unsuback:
    """Server to client: a reason for each filter, in order; MQTT 3.1.1 has none."""

    packet_id: int
    reasons: tuple[ReasonCode, ...] = ()
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Pingreq:
    """Client to server: asks for a PINGRESP."""


@dataclass(frozen=True, slots=True)
class Pingresp:
    """Server to client: answers a PINGREQ."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The last packet of a connection. A server sends it in MQTT 5 only; MQTT 3.1.1 has no reason in it."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


@dataclass(frozen=True, slots=True)
class Auth:
    """One step of an extended authentication, MQTT 5 only."""

    reason: ReasonCode = ReasonCode.SUCCESS
    properties: Properties = NONE


Acknowledgement: TypeAlias = Puback | Pubrec | Pubrel | Pubcomp
Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Acknowledgement
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
