"""Bursts: a server reads the same packets in blocks and one by one, wherever the bytes are cut."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqttpackets import packets, publishes

from connectors.mqtt.protocol.bursts import Bursts
from connectors.mqtt.protocol.packets import V5, V311, Connect, Packet, Publish, Version
from connectors.mqtt.protocol.reading import Aliases, PacketReader, Role
from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode
from connectors.mqtt.protocol.scan import Scanned
from connectors.mqtt.protocol.writing import encode
from examples import examples

VERSIONS: list[Version] = [V311, V5]
LARGE = 1 << 20


@pytest.fixture(autouse=True)
def small_bursts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bytes are scanned, and kept bytes are joined or not."""
    monkeypatch.setattr("connectors.mqtt.protocol.bursts._LEAST", 1)
    monkeypatch.setattr("connectors.mqtt.protocol.bursts._JOINED", 30)


def server(version: Version) -> PacketReader:
    """A reader that has had its CONNECT."""
    reader = PacketReader(Role.SERVER, None, LARGE, Aliases(2))
    assert len(list(reader.feed(encode(Connect("a", version=version), version)))) == 1
    return reader


def read(version: Version, pieces: list[bytes]) -> Iterator[Packet | ReasonCode]:
    bursts = Bursts(server(version))
    try:
        for piece in pieces:
            for one in bursts.feed(piece):
                yield from one.publishes() if isinstance(one, Scanned) else (one,)
    except ProtocolError as error:
        yield error.reason


def expected(version: Version, raw: bytes) -> Iterator[Packet | ReasonCode]:
    try:
        yield from server(version).feed(raw)
    except ProtocolError as error:
        yield error.reason


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(raw)) for place in places), len(raw)]
    return [raw[start:stop] for start, stop in itertools.pairwise(edges)]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(60))
@given(data=st.data(), places=st.lists(st.integers(0, 400), max_size=4))
def test_packets_read_in_bursts_are_those_read_one_by_one_wherever_they_are_cut(
    version: Version, data: st.DataObject, places: list[int]
) -> None:
    anything = publishes(version, Role.SERVER) | packets(version, Role.SERVER).filter(
        lambda one: not isinstance(one, Connect)
    )
    raw = b"".join(encode(one, version) for one in data.draw(st.lists(anything, max_size=6)))
    assert list(read(version, cut(raw, places))) == list(expected(version, raw))


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(60))
@given(data=st.data(), places=st.lists(st.integers(0, 400), max_size=3))
def test_changed_bytes_are_refused_as_a_reader_refuses_them(
    version: Version, data: st.DataObject, places: list[int]
) -> None:
    sent = data.draw(st.lists(publishes(version, Role.SERVER), min_size=1, max_size=4))
    raw = bytearray(b"".join(encode(one, version) for one in sent))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, min(len(raw) - 1, 60)))] = data.draw(st.integers(0, 255))
    assert list(read(version, cut(bytes(raw), places))) == list(expected(version, bytes(raw)))


def test_many_small_messages_come_as_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.mqtt.protocol.bursts._LEAST", 1024)
    raw = b"".join(encode(Publish("a", b"x" * 50, 1, packet_id=number), V5) for number in range(1, 101))
    (block,) = Bursts(server(V5)).feed(raw)
    assert isinstance(block, Scanned)
    assert [one.packet_id for one in block.publishes()] == list(range(1, 101))
    few = list(Bursts(server(V5)).feed(raw[:300]))
    assert all(isinstance(one, Publish) for one in few)


def test_a_large_message_that_comes_in_pieces_is_not_copied_for_each() -> None:
    """It takes time that grows with its size, and would hang if that were the square."""
    raw = encode(Publish("a", bytes(1 << 19), 1, packet_id=1), V5)
    (found,) = read(V5, [raw[at : at + 64] for at in range(0, len(raw), 64)])
    assert isinstance(found, Publish)
    assert len(found.payload) == 1 << 19
