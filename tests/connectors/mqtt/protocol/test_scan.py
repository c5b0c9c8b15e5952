"""Scanning takes the same packets as reading, wherever the bytes are cut, on both hot paths."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqttpackets import packets, publishes

from connectors.mqtt.protocol.packets import V5, V311, Packet, Pingresp, Publish, Version
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.reading import Aliases, PacketReader, Role
from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode
from connectors.mqtt.protocol.scan import Scanned, Scanner, Stopped
from connectors.mqtt.protocol.topictable import MOST_TOPICS
from connectors.mqtt.protocol.writing import encode
from examples import examples

VERSIONS: list[Version] = [V311, V5]
LARGE = 1000


def array(raw: bytes) -> Any:
    """The bytes as a buffer to scan."""
    return np.frombuffer(raw, np.uint8)


def messages(found: Scanned) -> list[Publish]:
    """The rows as packets."""
    return list(found.publishes())


def everything(raw: bytes, scanner: Scanner, most: int) -> Iterator[Packet | ReasonCode]:
    """All packets as a session takes them, and the reason code that they end in."""
    reader = PacketReader(scanner.role, scanner.version, scanner.max_packet, aliases=scanner.aliases)
    buffer, at = array(raw), 0
    while True:
        try:
            found = scanner.scan(buffer, at, max_records=most)
        except ProtocolError as error:
            yield error.reason
            return
        assert len(found) <= most
        yield from messages(found)
        at += found.consumed
        if found.stopped is Stopped.NEED_MORE:
            return
        if found.stopped is Stopped.OTHER_PACKET:
            try:
                other = reader.read(buffer.data, at, len(raw))
            except ProtocolError as error:
                yield error.reason
                return
            assert other is not None
            yield other[0]
            at = other[1]


def expected(raw: bytes, role: Role, version: Version) -> Iterator[Packet | ReasonCode]:
    """The same by the reader alone."""
    try:
        yield from PacketReader(role, version, LARGE, Aliases(2)).feed(raw)
    except ProtocolError as error:
        yield error.reason


def alike(raw: bytes, role: Role, version: Version, most: int = 100) -> None:
    """Scanning and reading agree about these bytes."""
    scanner = Scanner(version, LARGE, role=role, aliases=Aliases(2))
    assert list(everything(raw, scanner, most)) == list(expected(raw, role, version))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", Role)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_scanning_and_reading_give_the_same_packets(version: Version, role: Role, data: st.DataObject) -> None:
    anything = publishes(version, role) | packets(version, role)
    raw = b"".join(encode(packet, version) for packet in data.draw(st.lists(anything, max_size=6)))
    alike(raw, role, version, data.draw(st.sampled_from([1, 2, 100])))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_messages_are_the_same_wherever_the_bytes_are_cut(version: Version, data: st.DataObject) -> None:
    sent = data.draw(st.lists(publishes(version), min_size=1, max_size=3))
    raw = b"".join(encode(packet, version) for packet in sent)
    for cut in range(len(raw) + 1):
        scanner = Scanner(version)
        first = scanner.scan(array(raw), 0, cut)
        assert first.stopped is Stopped.NEED_MORE
        if first.needed:
            assert cut < first.consumed + first.needed <= len(raw)
        second = scanner.scan(array(raw), first.consumed)
        assert messages(first) + messages(second) == sent


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", Role)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_changed_messages_are_refused_as_the_reader_refuses_them(
    version: Version, role: Role, data: st.DataObject
) -> None:
    sent = data.draw(st.lists(publishes(version, role), min_size=1, max_size=3))
    raw = bytearray(b"".join(encode(packet, version) for packet in sent))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, min(len(raw) - 1, 60)))] = data.draw(st.integers(0, 255))
    alike(bytes(raw), role, version)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thirty_thousand_changed_messages_are_refused_as_the_reader_refuses_them() -> None:
    numbers = random.Random(12)
    long = Properties(content_type="x" * 200, user_properties=(("a", "b"),))
    short = Properties(response_topic="r", correlation_data=b"\xff", topic_alias=1, subscription_identifiers=(1, 300))
    seeds: dict[Version, list[Packet]] = {
        V311: [Publish("a/b", b"x" * 150, 1, packet_id=7), Publish("ü", b"", 2, True, True, 9), Pingresp()],
        V5: [Publish("a", b"x", properties=long), Publish("", b"y", 1, packet_id=3, properties=short), Pingresp()],
    }
    for _ in range(30_000):
        version = numbers.choice(VERSIONS)
        raw = bytearray(b"".join(encode(numbers.choice(seeds[version]), version) for _ in range(3)))
        for _ in range(numbers.randrange(4)):
            raw[numbers.randrange(len(raw))] = numbers.choice([0, 1, 2, 0x7F, 0x80, 0xFF, numbers.randrange(256)])
        alike(bytes(raw), numbers.choice(list(Role)), version)


@pytest.mark.parametrize("version", VERSIONS)
@given(raw=st.binary(max_size=100) | st.binary(max_size=20).map(lambda raw: b"\x32\x10\x00\x03a/b" + raw))
def test_random_bytes_are_refused_as_the_reader_refuses_them(version: Version, raw: bytes) -> None:
    alike(raw, Role.CLIENT, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_are_of_the_types_they_say(version: Version) -> None:
    raw = encode(Publish("a", b"x", 1, packet_id=7), version) + encode(Publish("b", retain=True), version)
    found = Scanner(version).scan(array(raw))
    assert [column.dtype for column in (found.flags, found.packet_ids, found.topic_codes)] == [
        np.uint8,
        np.uint16,
        np.int32,
    ]
    for column in (found.payload_starts, found.payload_lengths, found.property_starts, found.property_lengths):
        assert column.dtype == np.int64
    assert (found.flags.tolist(), found.packet_ids.tolist(), found.qos.tolist()) == ([2, 1], [7, 0], [1, 0])


def test_topics_keep_their_codes_from_scan_to_scan() -> None:
    scanner = Scanner(V311)
    raw = b"".join(encode(Publish(topic), V311) for topic in "abab")
    found = [scanner.scan(array(raw)) for _ in range(2)]
    assert [one.topic_codes.tolist() for one in found] == [[0, 1, 0, 1]] * 2
    assert found[0].topics is found[1].topics


@pytest.mark.slow
def test_endless_new_topics_begin_another_table_and_old_columns_keep_theirs() -> None:
    scanner = Scanner(V311)
    raw = array(b"".join(encode(Publish(str(number)), V311) for number in range(MOST_TOPICS + 3)))
    first = scanner.scan(raw)
    assert (len(first), first.stopped) == (MOST_TOPICS, Stopped.AGAIN)
    second = scanner.scan(raw, first.consumed)
    assert [packet.topic for packet in messages(second)] == [str(MOST_TOPICS + extra) for extra in range(3)]
    assert second.topics is not first.topics
    assert first.topics.names[-1] == str(MOST_TOPICS - 1)


@pytest.mark.slow
def test_long_topics_are_bounded_by_their_bytes() -> None:
    scanner = Scanner(V311)
    for number in range(600):
        scanner.scan(array(encode(Publish(f"{number}/" + "x" * 60_000), V311)))
        assert sum(map(len, scanner.topics.names)) < (16 << 20) + 65_536
    assert len(scanner.topics) < 600


def test_topic_aliases_are_put_back() -> None:
    alias = Properties(topic_alias=2)
    sent = [Publish("a", properties=alias), Publish("b"), Publish("", b"x", properties=alias)]
    raw = array(b"".join(encode(packet, V5) for packet in sent))
    scanner = Scanner(V5, aliases=Aliases(2))
    topics: list[str] = []
    at = 0
    while at < len(raw):
        found = scanner.scan(raw, at)
        at += found.consumed
        topics += [packet.topic for packet in messages(found)]
    assert topics == ["a", "b", "a"]


def test_a_message_with_a_wrong_topic_is_named_where_the_connection_shall_live() -> None:
    good = encode(Publish("a", b"1", 1, packet_id=1), V5)
    wrong = encode(Publish("ab", b"2", 1, packet_id=2), V5).replace(b"ab", b"\xff\xff")
    scanner = Scanner(V5, strict=False)
    first = scanner.scan(array(good + wrong + good))
    assert (len(first), first.stopped, first.faults) == (1, Stopped.AGAIN, [])
    second = scanner.scan(array(good + wrong + good), first.consumed)
    assert (second.topic_codes.tolist(), second.packet_ids.tolist(), list(second.payloads)) == ([-1], [2], [b"2"])
    assert [(fault.row, fault.error.reason) for fault in second.faults] == [(0, ReasonCode.MALFORMED_PACKET)]
    assert len(scanner.scan(array(good + wrong + good), first.consumed + second.consumed)) == 1
    with pytest.raises(ProtocolError):
        Scanner(V5).scan(array(wrong))


def test_a_message_with_wrong_properties_is_named_with_its_topic() -> None:
    raw = encode(Publish("a", properties=Properties(content_type="xx")), V5).replace(b"xx", b"\xff\xff")
    found = Scanner(V5, strict=False).scan(array(raw))
    assert (found.topics.names, found.topic_codes.tolist(), len(found.faults)) == (["a"], [0], 1)


def test_another_packet_ends_a_scan_only_when_it_is_whole() -> None:
    raw = encode(Publish("a"), V311) + encode(Pingresp(), V311)
    assert Scanner(V311).scan(array(raw)).stopped is Stopped.OTHER_PACKET
    assert Scanner(V311).scan(array(raw[:-1])).stopped is Stopped.NEED_MORE


def test_a_message_that_is_too_large_is_refused_by_its_header() -> None:
    raw = encode(Publish("a", bytes(1000)), V311)
    with pytest.raises(ProtocolError) as caught:
        Scanner(V311, 999).scan(array(raw[:10]))
    assert caught.value.reason is ReasonCode.PACKET_TOO_LARGE


def test_an_empty_buffer_holds_no_message() -> None:
    found = Scanner(V5).scan(array(b""))
    assert (len(found), found.consumed, found.stopped, found.needed) == (0, 0, Stopped.NEED_MORE, 0)
