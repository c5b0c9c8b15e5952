"""Bytes that break the rules: the right reason code, nothing but `ProtocolError`, and bounded memory."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqttpackets import packets

from connectors.mqtt.protocol.packets import V5, V311, Connect, Pingreq, Publish, Version
from connectors.mqtt.protocol.properties import PROPERTIES, Kind, Place, Property, decode_properties
from connectors.mqtt.protocol.reading import LARGEST, Aliases, PacketReader, Role
from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode
from connectors.mqtt.protocol.writing import encode
from examples import examples

MALFORMED, BROKEN = ReasonCode.MALFORMED_PACKET, ReasonCode.PROTOCOL_ERROR
VERSIONS: list[Version] = [V311, V5]


def refused(raw: bytes, role: Role, version: Version | None, max_packet: int = LARGEST) -> ProtocolError:
    """The error that these bytes end in."""
    with pytest.raises(ProtocolError) as caught:
        list(PacketReader(role, version, max_packet).feed(raw))
    return caught.value


def refused_by(reader: PacketReader, raw: bytes) -> bool:
    """Whether the reader ends here. Any other error than its own goes on."""
    try:
        list(reader.feed(raw))
    except ProtocolError as error:
        return error.reason.failed
    return False


BOTH = {
    "type 0": ("0000", MALFORMED),
    "length of five bytes": ("30ffffffff01", MALFORMED),
    "length without end": ("3080808080", MALFORMED),
    "QoS 3": ("36050001610001", MALFORMED),
    "DUP at QoS 0": ("3803000161", MALFORMED),
    "message id 0": ("32050001610000", MALFORMED),
    "topic longer than its packet": ("3003000561", MALFORMED),
    "topic that is not valid UTF-8": ("30030001ff", MALFORMED),
    "topic with a surrogate": ("30060003eda08000", MALFORMED),
    "topic with an overlong form": ("30050002c0af00", MALFORMED),
    "topic with a null character": ("300400010000", MALFORMED),
    "topic with a wildcard": ("300400012b00", ReasonCode.TOPIC_NAME_INVALID),
    "message without a packet id": ("3203000161", MALFORMED),
    "message of no bytes": ("3000", MALFORMED),
    "reserved flags of a PUBACK": ("41020001", MALFORMED),
    "flags of a PUBREL": ("60020001", MALFORMED),
    "PUBACK of packet id 0": ("40020000", MALFORMED),
    "PUBACK of one byte": ("400100", MALFORMED),
}
CLIENT = {
    "a CONNECT": ("10 0c 0004 4d515454 04 02 003c 0000", BROKEN),
    "a PINGREQ": ("c000", BROKEN),
    "a SUBSCRIBE": ("8200", BROKEN),
    "CONNACK with reserved flags": ("20020200", MALFORMED),
    "PINGRESP with a body": ("d00100", MALFORMED),
}
CLIENT_311 = CLIENT | {
    "CONNACK that fails with a session": ("20020105", BROKEN),
    "CONNACK of an unknown return code": ("20020006", MALFORMED),
    "CONNACK of three bytes": ("2003000000", MALFORMED),
    "SUBACK of an unknown return code": ("9003000103", MALFORMED),
    "SUBACK of a failure of MQTT 5": ("9003000187", MALFORMED),
    "SUBACK of nothing": ("90020001", BROKEN),
    "UNSUBACK with a body": ("b003000100", MALFORMED),
    "AUTH": ("f000", BROKEN),
    "DISCONNECT": ("e000", BROKEN),
    "PUBACK with a reason": ("4003000100", MALFORMED),
    "empty topic": ("30020000", BROKEN),
}
CLIENT_5 = CLIENT | {
    "length longer than it needs": ("308400 0001 61 00", MALFORMED),
    "CONNACK that fails with a session": ("2003018700", BROKEN),
    "CONNACK of an unknown reason": ("2003000100", MALFORMED),
    "CONNACK without properties": ("20020000", MALFORMED),
    "PUBACK of a reason of SUBACK": ("4003000101", MALFORMED),
    "PUBACK of an unknown reason": ("40030001ff", MALFORMED),
    "topic alias beyond the announced maximum": ("3007 0001 61 03 230001", ReasonCode.TOPIC_ALIAS_INVALID),
    "topic alias 0": ("3007 0001 61 03 230000", ReasonCode.TOPIC_ALIAS_INVALID),
    "neither topic nor alias": ("3003 0000 00", BROKEN),
    "property length behind the packet": ("3004 0001 61 05", MALFORMED),
    "property that is cut": ("3006 0001 61 02 2600", MALFORMED),
    "unknown property": ("3006 0001 61 02 0400", MALFORMED),
    "property of another packet": ("3007 0001 61 03 210001", BROKEN),
    "property twice": ("3008 0001 61 04 01000100", BROKEN),
    "flag of 2": ("3006 0001 61 02 0102", BROKEN),
    "subscription identifier 0": ("3006 0001 61 02 0b00", BROKEN),
    "subscription identifier of five bytes": ("300a 0001 61 06 0bffffffff01", MALFORMED),
    "response topic with a wildcard": ("3008 0001 61 04 0800012b", ReasonCode.TOPIC_NAME_INVALID),
    "user property with a null character": ("3009 0001 61 05 2600010000", MALFORMED),
    "receive maximum 0": ("2006 0000 03 210000", BROKEN),
    "maximum QoS 2": ("2005 0000 02 2402", BROKEN),
    "maximum packet size 0": ("2008 0000 05 2700000000", BROKEN),
    "authentication data without a method": ("2006 0000 03 160000", BROKEN),
    "DISCONNECT with a session expiry": ("e007 00 05 1100000001", BROKEN),
    "DISCONNECT with a will": ("e00104", MALFORMED),
    "AUTH without a method": ("f00218 00", BROKEN),
    "AUTH of a failure": ("f00180", MALFORMED),
    "AUTH of a client": ("f00119", MALFORMED),
    "UNSUBACK of nothing": ("b003000100", BROKEN),
}
SERVER = {
    "a CONNACK": ("20020000", BROKEN),
    "a PINGRESP": ("d000", BROKEN),
    "SUBSCRIBE with wrong flags": ("8000", MALFORMED),
    "UNSUBSCRIBE with wrong flags": ("a000", MALFORMED),
}
SERVER_311 = SERVER | {
    "SUBSCRIBE to nothing": ("82020001", BROKEN),
    "SUBSCRIBE with reserved options": ("8206 0001 000161 04", MALFORMED),
    "SUBSCRIBE of QoS 3": ("8206 0001 000161 03", MALFORMED),
    "SUBSCRIBE of packet id 0": ("8206 0000 000161 00", MALFORMED),
    "SUBSCRIBE without QoS": ("8205 0001 000161", MALFORMED),
    "SUBSCRIBE to an empty filter": ("8205 0001 0000 00", ReasonCode.TOPIC_FILTER_INVALID),
    "SUBSCRIBE to a wrong filter": ("8207 0001 000261 23 00", ReasonCode.TOPIC_FILTER_INVALID),
    "UNSUBSCRIBE from nothing": ("a2020001", BROKEN),
    "DISCONNECT with a body": ("e00100", MALFORMED),
    "PINGREQ with a body": ("c00100", MALFORMED),
}
SERVER_5 = SERVER | {
    "SUBSCRIBE with reserved options": ("8207 0001 00 000161 40", MALFORMED),
    "SUBSCRIBE of QoS 3": ("8207 0001 00 000161 03", BROKEN),
    "SUBSCRIBE of retain handling 3": ("8207 0001 00 000161 30", BROKEN),
    "No Local of a shared subscription": ("8210 0001 00 000a 2473686172652f672f61 05", BROKEN),
    "SUBSCRIBE with two identifiers": ("820b 0001 04 0b010b02 000161 00", BROKEN),
    "DISCONNECT with a server reference": ("e006 00 04 1c000161", BROKEN),
    "PUBLISH with a subscription identifier": ("3006 0001 61 02 0b01", BROKEN),
}
CONNECT = {
    "another packet first": ("c000", BROKEN),
    "MQTT 3.1": ("10 0e 0006 4d5149736470 03 02 003c 0000", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    "level 6": ("10 0c 0004 4d515454 06 02 003c 0000", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION),
    "reserved flag": ("10 0c 0004 4d515454 04 03 003c 0000", MALFORMED),
    "will QoS without a will": ("10 0c 0004 4d515454 04 0a 003c 0000", MALFORMED),
    "will retain without a will": ("10 0c 0004 4d515454 04 22 003c 0000", MALFORMED),
    "will QoS 3": ("10 12 0004 4d515454 04 1e 003c 0000 000161 000162", MALFORMED),
    "will without topic": ("10 10 0004 4d515454 04 06 003c 0000 0000 0000", ReasonCode.TOPIC_NAME_INVALID),
    "password without user name": ("10 0e 0004 4d515454 04 42 003c 0000 0000", MALFORMED),
    "session without client id": ("10 0c 0004 4d515454 04 00 003c 0000", ReasonCode.CLIENT_IDENTIFIER_NOT_VALID),
    "bytes too many": ("10 0d 0004 4d515454 04 02 003c 0000 00", MALFORMED),
    "user name that is missing": ("10 0c 0004 4d515454 04 82 003c 0000", MALFORMED),
    "second CONNECT": ("10 0c 0004 4d515454 04 02 003c 0000" * 2, BROKEN),
    "will delay outside a will": ("10 12 0004 4d515454 05 02 003c 05 1800000001 0000", BROKEN),
}
CASES = [
    pytest.param(role, version, raw, code, id=f"{role.value}-{version}-{name}")
    for role, version, cases in [
        *((role, version, BOTH) for role in Role for version in VERSIONS),
        (Role.CLIENT, V311, CLIENT_311),
        (Role.CLIENT, V5, CLIENT_5),
        (Role.SERVER, V311, SERVER_311),
        (Role.SERVER, V5, SERVER_5),
        (Role.SERVER, None, CONNECT),
    ]
    for name, (raw, code) in cases.items()
]


@pytest.mark.slow
@pytest.mark.parametrize(("role", "version", "raw", "code"), CASES)
def test_bytes_that_break_the_protocol_are_refused_with_the_right_reason_code(
    role: Role, version: Version | None, raw: str, code: ReasonCode
) -> None:
    assert refused(bytes.fromhex(raw), role, version).reason is code


def test_a_padded_length_is_read_in_311_where_nothing_forbids_it() -> None:
    assert list(PacketReader(Role.CLIENT, V311).feed(bytes.fromhex("30838000000161"))) == [Publish("a")]


def test_a_failure_that_the_standard_lists_elsewhere_is_a_failure_all_the_same() -> None:
    """mosquitto answers a message that is too large with a PUBACK of 0x95."""
    assert list(PacketReader(Role.CLIENT, V5).feed(bytes.fromhex("4003000195")))


def test_valid_packets_come_before_the_error_and_the_error_stays() -> None:
    reader = PacketReader(Role.CLIENT, V311)
    packets = reader.feed(encode(Publish("a"), V311) + b"\0\0")
    assert next(packets) == Publish("a")
    for _ in range(3):
        with pytest.raises(ProtocolError, match="type 0"):
            next(packets)
        packets = reader.feed(encode(Publish("a"), V311))


@pytest.mark.slow
@pytest.mark.parametrize("known", PROPERTIES, ids=lambda known: known.name)
@pytest.mark.parametrize("place", Place)
def test_a_property_stands_where_the_standard_allows_it(known: Property, place: Place) -> None:
    value = {Kind.FLAG: b"\1", Kind.QOS: b"\1", Kind.SHORT: b"\0\1", Kind.LONG: b"\0\0\0\1", Kind.VARINT: b"\1"}
    raw = bytes([known.identifier]) + value.get(known.kind, b"\0\1a" * (2 if known.kind is Kind.PAIR else 1))
    if known.name == "authentication_data":
        raw = b"\x15\0\1m" + raw
    if place in known.places:
        assert getattr(decode_properties(raw, place), known.name) is not None
    else:
        with pytest.raises(ProtocolError) as caught:
            decode_properties(raw, place)
        assert caught.value.reason is BROKEN
    if place in known.places and known.kind is not Kind.PAIR and (known.kind, place) != (Kind.VARINT, Place.PUBLISH):
        with pytest.raises(ProtocolError, match="comes twice"):
            decode_properties(raw + raw[-len(raw) if known.name != "authentication_data" else 4 :], place)


def test_a_packet_that_is_too_large_is_refused_when_its_header_is_read() -> None:
    raw = encode(Publish("a", bytes(1000)), V5)
    assert list(PacketReader(Role.CLIENT, V5, max_packet=len(raw)).feed(raw))
    error = refused(raw[:3], Role.CLIENT, V5, max_packet=len(raw) - 1)
    assert error.reason is ReasonCode.PACKET_TOO_LARGE
    assert "1007" in str(error)


def test_a_reader_keeps_no_more_bytes_than_the_largest_packet() -> None:
    reader = PacketReader(Role.SERVER, V5, max_packet=10_000)
    header = bytes.fromhex("30 8c4e 0001 61 00")
    tracemalloc.start()
    list(reader.feed(header))
    most = 0
    while not refused_by(reader, b"\0" * 1000):
        most = max(most, reader.kept)
    assert 5_000 < most <= 10_000
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@given(st.binary(max_size=200), st.sampled_from(Role), st.sampled_from([None, *VERSIONS]))
def test_random_bytes_raise_nothing_else(raw: bytes, role: Role, version: Version | None) -> None:
    refused_by(PacketReader(role, version, 1000, Aliases(3)), bytes(raw))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", Role)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_changed_packets_raise_nothing_else(version: Version, role: Role, data: st.DataObject) -> None:
    raw = bytearray(encode(data.draw(packets(version, role)), version))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    refused_by(PacketReader(role, version, 1000, Aliases(3)), bytes(raw))


@pytest.mark.parametrize(
    ("packet", "version"),
    [
        (Publish(""), V5),
        (Publish("a/+"), V5),
        (Publish("a", qos=1), V5),
        (Publish("a", packet_id=1), V5),
        (Publish("a", qos=3, packet_id=1), V5),
        (Publish("a", dup=True), V5),
        (Publish("a\0"), V311),
        (Connect("", clean_start=False, version=V311), V311),
        (Connect("a\0", version=V5), V5),
        (Connect("a", keep_alive=65_536), V5),
    ],
)
def test_a_packet_that_mqtt_does_not_allow_is_not_written(packet: Publish | Connect, version: Version) -> None:
    with pytest.raises(ValueError):
        encode(packet, version)


@pytest.mark.slow
def test_the_smallest_packet_is_the_end_of_a_large_feed() -> None:
    reader = PacketReader(Role.SERVER, V311)
    assert len(list(reader.feed(encode(Pingreq(), V311) * 50_000))) == 50_000
