"""Packets there and back: written packets are read unchanged, wherever the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqttpackets import connects, packets

from connectors.mqtt.protocol.packets import V5, V311, Connect, Packet, Pingreq, Publish, Version
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.reading import Aliases, PacketReader, Role
from connectors.mqtt.protocol.writing import encode
from examples import examples

VERSIONS: list[Version] = [V311, V5]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", Role)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_every_packet_that_is_written_is_read_again(version: Version, role: Role, data: st.DataObject) -> None:
    sent = data.draw(st.lists(packets(version, role), max_size=4))
    reader = PacketReader(role, version)
    assert list(reader.feed(b"".join(encode(packet, version) for packet in sent))) == sent
    assert reader.kept == 0


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_a_server_learns_the_version_from_the_connect(version: Version, data: st.DataObject) -> None:
    connect = data.draw(connects(version))
    reader = PacketReader(Role.SERVER)
    assert list(reader.feed(encode(connect, version) + encode(Pingreq(), version))) == [connect, Pingreq()]
    assert reader.version == version


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", Role)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_it_does_not_matter_where_the_bytes_are_cut(version: Version, role: Role, data: st.DataObject) -> None:
    sent = data.draw(st.lists(packets(version, role), min_size=1, max_size=3))
    raw = b"".join(encode(packet, version) for packet in sent)
    for cut in range(len(raw) + 1):
        reader = PacketReader(role, version)
        assert [*reader.feed(raw[:cut]), *reader.feed(raw[cut:])] == sent
    reader = PacketReader(role, version)
    found: list[Packet] = []
    for place in range(len(raw)):
        found += reader.feed(raw[place : place + 1])
    assert found == sent


def test_packets_that_nobody_took_come_with_the_next_bytes() -> None:
    reader = PacketReader(Role.SERVER, V5)
    reader.feed(encode(Pingreq(), V5))
    assert list(reader.feed(encode(Publish("a"), V5))) == [Pingreq(), Publish("a")]


def test_a_topic_alias_is_put_back_into_its_topic() -> None:
    alias = Properties(topic_alias=3)
    reader = PacketReader(Role.CLIENT, V5, aliases=Aliases(3))
    raw = encode(Publish("a", properties=alias), V5) + encode(Publish("", b"x", properties=alias), V5)
    assert [packet.topic for packet in reader.feed(raw) if isinstance(packet, Publish)] == ["a", "a"]


def test_a_packet_of_many_bytes_may_come_byte_by_byte() -> None:
    raw = encode(Publish("a", bytes(20_000)), V5)
    reader = PacketReader(Role.CLIENT, V5)
    found = [packet for place in range(len(raw)) for packet in reader.feed(raw[place : place + 1])]
    assert len(found) == 1


def test_the_password_is_not_shown() -> None:
    assert "hunter2" not in repr(Connect("a", username="u", password=b"hunter2"))
