"""Reads packets, one by one, from the bytes of a connection. `scan.py` is the fast way for messages in bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, NamedTuple, TypeAlias, TypeVar

from connectors.mqtt.protocol.fields import MOST, Fields, malformed, text
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
from connectors.mqtt.protocol.properties import NONE, Place, Properties, decode_properties, read_properties
from connectors.mqtt.protocol.reasons import RETURN_CODES, ProtocolError, ReasonCode
from connectors.mqtt.protocol.topics import SHARE, why_no_filter, why_no_name
from pipelines.errors import without_traceback

LARGEST: Final = MOST + 5
"""Bytes of the largest packet that MQTT knows."""


class Role(Enum):
    """The side that reads: client and server may get different packets."""

    CLIENT = "client"
    SERVER = "server"


_FROM_SERVERS: Final = frozenset({PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP})
_FROM_CLIENTS: Final = frozenset(
    {PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE, PacketType.PINGREQ},
)
_FLAGS: Final[dict[int, int]] = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}


class PacketReader:
    """Takes the received bytes of one connection and yields the packets in them.

    `role` is the side that reads. A server does not know the version before the CONNECT, which must come first:
    `version` is `None` until then. A packet of more than `max_packet` bytes, its header included, is refused when its
    header is read, so that no more bytes are kept. `aliases` holds the topic aliases, by default none may be set: they
    are replaced by their topics.
    """

    def __init__(
        self,
        role: Role,
        version: Version | None = None,
        max_packet: int = LARGEST,
        aliases: Aliases | None = None,
    ) -> None:
        self.role = role
        self.version = version
        self.max_packet = max_packet
        self._learns = version is None
        self.aliases = aliases or Aliases()
        self._kept = bytearray()
        self._failed: ProtocolError | None = None

    @property
    def kept(self) -> int:
        """The number of received bytes of an incomplete packet."""
        return len(self._kept)

    def take_kept(self) -> bytes:
        """Remove and return these bytes."""
        kept, self._kept = bytes(self._kept), bytearray()
        return kept

    def keep(self, data: bytes) -> None:
        """Keep the bytes of an incomplete packet, in front of the next ones that `feed` gets; there must be none kept
        already."""
        self._kept = bytearray(data)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Packet]:
        """Take these bytes, and yield the packets that are complete now, first those not yet taken from an earlier
        call.

        The iterator raises `ProtocolError` at the first packet that breaks the rules, and so does every later call.
        """
        if self._failed is None:
            self._kept += data
        return self._packets()

    def _packets(self) -> Iterator[Packet]:
        while self._failed is None:
            try:
                packet = self._next()
            except ProtocolError as error:
                # Its traceback would keep stack frames, and those views of the bytes.
                self._failed = without_traceback(error)
                self._kept = bytearray()
                break
            if packet is None:
                return
            yield packet
        if self._failed is not None:
            raise self._failed

    def _next(self) -> Packet | None:
        with memoryview(self._kept) as buffer:
            packet_and_end = self.read(buffer, 0, len(buffer))
        if packet_and_end is None:
            return None
        packet, stop = packet_and_end
        del self._kept[:stop]
        return packet

    def read(self, buffer: memoryview, start: int, stop: int) -> tuple[Packet, int] | None:
        """The packet that begins at `start`, and where it ends; `None` if it is not whole at `stop`.

        For bytes that the caller keeps. Raises `ProtocolError`.
        """
        header = read_header(buffer, start, stop, self.version, self.max_packet)
        if header is None:
            return None
        body, end = header
        if self._learns and (self.version is None) != (buffer[start] >> 4 == PacketType.CONNECT):
            raise _broken("the first packet is not a CONNECT" if self.version is None else "a second CONNECT")
        if end > stop:
            return None
        packet = read_packet(buffer, start, body, end, self.version or V5, self.role, self.aliases)
        if isinstance(packet, Connect) and self._learns:
            self.version = packet.version
        return packet, end


class Aliases:
    """The topic aliases that the other side of a connection has set, up to the announced `maximum`."""

    __slots__ = ("_topics", "maximum")

    def __init__(self, maximum: int = 0) -> None:
        self.maximum = maximum
        self._topics: dict[int, str] = {}

    def resolved(self, topic: str, alias: int | None) -> str:
        """The topic that a PUBLISH means. Raises `ProtocolError` for an alias that was not announced or not set."""
        if alias is None:
            if not topic:
                raise _broken("PUBLISH: neither a topic nor a topic alias")
            return topic
        if alias > self.maximum:
            most = f"the most that was announced is {self.maximum}"
            raise ProtocolError(ReasonCode.TOPIC_ALIAS_INVALID, f"PUBLISH: topic alias {alias}: {most}")
        if topic:
            self._topics[alias] = topic
            return topic
        known = self._topics.get(alias)
        if known is None:
            raise _broken(f"PUBLISH: topic alias {alias} was never set")
        return known


def read_header(
    buffer: memoryview, start: int, stop: int, version: Version | None, max_packet: int
) -> tuple[int, int] | None:
    """Where the body of the packet at `start` begins, and where it ends, which may be after `stop`.

    `None` if its header is incomplete. Raises `ProtocolError` for an invalid header.
    """
    if stop == start:
        return None
    first = buffer[start]
    kind = first >> 4
    if not kind:
        raise malformed("there is no packet of type 0")
    if kind != PacketType.PUBLISH and first & 0xF != _FLAGS.get(kind, 0):
        raise malformed(f"{PacketType(kind).name}: reserved flags are set in its first byte 0x{first:02X}")
    length = shift = 0
    at = start + 1
    while True:
        if at == stop:
            return None
        byte = buffer[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 21:
            raise malformed(f"{PacketType(kind).name}: its length has more than four bytes")
    # MQTT 3.1.1 does not demand the shortest form, and small devices pad it.
    if version == V5 and shift and not byte:
        raise malformed(f"{PacketType(kind).name}: its length is written in more bytes than it needs")
    end = at + length
    if end - start > max_packet:
        size = f"it has {end - start} bytes, more than the {max_packet} that are allowed"
        raise ProtocolError(ReasonCode.PACKET_TOO_LARGE, f"{PacketType(kind).name}: {size}")
    return at, end


def read_packet(
    buffer: memoryview, start: int, body: int, stop: int, version: Version, role: Role, aliases: Aliases
) -> Packet:
    """The packet `[start, stop)` whose body begins at `body`. Raises `ProtocolError`."""
    first = buffer[start]
    kind = PacketType(first >> 4)
    if kind in (_FROM_CLIENTS if role is Role.CLIENT else _FROM_SERVERS):
        raise _broken(f"{kind.name}: a {role.value} never gets it")
    if version == V311 and (kind is PacketType.AUTH or (kind is PacketType.DISCONNECT and role is Role.CLIENT)):
        raise _broken(f"{kind.name}: MQTT 3.1.1 does not have it in this direction")
    packet = Fields(buffer, body, stop, kind.name)
    if kind is PacketType.PUBLISH:
        return _publish(packet, first, version, role, aliases)
    message = _READ[kind](packet, version, role)
    packet.end()
    return message


class FramedPublish(NamedTuple):
    """The parts of a PUBLISH, known to lie inside it, but not checked otherwise."""

    first: int
    topic: bytes
    packet_id: int
    properties: tuple[int, int]
    """Start and end of the properties in the packet, without their length."""
    payload: int
    """Start of the payload in the packet."""

    @property
    def qos(self) -> int:
        """0, 1 or 2."""
        return self.first >> 1 & 3


def framed(packet: Fields, first: int, version: Version) -> FramedPublish:
    """The parts of a PUBLISH. Raises `ProtocolError` if they cannot be told apart, or for QoS, DUP and packet id."""
    qos = first >> 1 & 3
    if qos == 3:
        raise malformed("PUBLISH: QoS 3")
    if first & 8 and not qos:
        raise malformed("PUBLISH: the flag DUP at QoS 0")
    topic = packet.binary("topic")
    packet_id = _packet_id(packet) if qos else 0
    start = packet.at
    if version == V5:
        length = packet.varint("property length")
        if length > packet.left:
            raise malformed("PUBLISH: its properties are longer than the packet")
        start = packet.at
        packet.at += length
    return FramedPublish(first, topic, packet_id, (start, packet.at), packet.at)


def topic_of(message: FramedPublish) -> str:
    """The topic of a PUBLISH, empty if it has an alias instead. Raises `ProtocolError` for an invalid topic name."""
    topic = text(message.topic, "PUBLISH: its topic")
    if topic and (reason := why_no_name(topic)):
        raise ProtocolError(ReasonCode.TOPIC_NAME_INVALID, f"PUBLISH: topic {topic[:80]!r}: {reason}")
    return topic


def properties_of(message: FramedPublish, buffer: memoryview, role: Role) -> Properties:
    """The properties of a PUBLISH. Raises `ProtocolError` for those that break the rules."""
    start, stop = message.properties
    properties = decode_properties(buffer[start:stop], Place.PUBLISH)
    if properties.subscription_identifiers and role is Role.SERVER:
        raise _broken("PUBLISH: subscription identifiers come from servers alone")
    return properties


def _publish(packet: Fields, first: int, version: Version, role: Role, aliases: Aliases) -> Publish:
    message = framed(packet, first, version)
    topic, properties = topic_of(message), properties_of(message, packet.buffer, role)
    topic = aliases.resolved(topic, properties.topic_alias)
    payload = bytes(packet.take(packet.left, "payload"))
    return Publish(topic, payload, message.qos, bool(first & 1), bool(first & 8), message.packet_id, properties)


def _packet_id(packet: Fields) -> int:
    packet_id = packet.short("packet identifier")
    if not packet_id:
        raise malformed(f"{packet.name}: packet identifier 0")
    return packet_id


def _properties(packet: Fields, version: Version, place: Place) -> Properties:
    return read_properties(packet, place) if version == V5 else NONE


def _reason(packet: Fields, *successes: ReasonCode) -> ReasonCode:
    """A reason code: one of these, or any failure, as servers send failures that the standard lists elsewhere."""
    code = packet.byte("reason code")
    try:
        reason = ReasonCode(code)
    except ValueError:
        raise malformed(f"{packet.name}: there is no reason code 0x{code:02X}") from None
    if not reason.failed and reason not in successes:
        raise malformed(f"{packet.name}: reason code {reason.text} may not stand in it")
    return reason


def _connect(packet: Fields, _: Version, __: Role) -> Connect:
    name, level = packet.text("protocol name"), packet.byte("protocol level")
    if name != "MQTT" or level not in (V311, V5):
        raise ProtocolError(
            ReasonCode.UNSUPPORTED_PROTOCOL_VERSION,
            f"CONNECT: protocol {name[:20]!r} of level {level}: 4 and 5 are known",
        )
    version: Version = V5 if level == V5 else V311
    flags, keep_alive = packet.byte("connect flags"), packet.short("keep alive")
    has_will, will_qos, will_retain = bool(flags & 4), flags >> 3 & 3, bool(flags & 0x20)
    if flags & 1:
        raise malformed("CONNECT: the reserved flag is set")
    if will_qos == 3 or (not has_will and (will_qos or will_retain)):
        raise malformed(f"CONNECT: QoS {will_qos} and RETAIN {will_retain:d} of {'its' if has_will else 'no'} will")
    if version == V311 and flags & 0xC0 == 0x40:
        raise malformed("CONNECT: a password without a user name, which MQTT 3.1.1 does not allow")
    properties = _properties(packet, version, Place.CONNECT)
    client_id, clean = packet.text("client identifier"), bool(flags & 2)
    if version == V311 and not client_id and not clean:
        raise ProtocolError(
            ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "CONNECT: a session to be kept needs a client identifier"
        )
    will = _will(packet, version, will_qos, will_retain) if has_will else None
    username = packet.text("user name") if flags & 0x80 else None
    password = packet.binary("password") if flags & 0x40 else None
    return Connect(client_id, clean, keep_alive, username, password, will, properties, version)


def _will(packet: Fields, version: Version, qos: int, retain: bool) -> Will:
    properties = _properties(packet, version, Place.WILL)
    topic = packet.text("will topic")
    if reason := why_no_name(topic):
        raise ProtocolError(ReasonCode.TOPIC_NAME_INVALID, f"CONNECT: will topic {topic[:80]!r}: {reason}")
    return Will(topic, packet.binary("will payload"), qos, retain, properties)


def _connack(packet: Fields, version: Version, _: Role) -> Connack:
    flags = packet.byte("acknowledge flags")
    if flags > 1:
        raise malformed(f"CONNACK: reserved flags are set (0x{flags:02X})")
    if version == V5:
        reason = _reason(packet, ReasonCode.SUCCESS)
    else:
        code = packet.byte("return code")
        if code >= len(RETURN_CODES):
            raise malformed(f"CONNACK: there is no return code {code}")
        reason = RETURN_CODES[code]
    if flags and reason.failed:
        raise _broken(f"CONNACK: {reason.text}, yet a session is present")
    return Connack(bool(flags), reason, _properties(packet, version, Place.CONNACK))


_Acknowledging: TypeAlias = Callable[[int, ReasonCode, Properties], Acknowledgement]


def _acknowledgement(made: _Acknowledging, place: Place, *successes: ReasonCode) -> _Read:
    def read(packet: Fields, version: Version, _: Role) -> Acknowledgement:
        packet_id = _packet_id(packet)
        if version == V311 or not packet.left:
            return made(packet_id, ReasonCode.SUCCESS, NONE)
        reason = _reason(packet, ReasonCode.SUCCESS, *successes)
        return made(packet_id, reason, read_properties(packet, place) if packet.left else NONE)

    return read


def _subscribe(packet: Fields, version: Version, _: Role) -> Subscribe:
    packet_id = _packet_id(packet)
    properties = _properties(packet, version, Place.SUBSCRIBE)
    subscriptions: list[Subscription] = []
    while packet.left:
        wanted = _filter(packet)
        options = packet.byte("subscription options")
        qos, handling = options & 3, options >> 4 & 3
        if options & (0xC0 if version == V5 else 0xFC):
            raise malformed(f"SUBSCRIBE: reserved options are set (0x{options:02X})")
        if qos == 3 or handling == 3:
            broken = malformed if version == V311 else _broken
            raise broken(f"SUBSCRIBE: QoS {qos}, retain handling {handling}: both must be at most 2")
        if options & 4 and wanted.startswith(f"{SHARE}/"):
            raise _broken("SUBSCRIBE: the option No Local of a shared subscription")
        subscriptions.append(Subscription(wanted, qos, bool(options & 4), bool(options & 8), handling))
    return Subscribe(packet_id, _some(packet, subscriptions), properties)


def _unsubscribe(packet: Fields, version: Version, _: Role) -> Unsubscribe:
    packet_id = _packet_id(packet)
    properties = _properties(packet, version, Place.UNSUBSCRIBE)
    filters: list[str] = []
    while packet.left:
        filters.append(_filter(packet))
    return Unsubscribe(packet_id, _some(packet, filters), properties)


def _filter(packet: Fields) -> str:
    topic_filter = packet.text("topic filter")
    if reason := why_no_filter(topic_filter):
        raise ProtocolError(
            ReasonCode.TOPIC_FILTER_INVALID, f"{packet.name}: topic filter {topic_filter[:80]!r}: {reason}"
        )
    return topic_filter


def _suback(packet: Fields, version: Version, _: Role) -> Suback:
    packet_id = _packet_id(packet)
    properties = _properties(packet, version, Place.SUBACK)
    reasons: list[ReasonCode] = []
    while packet.left:
        reasons.append(_reason(packet, ReasonCode.SUCCESS, ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_2))
        if version == V311 and reasons[-1] > ReasonCode.UNSPECIFIED_ERROR:
            raise malformed(f"SUBACK: there is no return code 0x{reasons[-1]:02X}")
    return Suback(packet_id, _some(packet, reasons), properties)


def _unsuback(packet: Fields, version: Version, _: Role) -> Unsuback:
    packet_id = _packet_id(packet)
    if version == V311:
        return Unsuback(packet_id)
    properties = read_properties(packet, Place.UNSUBACK)
    reasons: list[ReasonCode] = []
    while packet.left:
        reasons.append(_reason(packet, ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED))
    return Unsuback(packet_id, _some(packet, reasons), properties)


T = TypeVar("T")


def _some(packet: Fields, items: list[T]) -> tuple[T, ...]:
    if not items:
        raise _broken(f"{packet.name}: nothing in it")
    return tuple(items)


def _disconnect(packet: Fields, version: Version, role: Role) -> Disconnect:
    if version == V311 or not packet.left:
        return Disconnect()
    from_client = role is Role.SERVER
    successes = [ReasonCode.SUCCESS, ReasonCode.DISCONNECT_WITH_WILL_MESSAGE] if from_client else [ReasonCode.SUCCESS]
    reason = _reason(packet, *successes)
    properties = read_properties(packet, Place.DISCONNECT) if packet.left else NONE
    stranger = "server_reference" if from_client else "session_expiry_interval"
    if getattr(properties, stranger) is not None:
        raise _broken(f"DISCONNECT: {stranger} may not come from a {'client' if from_client else 'server'}")
    return Disconnect(reason, properties)


def _auth(packet: Fields, _: Version, role: Role) -> Auth:
    if not packet.left:
        return Auth()
    successes = ReasonCode.RE_AUTHENTICATE if role is Role.SERVER else ReasonCode.SUCCESS
    reason = _reason(packet, ReasonCode.CONTINUE_AUTHENTICATION, successes)
    if reason.failed:
        raise malformed(f"AUTH: reason code {reason.text} may not stand in it")
    properties = read_properties(packet, Place.AUTH) if packet.left else NONE
    if properties.authentication_method is None:
        raise _broken("AUTH: no authentication method")
    return Auth(reason, properties)


def _broken(message: str) -> ProtocolError:
    return ProtocolError(ReasonCode.PROTOCOL_ERROR, message)


_Read: TypeAlias = Callable[[Fields, Version, Role], Packet]
_READ: Final[dict[PacketType, _Read]] = {
    PacketType.CONNECT: _connect,
    PacketType.CONNACK: _connack,
    PacketType.PUBACK: _acknowledgement(Puback, Place.PUBACK, ReasonCode.NO_MATCHING_SUBSCRIBERS),
    PacketType.PUBREC: _acknowledgement(Pubrec, Place.PUBREC, ReasonCode.NO_MATCHING_SUBSCRIBERS),
    PacketType.PUBREL: _acknowledgement(Pubrel, Place.PUBREL),
    PacketType.PUBCOMP: _acknowledgement(Pubcomp, Place.PUBCOMP),
    PacketType.SUBSCRIBE: _subscribe,
    PacketType.SUBACK: _suback,
    PacketType.UNSUBSCRIBE: _unsubscribe,
    PacketType.UNSUBACK: _unsuback,
    PacketType.PINGREQ: lambda packet, version, role: Pingreq(),
    PacketType.PINGRESP: lambda packet, version, role: Pingresp(),
    PacketType.DISCONNECT: _disconnect,
    PacketType.AUTH: _auth,
}
