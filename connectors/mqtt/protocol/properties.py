"""The properties of MQTT 5 (section 2.2.2): their names, types, encoding, and the packets that may have them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final

from connectors.mqtt.protocol.fields import MOST, Fields, malformed, written_binary, written_text, written_varint
from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode


@dataclass(frozen=True, slots=True)
class Properties:
    """Properties of a packet or a will under the standard's names; `None` where one is absent.

    Intervals are in seconds. A user property may be given many times, so may a subscription identifier in a PUBLISH.
    """

    payload_format_indicator: bool | None = None
    """True: the payload is UTF-8."""
    message_expiry_interval: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval: int | None = None
    """0xFFFFFFFF: never."""
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: bool | None = None
    will_delay_interval: int | None = None
    request_response_information: bool | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: bool | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: bool | None = None
    subscription_identifier_available: bool | None = None
    shared_subscription_available: bool | None = None


NONE: Final = Properties()
"""No properties: those of every packet of MQTT 3.1.1."""


class Place(Enum):
    """The packet that properties belong to, or the will inside a CONNECT."""

    CONNECT = "CONNECT"
    WILL = "will"
    CONNACK = "CONNACK"
    PUBLISH = "PUBLISH"
    PUBACK = "PUBACK"
    PUBREC = "PUBREC"
    PUBREL = "PUBREL"
    PUBCOMP = "PUBCOMP"
    SUBSCRIBE = "SUBSCRIBE"
    SUBACK = "SUBACK"
    UNSUBSCRIBE = "UNSUBSCRIBE"
    UNSUBACK = "UNSUBACK"
    DISCONNECT = "DISCONNECT"
    AUTH = "AUTH"


class Kind(Enum):
    """The encoding of a property's value."""

    FLAG = "a byte, 0 or 1"
    QOS = "a byte, 0 or 1, that is a QoS"
    SHORT = "a two byte integer"
    LONG = "a four byte integer"
    VARINT = "a variable byte integer"
    TEXT = "a UTF-8 string"
    BINARY = "binary data"
    PAIR = "a pair of UTF-8 strings"


@dataclass(frozen=True, slots=True)
class Property:
    """A property as the standard defines it."""

    identifier: int
    name: str
    kind: Kind
    places: frozenset[Place]
    least: int = 0
    """The smallest number that is allowed."""

    @property
    def repeats(self) -> bool:
        """Whether the property may be repeated: `Properties` holds a tuple."""
        return self.kind in (Kind.PAIR, Kind.VARINT)


_MESSAGE: Final = (Place.PUBLISH, Place.WILL)
_OPENING: Final = (Place.CONNECT, Place.CONNACK)
_AUTHENTICATION: Final = (*_OPENING, Place.AUTH)
_REASONED: Final = tuple(set(Place) - {Place.CONNECT, Place.WILL, Place.PUBLISH, Place.SUBSCRIBE, Place.UNSUBSCRIBE})


def _property(identifier: int, name: str, kind: Kind, places: tuple[Place, ...], least: int = 0) -> Property:
    return Property(identifier, name, kind, frozenset(places), least)


PROPERTIES: Final = (
    _property(0x01, "payload_format_indicator", Kind.FLAG, _MESSAGE),
    _property(0x02, "message_expiry_interval", Kind.LONG, _MESSAGE),
    _property(0x03, "content_type", Kind.TEXT, _MESSAGE),
    _property(0x08, "response_topic", Kind.TEXT, _MESSAGE),
    _property(0x09, "correlation_data", Kind.BINARY, _MESSAGE),
    _property(0x0B, "subscription_identifiers", Kind.VARINT, (Place.PUBLISH, Place.SUBSCRIBE), 1),
    _property(0x11, "session_expiry_interval", Kind.LONG, (*_OPENING, Place.DISCONNECT)),
    _property(0x12, "assigned_client_identifier", Kind.TEXT, (Place.CONNACK,)),
    _property(0x13, "server_keep_alive", Kind.SHORT, (Place.CONNACK,)),
    _property(0x15, "authentication_method", Kind.TEXT, _AUTHENTICATION),
    _property(0x16, "authentication_data", Kind.BINARY, _AUTHENTICATION),
    _property(0x17, "request_problem_information", Kind.FLAG, (Place.CONNECT,)),
    _property(0x18, "will_delay_interval", Kind.LONG, (Place.WILL,)),
    _property(0x19, "request_response_information", Kind.FLAG, (Place.CONNECT,)),
    _property(0x1A, "response_information", Kind.TEXT, (Place.CONNACK,)),
    _property(0x1C, "server_reference", Kind.TEXT, (Place.CONNACK, Place.DISCONNECT)),
    _property(0x1F, "reason_string", Kind.TEXT, _REASONED),
    _property(0x21, "receive_maximum", Kind.SHORT, _OPENING, 1),
    _property(0x22, "topic_alias_maximum", Kind.SHORT, _OPENING),
    _property(0x23, "topic_alias", Kind.SHORT, (Place.PUBLISH,), 1),
    _property(0x24, "maximum_qos", Kind.QOS, (Place.CONNACK,)),
    _property(0x25, "retain_available", Kind.FLAG, (Place.CONNACK,)),
    _property(0x26, "user_properties", Kind.PAIR, tuple(Place)),
    _property(0x27, "maximum_packet_size", Kind.LONG, _OPENING, 1),
    _property(0x28, "wildcard_subscription_available", Kind.FLAG, (Place.CONNACK,)),
    _property(0x29, "subscription_identifier_available", Kind.FLAG, (Place.CONNACK,)),
    _property(0x2A, "shared_subscription_available", Kind.FLAG, (Place.CONNACK,)),
)
"""All properties of MQTT 5."""

_BY_IDENTIFIER: Final = {known.identifier: known for known in PROPERTIES}
_BY_NAME: Final = {known.name: known for known in PROPERTIES}


def read_properties(packet: Fields, place: Place) -> Properties:
    """The properties that come next in the packet, behind their length.

    Raises `ProtocolError` for one that is unknown, stands in the wrong packet, comes twice or has a wrong value.
    """
    length = packet.varint("property length")
    if not length:
        return NONE
    if length > packet.left:
        raise malformed(f"{packet.name}: its properties are longer than the packet")
    start = packet.at
    packet.at = start + length
    return _read(Fields(packet.buffer, start, packet.at, packet.name), place)


def decode_properties(raw: bytes | memoryview, place: Place = Place.PUBLISH) -> Properties:
    """Properties without their length in front, as in the columns of a scan. Raises `ProtocolError` as
    `read_properties`."""
    return _read(Fields(memoryview(raw), 0, len(raw), place.value), place) if len(raw) else NONE


def _read(packet: Fields, place: Place) -> Properties:
    values: dict[str, Any] = {}
    while packet.left:
        identifier = packet.varint("property identifier")
        known = _BY_IDENTIFIER.get(identifier)
        if known is None:
            raise malformed(f"{packet.name}: there is no property 0x{identifier:02X}")
        if place not in known.places:
            raise _broken(f"{packet.name}: {known.name} may not stand in it (section 2.2.2.2)")
        value = _value(packet, known)
        if known.repeats and (known.kind is Kind.PAIR or place is Place.PUBLISH):
            values.setdefault(known.name, []).append(value)
        elif known.name in values:
            raise _broken(f"{packet.name}: {known.name} comes twice")
        else:
            values[known.name] = [value] if known.repeats else value
    _agree(packet.name, values)
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
    return Properties(**values)


def _value(packet: Fields, known: Property) -> Any:
    what, kind = known.name, known.kind
    if kind is Kind.TEXT:
        return packet.text(what)
    if kind is Kind.PAIR:
        return packet.text("user property's name"), packet.text("user property's value")
    if kind is Kind.BINARY:
        return packet.binary(what)
    if kind is Kind.FLAG or kind is Kind.QOS:
        value = packet.byte(what)
        if value > 1:
            raise _broken(f"{packet.name}: {what} is {value}: it must be 0 or 1")
        return bool(value) if kind is Kind.FLAG else value
    read = {Kind.SHORT: packet.short, Kind.LONG: packet.long, Kind.VARINT: packet.varint}[kind]
    value = read(what)
    if value < known.least:
        reason = ReasonCode.TOPIC_ALIAS_INVALID if what == "topic_alias" else ReasonCode.PROTOCOL_ERROR
        raise ProtocolError(reason, f"{packet.name}: {what} is {value}")
    return value


def _agree(name: str, values: dict[str, Any]) -> None:
    if "authentication_data" in values and "authentication_method" not in values:
        raise _broken(f"{name}: authentication_data without authentication_method")
    topic = values.get("response_topic")
    if topic is not None and (not topic or "+" in topic or "#" in topic):
        raise ProtocolError(ReasonCode.TOPIC_NAME_INVALID, f"{name}: invalid response_topic {topic[:80]!r}")


def _broken(message: str) -> ProtocolError:
    return ProtocolError(ReasonCode.PROTOCOL_ERROR, message)


def encode_properties(properties: Properties, place: Place) -> bytes:
    """The properties behind their length. Raises `ValueError` for a property that is not allowed there or cannot be
    written."""
    if properties is NONE or properties == NONE:
        return b"\0"
    out = bytearray()
    values: dict[str, Any] = {}
    for field in fields(properties):
        value = getattr(properties, field.name)
        if value is None or value == ():
            continue
        known = _BY_NAME[field.name]
        if place not in known.places:
            raise ValueError(f"{place.value}: MQTT has no {known.name} there")
        if known.kind is Kind.VARINT and place is Place.SUBSCRIBE and len(value) > 1:
            raise ValueError("SUBSCRIBE: MQTT has one subscription identifier there, not several")
        values[known.name] = value
        for item in value if known.repeats else (value,):
            out.append(known.identifier)
            out += _written(item, known, place)
    try:
        _agree(place.value, values)
    except ProtocolError as error:
        raise ValueError(str(error)) from None
    return written_varint(len(out)) + out


_SIZES: Final = {Kind.FLAG: 1, Kind.QOS: 1, Kind.SHORT: 2, Kind.LONG: 4}


def _written(value: Any, known: Property, place: Place) -> bytes:
    what = f"{place.value}: {known.name}"
    if known.kind is Kind.TEXT:
        return written_text(value, what)
    if known.kind is Kind.BINARY:
        return written_binary(value, what)
    if known.kind is Kind.PAIR:
        name, text = value
        return written_text(name, what) + written_text(text, what)
    size = _SIZES.get(known.kind)
    most = 1 if size == 1 else MOST if size is None else (1 << 8 * size) - 1
    if not known.least <= value <= most:
        raise ValueError(f"{what} is {value}: it must be {known.least} to {most}")
    return written_varint(value) if size is None else int(value).to_bytes(size, "big")
