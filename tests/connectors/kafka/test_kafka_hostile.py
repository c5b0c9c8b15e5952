"""Record batches that no producer would write, from brokers that do not check them, read by librdkafka."""

from __future__ import annotations

import gzip
import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from kafkatopics import Name, source

from connectors.contract import Reader, Received
from connectors.records import Header
from streamer.devbroker.mock import MockKafka

pytestmark = [pytest.mark.usefixtures("hot_path"), pytest.mark.slow]

GZIP = 1
CONTROL = 0x30


class Record(NamedTuple):
    """A record, its headers as bytes of any kind, and the headers that are to be read from them."""

    raw: bytes
    expected: Sequence[Header]
    key: bytes | None = None
    value: bytes | None = b"value"
    more_length: int = 0
    attributes: int = 0


TWO = b"\x04\x02a\x04bc\x06two\x01"
GOOD = Record(TWO, [("a", b"bc"), ("two", None)])
NONE = Record(b"\x00", [])
KINDS = [
    # Plain.
    GOOD,
    # Without a byte for the count.
    Record(b"", []),
    # A count that goes on in the next record.
    Record(b"\x80\x80", []),
    # A value that reaches into the next record.
    Record(b"\x02\x02a\x08b", []),
    # More headers than there are.
    Record(b"\x06\x02a\x04bc\x06two\x01", []),
    # A negative count.
    Record(b"\x03", []),
    # A name that is null.
    Record(b"\x02\x01\x02b", []),
    # A name with a null in it.
    Record(b"\x02\x06a\x00b\x02c", [("a", b"c")]),
    # Bytes behind the headers.
    Record(TWO + TWO, GOOD.expected),
    # Bytes behind no headers.
    Record(b"\x00" + TWO, []),
    # Numbers longer than need be.
    Record(b"\x82\x80\x80\x80\x00\x82\x00a\x82\x00b", [("a", b"b")]),
    # A length beyond 32 bits.
    GOOD._replace(more_length=1 << 32),
    # Other attributes.
    GOOD._replace(attributes=0xFF),
    # An empty value.
    GOOD._replace(value=b""),
    # An empty key.
    GOOD._replace(key=b""),
    # Empty both.
    GOOD._replace(key=b"", value=b""),
    # No value.
    GOOD._replace(key=b"key", value=None),
    # A value that looks like a head.
    GOOD._replace(value=b"\x80\x80\x80\x00\x00\x00\x00\x01\x0a"),
]


def number(value: int) -> bytes:
    left = (value << 1) ^ (value >> 63)
    found = bytearray()
    while left >= 0x80:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def string(value: bytes | None) -> bytes:
    return number(-1) if value is None else number(len(value)) + value


def packed(record: Record, place: int) -> bytes:
    body = bytes([record.attributes, 0]) + number(place) + string(record.key) + string(record.value) + record.raw
    return number(len(body) + record.more_length) + body


def batch(base: int, records: Sequence[Record], places: Sequence[int] = (), attributes: int = 0) -> bytes:
    places = places or range(len(records))
    body = b"".join(packed(record, place) for record, place in zip(records, places, strict=True))
    if attributes & GZIP:
        body = gzip.compress(body)
    count = len(records)
    head = struct.pack(">hiqqqhii", attributes, max(places), 1_700_000_000_000, 1_700_000_000_000, -1, -1, -1, count)
    return struct.pack(">qiibi", base, 9 + len(head + body), 0, 2, 0) + head + body


def old(offset: int, magic: int, value: bytes) -> bytes:
    """A record of format 0 or 1, which has no headers."""
    body = bytes([magic, 0]) + bytes(8 * magic) + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qii", offset, 4 + len(body), 0) + body


def put(bootstrap: str, topic: str, batches: bytes) -> None:
    """As one set, of which the mock broker looks at the head only."""
    producer = Producer({"bootstrap.servers": bootstrap})
    while producer.list_topics(topic, timeout=10).topics[topic].error is not None:
        time.sleep(0.01)
    name = topic.encode()
    body = struct.pack(">hhih", 0, 3, 1, -1) + struct.pack(">hhii", -1, -1, 10_000, 1)
    body += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, 0, len(batches)) + batches
    host, port = bootstrap.split(",")[0].split(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = answers.read(struct.unpack(">i", answers.read(4))[0])
    assert struct.unpack_from(">h", answer, 4 + 4 + 2 + len(name) + 4 + 4) == (0,)


def taken(bootstrap: str, topic: str, count: int) -> list[Received]:
    # Behind the last record these brokers have nothing, not even an end: they count the records of the first batch.
    with Reader(source(bootstrap, topic, topic, out_of_range="latest")) as reader:
        return reader.take(count)


def told(received: Sequence[Received]) -> list[tuple[bytes | None, list[Header]]]:
    return [(one.message.value, list(one.message.headers)) for one in received]


@pytest.mark.parametrize("compression", [0, GZIP], ids=["plain", "gzip"])
def test_a_records_headers_end_with_it_whatever_they_claim(
    mock_kafka: MockKafka, topic_name: Name, compression: int
) -> None:
    topic = topic_name("hostile")
    found, sent = b"", list[Record]()
    for one in KINDS:
        # Beside others, as the last and as the first of a batch, and in batches of their own.
        for records in ([GOOD, NONE, one, GOOD, one], [GOOD, one], [one, NONE, GOOD], [one], [GOOD], [GOOD]):
            found += batch(len(sent), records, attributes=compression)
            sent += records
    put(mock_kafka.bootstrap, topic, found)
    came = taken(mock_kafka.bootstrap, topic, len(sent))
    assert told(came) == [(one.value, list(one.expected)) for one in sent]


def test_headers_are_told_beside_control_batches_gaps_and_records_of_older_formats(
    mock_kafka: MockKafka, topic_name: Name
) -> None:
    control = Record(b"\x00", [], b"\0\0\0\1", bytes(6))
    far = 1 << 58
    topic = topic_name("formats")
    put(
        mock_kafka.bootstrap,
        topic,
        batch(0, [GOOD, GOOD])
        + batch(2, [control], attributes=CONTROL)
        + batch(3, [GOOD])
        + old(4, 0, b"0")
        + old(5, 1, b"1")
        + old(6, 1, b"2")
        # The byte behind the one before is not 0.
        + old(far, 0, b"3")
        + batch(far + 40, [GOOD, GOOD], attributes=GZIP)
        + batch(far + 50, [GOOD, GOOD])
        # Part of one, as at the end of a fetch.
        + batch(far + 60, [GOOD, GOOD])[:-20],
    )
    two = (GOOD.value, list(GOOD.expected))
    came = taken(mock_kafka.bootstrap, topic, 11)
    assert told(came) == [two] * 3 + [(b"%d" % value, []) for value in range(4)] + [two] * 4


def test_records_whose_positions_fall_are_another_life_of_their_lane_even_with_gaps_between_them(
    mock_kafka: MockKafka, topic_name: Name
) -> None:
    positions = [0, 9, 3, 4, 90]
    topic = topic_name("falling")
    put(mock_kafka.bootstrap, topic, batch(0, [GOOD] * len(positions), positions))
    came = taken(mock_kafka.bootstrap, topic, len(positions))
    assert [one.position for one in came] == positions
    assert [one.lane.epoch - came[0].lane.epoch for one in came] == [0, 0, 1, 1, 1]
