"""Writes one packet. `bulk.py` writes messages and acknowledgements by the batch."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

from connectors.mqtt.protocol.fields import written_binary, written_text, written_varint
from connectors.mqtt.protocol.packets import (
    V5,
    V311,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
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
    Version,
    Will,
)
from connectors.mqtt.protocol.properties import NONE, Place, Properties, encode_properties
from connectors.mqtt.protocol.reasons import RETURN_CODES, ReasonCode
from connectors.mqtt.protocol.topics import SHARE, why_no_filter, why_no_name

PINGREQ: Final = bytes([PacketType.PINGREQ << 4, 0])
PINGRESP: Final = bytes([PacketType.PINGRESP << 4, 0])


def encode(packet: Packet, version: Version) -> bytes:
    """The bytes of the packet. A CONNECT has its own version, and ignores `version`.

    Raises `ValueError` for a packet that MQTT, or this version of it, does not allow.
    """
    match packet:
        case Publish():
            return _publish(packet, version)
        case Puback() | Pubrec() | Pubrel() | Pubcomp():
            return _acknowledgement(packet, version)
        case Pingreq():
            return PINGREQ
        case Pingresp():
            return PINGRESP
        case Connect():
            return _connect(packet)
        case Connack():
            return _connack(packet, version)
        case Subscribe():
            return _subscribe(packet, version)
        case Suback():
            return _suback(packet, version)
        case Unsubscribe():
            return _unsubscribe(packet, version)
        case Unsuback():
            return _unsuback(packet, version)
        case Disconnect():
            return _disconnect(packet, version)
        case Auth():
            return _auth(packet, version)


@lru_cache(65_536)
def topic_field(topic: str) -> bytes:
    """A topic name behind its length. Raises `ValueError` if nothing can be published to it."""
    if reason := why_no_name(topic):
        raise ValueError(f"PUBLISH: topic {topic[:80]!r}: {reason}")
    return written_text(topic, "PUBLISH: topic")


def _publish(packet: Publish, version: Version) -> bytes:
    if packet.qos not in (0, 1, 2):
        raise ValueError(f"PUBLISH: QoS {packet.qos}: it must be 0, 1 or 2")
    if packet.dup and not packet.qos:
        raise ValueError("PUBLISH: the flag DUP at QoS 0")
    if packet.topic:
        topic = topic_field(packet.topic)
    elif version == V5 and packet.properties.topic_alias is not None:
        topic = b"\0\0"
    else:
        raise ValueError("PUBLISH: neither a topic nor a topic alias")
    if packet.qos:
        identifier = _packet_id(packet.packet_id, "PUBLISH")
    elif packet.packet_id:
        raise ValueError("PUBLISH: a packet identifier at QoS 0")
    else:
        identifier = b""
    flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    properties = _properties(packet.properties, version, Place.PUBLISH)
    return _packet(PacketType.PUBLISH, flags, topic, identifier, properties, packet.payload)


def _packet(kind: PacketType, flags: int, *parts: bytes) -> bytes:
    length = written_varint(sum(map(len, parts)))
    return b"".join((bytes([kind << 4 | flags]), length, *parts))


def _packet_id(packet_id: int, name: str) -> bytes:
    if not 1 <= packet_id <= 0xFFFF:
        raise ValueError(f"{name}: packet identifier {packet_id}: it must be 1 to 65535")
    return packet_id.to_bytes(2, "big")


def _properties(properties: Properties, version: Version, place: Place) -> bytes:
    if version == V5:
        return encode_properties(properties, place)
    if properties != NONE:
        raise ValueError(f"{place.value}: MQTT 3.1.1 has no properties")
    return b""


def _reason(reason: ReasonCode, name: str, allowed: Collection[ReasonCode]) -> int:
    if not reason.failed and reason not in allowed:
        raise ValueError(f"{name}: reason code {reason.text} may not stand in it")
    return reason


_SUCCESS: Final = (ReasonCode.SUCCESS,)
_TAKEN: Final = (ReasonCode.SUCCESS, ReasonCode.NO_MATCHING_SUBSCRIBERS)


def _acknowledgement(packet: Acknowledgement, version: Version) -> bytes:
    place = Place[type(packet).__name__.upper()]
    kind = PacketType[place.name]
    identifier = _packet_id(packet.packet_id, kind.name)
    code = _reason(packet.reason, kind.name, _TAKEN if kind in (PacketType.PUBACK, PacketType.PUBREC) else _SUCCESS)
    properties = _properties(packet.properties, version, place)
    # MQTT 3.1.1 has no refusal of a message: it is acknowledged all the same.
    parts: tuple[bytes, ...] = ()
    if version == V5 and (code or properties != b"\0"):
        parts = (bytes([code]), properties if properties != b"\0" else b"")
    return _packet(kind, 2 if kind is PacketType.PUBREL else 0, identifier, *parts)


def _connect(packet: Connect) -> bytes:
    if packet.version not in (V311, V5):
        raise ValueError(f"CONNECT: protocol level {packet.version}: it must be 4 or 5")
    if packet.version == V311 and packet.password is not None and packet.username is None:
        raise ValueError("CONNECT: a password without a user name, which MQTT 3.1.1 does not allow")
    if packet.version == V311 and not packet.client_id and not packet.clean_start:
        raise ValueError("CONNECT: a session to be kept needs a client identifier")
    if not 0 <= packet.keep_alive <= 0xFFFF:
        raise ValueError(f"CONNECT: keep alive {packet.keep_alive}: it must be 0 to 65535 seconds")
    flags = packet.clean_start << 1
    parts = [written_text(packet.client_id, "CONNECT: client identifier")]
    if packet.will is not None:
        flags |= 4 | packet.will.qos << 3 | packet.will.retain << 5
        parts += _will(packet.will, packet.version)
    if packet.username is not None:
        flags |= 0x80
        parts.append(written_text(packet.username, "CONNECT: user name"))
    if packet.password is not None:
        flags |= 0x40
        parts.append(written_binary(packet.password, "CONNECT: password"))
    head = b"\0\4MQTT" + bytes([packet.version, flags]) + packet.keep_alive.to_bytes(2, "big")
    return _packet(PacketType.CONNECT, 0, head, _properties(packet.properties, packet.version, Place.CONNECT), *parts)


def _will(will: Will, version: Version) -> list[bytes]:
    if will.qos not in (0, 1, 2):
        raise ValueError(f"CONNECT: QoS {will.qos} of its will: it must be 0, 1 or 2")
    if reason := why_no_name(will.topic):
        raise ValueError(f"CONNECT: will topic {will.topic[:80]!r}: {reason}")
    return [
        _properties(will.properties, version, Place.WILL),
        written_text(will.topic, "CONNECT: will topic"),
        written_binary(will.payload, "CONNECT: will payload"),
    ]


def _connack(packet: Connack, version: Version) -> bytes:
    if packet.session_present and packet.reason.failed:
        raise ValueError(f"CONNACK: {packet.reason.text}, yet a session is present")
    if version == V5:
        code = _reason(packet.reason, "CONNACK", _SUCCESS)
    elif packet.reason in RETURN_CODES:
        code = RETURN_CODES.index(packet.reason)
    else:
        raise ValueError(f"CONNACK: MQTT 3.1.1 has no return code for {packet.reason.text}")
    head = bytes([packet.session_present, code])
    return _packet(PacketType.CONNACK, 0, head, _properties(packet.properties, version, Place.CONNACK))


def _subscribe(packet: Subscribe, version: Version) -> bytes:
    head = _packet_id(packet.packet_id, "SUBSCRIBE") + _properties(packet.properties, version, Place.SUBSCRIBE)
    if not packet.subscriptions:
        raise ValueError("SUBSCRIBE: nothing in it")
    wanted = [
        _filter(subscription.filter, "SUBSCRIBE") + _options(subscription, version)
        for subscription in packet.subscriptions
    ]
    return _packet(PacketType.SUBSCRIBE, 2, head, *wanted)


def _options(subscription: Subscription, version: Version) -> bytes:
    if subscription.qos not in (0, 1, 2) or subscription.retain_handling not in (0, 1, 2):
        raise ValueError(
            f"SUBSCRIBE: QoS {subscription.qos}, retain handling {subscription.retain_handling}: both must be 0, 1 or 2"
        )
    if subscription.no_local and subscription.filter.startswith(f"{SHARE}/"):
        raise ValueError("SUBSCRIBE: the option No Local of a shared subscription")
    options = (
        subscription.qos
        | subscription.no_local << 2
        | subscription.retain_as_published << 3
        | subscription.retain_handling << 4
    )
    if version == V311 and options != subscription.qos:
        raise ValueError("SUBSCRIBE: MQTT 3.1.1 has no options of a subscription but its QoS")
    return bytes([options])


def _filter(filter: str, name: str) -> bytes:
    if reason := why_no_filter(filter):
        raise ValueError(f"{name}: topic filter {filter[:80]!r}: {reason}")
    return written_text(filter, f"{name}: topic filter")


def _suback(packet: Suback, version: Version) -> bytes:
    head = _packet_id(packet.packet_id, "SUBACK") + _properties(packet.properties, version, Place.SUBACK)
    granted = (ReasonCode.SUCCESS, ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2)
    codes = bytes(_reason(reason, "SUBACK", granted) for reason in packet.reasons)
    if version == V311:
        # MQTT 3.1.1 has only one failure code.
        codes = bytes(min(code, 0x80) for code in codes)
    if not codes:
        raise ValueError("SUBACK: nothing in it")
    return _packet(PacketType.SUBACK, 0, head, codes)


def _unsubscribe(packet: Unsubscribe, version: Version) -> bytes:
    head = _packet_id(packet.packet_id, "UNSUBSCRIBE") + _properties(packet.properties, version, Place.UNSUBSCRIBE)
    if not packet.filters:
        raise ValueError("UNSUBSCRIBE: nothing in it")
    return _packet(
        PacketType.UNSUBSCRIBE, 2, head, *(_filter(topic_filter, "UNSUBSCRIBE") for topic_filter in packet.filters)
    )


def _unsuback(packet: Unsuback, version: Version) -> bytes:
    head = _packet_id(packet.packet_id, "UNSUBACK") + _properties(packet.properties, version, Place.UNSUBACK)
    known = (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED)
    codes = bytes(_reason(reason, "UNSUBACK", known) for reason in packet.reasons)
    if version == V311:
        return _packet(PacketType.UNSUBACK, 0, head)
    if not codes:
        raise ValueError("UNSUBACK: nothing in it")
    return _packet(PacketType.UNSUBACK, 0, head, codes)


def _disconnect(packet: Disconnect, version: Version) -> bytes:
    known = (ReasonCode.SUCCESS, ReasonCode.DISCONNECT_WITH_WILL_MESSAGE)
    code = _reason(packet.reason, "DISCONNECT", known)
    properties = _properties(packet.properties, version, Place.DISCONNECT)
    if version == V311 or (not code and properties == b"\0"):
        return _packet(PacketType.DISCONNECT, 0)
    return _packet(PacketType.DISCONNECT, 0, bytes([code]), properties if properties != b"\0" else b"")


def _auth(packet: Auth, version: Version) -> bytes:
    if version == V311:
        raise ValueError("AUTH: MQTT 3.1.1 does not have it")
    if packet == Auth():
        return _packet(PacketType.AUTH, 0)
    known = (ReasonCode.SUCCESS, ReasonCode.CONTINUE_AUTHENTICATION, ReasonCode.RE_AUTHENTICATE)
    if packet.reason not in known:
        raise ValueError(f"AUTH: reason code {packet.reason.text} may not stand in it")
    if packet.properties.authentication_method is None:
        raise ValueError("AUTH: no authentication method")
    return _packet(PacketType.AUTH, 0, bytes([packet.reason]), encode_properties(packet.properties, Place.AUTH))
