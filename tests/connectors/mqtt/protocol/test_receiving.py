"""Receiving: packets come out as they were sent, wherever the bytes are cut, and returned columns do not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqttpackets import packets, publishes

from connectors.mqtt.protocol.packets import V5, V311, Connect, Packet, Pingresp, Puback, Publish, Version
from connectors.mqtt.protocol.properties import NONE
from connectors.mqtt.protocol.reading import Role
from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode
from connectors.mqtt.protocol.receiving import BLOCK, ReceiveBuffer
from connectors.mqtt.protocol.scan import Scanned, Stopped
from connectors.mqtt.protocol.writing import encode
from examples import examples

VERSIONS: list[Version] = [V311, V5]


def received(buffer: ReceiveBuffer, raw: bytes, at_once: int = 1 << 30) -> list[Scanned | Packet]:
    """The packets that are taken while these bytes come, at most so many at once."""
    found: list[Scanned | Packet] = []
    while raw:
        room = buffer.writable()
        count = min(len(room), len(raw), at_once)
        room[:count] = raw[:count]
        raw = raw[count:]
        buffer.filled(count)
        while True:
            scanned = buffer.scan()
            if len(scanned):
                found.append(scanned)
            if scanned.stopped is Stopped.NEED_MORE:
                break
            if scanned.stopped is Stopped.OTHER_PACKET:
                packet = buffer.packet()
                assert packet is not None
                found.append(packet)
    return found


def packets_of(found: list[Scanned | Packet]) -> list[Packet]:
    """The same as packets."""
    out: list[Packet] = []
    for one in found:
        out += one.publishes() if isinstance(one, Scanned) else [one]
    return out


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(30))
@given(data=st.data(), at_once=st.sampled_from([1, 7, 100, 1 << 30]), block=st.sampled_from([1, 10, 300, BLOCK]))
def test_packets_come_out_as_they_were_sent(version: Version, data: st.DataObject, at_once: int, block: int) -> None:
    anything = publishes(version) | packets(version, Role.CLIENT)
    sent = data.draw(st.lists(anything, max_size=5))
    buffer = ReceiveBuffer(Role.CLIENT, version, block=block)
    found = received(buffer, b"".join(encode(packet, version) for packet in sent), at_once)
    assert packets_of(found) == sent
    assert buffer.pending == 0


@pytest.mark.slow
def test_received_messages_do_not_change_while_more_arrive() -> None:
    buffer = ReceiveBuffer(Role.CLIENT, V311)
    sent = [Publish("a", bytes([number % 251]) * 1000, 1, packet_id=number + 1) for number in range(3000)]
    found = received(buffer, b"".join(encode(packet, V311) for packet in sent), 5000)
    assert len(found) > 100
    assert packets_of(found) == list(sent)


def test_received_payloads_outlive_their_connection_and_the_reuse_of_memory() -> None:
    kept = []
    for number in range(40):
        raw = encode(Publish("a", bytes([number]) * 200_000), V311)
        found = received(ReceiveBuffer(Role.CLIENT, V311), raw)[0]
        assert isinstance(found, Scanned)
        # Of every other one nothing is held, so that its memory may be used again.
        if number % 2:
            kept.append((number, found.payloads))
        del found
    assert [payloads[0] for _, payloads in kept] == [bytes([number]) * 200_000 for number, _ in kept]


def test_received_messages_are_read_only() -> None:
    found = received(ReceiveBuffer(Role.CLIENT, V311), encode(Publish("a", b"x"), V311))[0]
    assert isinstance(found, Scanned)
    with pytest.raises(ValueError, match="read-only"):
        found.buffer[0] = 1


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [4096, 70_000, 1 << 30])
def test_a_packet_larger_than_a_block_gets_one_of_its_own(at_once: int) -> None:
    sent = [Publish("a", b"1" * 3_000_000), Publish("b", b"2" * 10)]
    buffer = ReceiveBuffer(Role.CLIENT, V311)
    found = received(buffer, b"".join(encode(packet, V311) for packet in sent), at_once)
    assert packets_of(found) == list(sent)


def test_a_header_that_promises_much_takes_no_memory_for_it() -> None:
    buffer = ReceiveBuffer(Role.CLIENT, V311)
    received(buffer, bytes.fromhex("30ffffff7f0001") + b"a" * 1000)
    assert len(buffer.writable()) <= 4 * BLOCK


def test_a_packet_larger_than_allowed_is_refused_by_its_header() -> None:
    buffer = ReceiveBuffer(Role.CLIENT, V311, 1000)
    with pytest.raises(ProtocolError) as caught:
        received(buffer, bytes.fromhex("30ffffff7f"))
    assert caught.value.reason is ReasonCode.PACKET_TOO_LARGE


def test_a_server_takes_the_connect_first_and_scans_then() -> None:
    buffer = ReceiveBuffer(Role.SERVER)
    raw = encode(Connect("me"), V5) + encode(Publish("a"), V5)
    buffer.writable()[: len(raw)] = raw
    buffer.filled(len(raw))
    with pytest.raises(ValueError, match="CONNECT"):
        buffer.scan()
    assert buffer.packet() == Connect("me")
    assert buffer.version == V5
    assert len(buffer.scan()) == 1


def test_more_than_there_is_room_for_cannot_be_filled() -> None:
    buffer = ReceiveBuffer(Role.CLIENT, V5)
    with pytest.raises(ValueError, match="do not fit"):
        buffer.filled(len(buffer.writable()) + 1)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_acknowledgements_are_taken_in_bulk(version: Version, data: st.DataObject) -> None:
    sent = data.draw(st.lists(packets(version, Role.CLIENT), max_size=8))
    raw = b"".join(encode(packet, version) for packet in sent)
    buffer = ReceiveBuffer(Role.CLIENT, version)
    buffer.writable()[: len(raw)] = raw
    buffer.filled(len(raw))
    found: list[Any] = []
    most = data.draw(st.sampled_from([1, 2, 100]))
    while True:
        acks = buffer.acks(most)
        assert acks.packet_ids.dtype == np.uint16
        found += zip(acks.kinds.tolist(), acks.packet_ids.tolist(), acks.reasons.tolist(), strict=True)
        if acks.stopped is Stopped.NEED_MORE:
            break
        if acks.stopped is Stopped.OTHER_PACKET:
            found.append(buffer.packet())
    kinds = {"Puback": 4, "Pubrec": 5, "Pubrel": 6, "Pubcomp": 7}
    expected = [
        (kinds[type(packet).__name__], packet.packet_id, packet.reason)  # type: ignore[union-attr]
        if type(packet).__name__ in kinds and packet.properties == NONE  # type: ignore[union-attr]
        else packet
        for packet in sent
    ]
    assert found == expected


@pytest.mark.parametrize("version", VERSIONS)
@given(raw=st.binary(max_size=12), kind=st.sampled_from([0x40, 0x50, 0x62, 0x70, 0x41]))
def test_acknowledgements_that_are_wrong_are_left_to_the_reader(version: Version, raw: bytes, kind: int) -> None:
    raw = bytes([kind]) + raw
    buffer = ReceiveBuffer(Role.CLIENT, version)
    buffer.writable()[: len(raw)] = raw
    buffer.filled(len(raw))
    first = buffer.acks(1)
    other = ReceiveBuffer(Role.CLIENT, version)
    other.writable()[: len(raw)] = raw
    other.filled(len(raw))
    try:
        packet: Any = other.packet()
    except ProtocolError:
        packet = None
    if len(first):
        assert packet is not None
        assert (packet.packet_id, packet.reason) == (first.packet_ids[0], first.reasons[0])
        assert first.consumed == len(raw) - other.pending
    elif packet is not None:
        assert packet.properties != NONE


def test_a_puback_in_its_common_forms() -> None:
    buffer = ReceiveBuffer(Role.CLIENT, V5)
    raw = encode(Puback(1), V5) + encode(Puback(2, ReasonCode.QUOTA_EXCEEDED), V5) + encode(Pingresp(), V5)
    buffer.writable()[: len(raw)] = raw
    buffer.filled(len(raw))
    acks = buffer.acks()
    assert (acks.packet_ids.tolist(), acks.reasons.tolist(), acks.stopped) == ([1, 2], [0, 0x97], Stopped.OTHER_PACKET)
