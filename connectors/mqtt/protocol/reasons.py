"""Reason codes of MQTT 5 (section 2.4) and return codes of MQTT 3.1.1, and whether each allows a retry."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Final

from pipelines.errors import ConnectorError


class ReasonCode(IntEnum):
    """A reason code of MQTT 5 under the standard's name; 0x80 and more are failures.

    Code 0 is called Success, Normal disconnection and Granted QoS 0, by packet.
    """

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL_MESSAGE = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2

    @property
    def failed(self) -> bool:
        """Whether the code says that something failed."""
        return self >= 0x80

    @property
    def text(self) -> str:
        """The code for people: `not authorized (0x87)`."""
        return f"{self.name.replace('_', ' ').lower()} (0x{self:02X})"


class ProtocolError(ConnectorError):
    """The other side broke the rules of MQTT: the connection has to be closed, with `reason` where it is MQTT 5.

    A new connection may succeed, so the error is retriable.
    """

    def __init__(self, reason: ReasonCode, message: str) -> None:
        super().__init__(f"MQTT: {message}", retriable=True)
        self.reason = reason


RETURN_CODES: Final[tuple[ReasonCode, ...]] = (
    ReasonCode.SUCCESS,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED,
)
"""The reason code for each return code of a CONNACK of MQTT 3.1.1, by number: 0 accepted to 5 not authorized."""


class Outcome(Enum):
    """The consequence of a reason code for the request."""

    DONE = "done"
    RETRIABLE = "retriable"
    """A later attempt, perhaps on a new connection, may succeed."""
    OF_THE_RECORD = "of the record"
    """This message will never be accepted; others may be."""
    FATAL = "fatal"
    """It will fail again until a configuration is changed."""


def of_publish(reason: ReasonCode) -> Outcome:
    """The consequence of a PUBACK or PUBREC with this code for the message."""
    return _outcome(reason, _PUBLISH, Outcome.OF_THE_RECORD)


def of_connect(reason: ReasonCode) -> Outcome:
    """The consequence of a CONNACK with this code for the connection."""
    return _outcome(reason, _CONNECT, Outcome.FATAL)


def of_subscribe(reason: ReasonCode) -> Outcome:
    """The consequence of a code in a SUBACK or UNSUBACK for the subscription."""
    return _outcome(reason, _SUBSCRIBE, Outcome.FATAL)


def of_disconnect(reason: ReasonCode) -> Outcome:
    """The consequence of a DISCONNECT from the server for reconnecting.

    Only a session taken over is fatal: a reconnect would disconnect the other client, which would then do the same.
    """
    return Outcome.FATAL if reason is ReasonCode.SESSION_TAKEN_OVER else Outcome.RETRIABLE


def _outcome(reason: ReasonCode, known: Mapping[ReasonCode, Outcome], otherwise: Outcome) -> Outcome:
    return known.get(reason, otherwise) if reason.failed else Outcome.DONE


def _retriable(*reasons: ReasonCode) -> Mapping[ReasonCode, Outcome]:
    return MappingProxyType(dict.fromkeys(reasons, Outcome.RETRIABLE))


_PUBLISH = _retriable(
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY,
    ReasonCode.SERVER_SHUTTING_DOWN,
    ReasonCode.PACKET_IDENTIFIER_IN_USE,
    ReasonCode.PACKET_IDENTIFIER_NOT_FOUND,
    ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
    ReasonCode.MESSAGE_RATE_TOO_HIGH,
    ReasonCode.QUOTA_EXCEEDED,
)
_CONNECT = _retriable(
    ReasonCode.UNSPECIFIED_ERROR,
    ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ReasonCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY,
    ReasonCode.SERVER_SHUTTING_DOWN,
    ReasonCode.QUOTA_EXCEEDED,
    ReasonCode.USE_ANOTHER_SERVER,
    ReasonCode.CONNECTION_RATE_EXCEEDED,
)
_SUBSCRIBE = _retriable(
    ReasonCode.PACKET_IDENTIFIER_IN_USE,
    ReasonCode.QUOTA_EXCEEDED,
    ReasonCode.SERVER_BUSY,
)
