"""Batches of messages and acknowledgements have the same bytes as their packets one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqttpackets import publishes

from connectors.mqtt.protocol.bulk import encode_acks, encode_publishes
from connectors.mqtt.protocol.packets import V5, V311, PacketType, Puback, Pubcomp, Publish, Pubrec, Pubrel, Version
from connectors.mqtt.protocol.properties import NONE, Place, Properties, encode_properties
from connectors.mqtt.protocol.writing import encode
from examples import examples
from pipelines.data.spans import Spans

VERSIONS: list[Version] = [V311, V5]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(40))
@given(data=st.data(), spans=st.booleans())
def test_messages_of_a_batch_are_those_written_one_by_one(version: Version, data: st.DataObject, spans: bool) -> None:
    sent = data.draw(st.lists(publishes(version), max_size=6))
    topics = sorted({packet.topic for packet in sent}) or ["a"]
    payloads: Any = [packet.payload for packet in sent]
    codes = np.array([topics.index(packet.topic) for packet in sent], np.int32)
    extra = [
        encode_properties(packet.properties, Place.PUBLISH) if packet.properties != NONE else None for packet in sent
    ]
    given: dict[str, Any] = {
        "codes": codes,
        "qos": np.array([packet.qos for packet in sent], np.uint8),
        "properties": extra if version == V5 else None,
    }
    payloads = Spans.of(payloads) if spans else payloads
    written = encode_publishes(
        version,
        topics,
        payloads,
        packet_ids=np.array([packet.packet_id for packet in sent], np.uint16),
        retain=np.array([packet.retain for packet in sent], bool),
        dup=np.array([packet.dup for packet in sent], bool),
        **given,
    )
    one_by_one = [encode(packet, version) for packet in sent]
    assert written == b"".join(one_by_one)


def test_messages_of_one_topic_and_the_same_flags() -> None:
    ids = np.array([1, 2], np.uint16)
    extra = Properties(content_type="x")
    raw = encode_properties(extra, Place.PUBLISH)
    assert encode_publishes(V5, ["a"], [b"x", None], qos=1, packet_ids=ids, retain=True, properties=raw) == b"".join(
        encode(Publish("a", payload, 1, retain=True, packet_id=number, properties=extra), V5)
        for number, payload in [(1, b"x"), (2, b"")]
    )


def test_null_payloads_are_empty() -> None:
    assert encode_publishes(V311, ["a"], Spans.of([None, b"x"])) == encode(Publish("a"), V311) + encode(
        Publish("a", b"x"), V311
    )


@pytest.mark.parametrize("size", [0, 1, 122, 123, 124, 125, 16_377, 16_378, 16_379, 16_380, 2_097_147, 2_097_150])
def test_lengths_are_written_in_as_few_bytes_as_can_be(size: int) -> None:
    payload = bytes(size)
    written = encode_publishes(V311, ["a"], [payload])
    assert written == encode(Publish("a", payload), V311)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"qos": 1}, "need packet identifiers"),
        ({"qos": 1, "packet_ids": np.array([0], np.uint16)}, "not 0"),
        ({"qos": 1, "packet_ids": np.array([1, 2], np.uint16)}, "must be 1"),
        ({"qos": 3}, "QoS 3"),
        ({"dup": True}, "DUP"),
        ({"codes": np.array([1], np.int32)}, "codes of topics"),
        ({"codes": np.array([-1], np.int32)}, "codes of topics"),
        ({"codes": np.array([0, 0], np.int32)}, "codes of topics"),
        ({"properties": b"\0"}, "has no properties"),
    ],
)
def test_columns_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_publishes(V311, ["a"], [b"x"], **options)


def test_a_topic_that_nobody_can_publish_to_is_refused() -> None:
    with pytest.raises(ValueError, match="wildcards"):
        encode_publishes(V311, ["a/+"], [b"x"])


def test_a_message_that_is_too_large_for_mqtt_is_refused() -> None:
    large = Spans(np.zeros(268_435_455, np.uint8), np.zeros(1, np.int64), np.array([268_435_455]))
    with pytest.raises(ValueError, match="at position 0"):
        encode_publishes(V311, ["a"], large)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=examples(20))
@given(numbers=st.lists(st.integers(1, 0xFFFF), max_size=20))
def test_acknowledgements_of_a_batch_are_those_written_one_by_one(version: Version, numbers: list[int]) -> None:
    ids = np.array(numbers, np.uint16)
    kinds: list[tuple[PacketType, type[Puback | Pubrec | Pubrel | Pubcomp]]] = [
        (PacketType.PUBACK, Puback),
        (PacketType.PUBREC, Pubrec),
        (PacketType.PUBREL, Pubrel),
        (PacketType.PUBCOMP, Pubcomp),
    ]
    for kind, packet in kinds:
        assert encode_acks(kind, ids) == b"".join(encode(packet(number), version) for number in numbers)


def test_an_acknowledgement_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="identifier 0"):
        encode_acks(PacketType.PUBACK, np.array([1, 0], np.uint16))
    with pytest.raises(ValueError, match="not an acknowledgement"):
        encode_acks(PacketType.PUBLISH, np.array([1], np.uint16))
