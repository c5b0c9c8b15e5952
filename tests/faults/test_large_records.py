"""Records about as large as Kafka takes them: a dead letter of each that fails is written, and the rest goes on."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from kafkatopics import IN_ORDER, read

import streamer
from connectors.message import Message
from streamer.agent.agent import Agent
from streamer.delivery.deadletter import Original, original

pytestmark = pytest.mark.slow

LIMIT = 1_048_588
"""The default of `max.message.bytes`: of a whole batch, as it comes over the wire."""
FRAMING = 72
"""Bytes of a batch with one record of this size, without key and headers."""

SERVICE = """
source: {{type: kafka, bootstrap: "{bootstrap}", topics: {source}, codec: json, group: {source}}}
pipeline: []
batch: {{max_wait: 50ms}}
sink: {{type: kafka, topic: {sink}, codec: json, max_message: {max_message}}}
dead_letter: {{type: kafka, topic: {dead}, compression: {compression}}}
errors: {{stop_ratio: 1}}
"""

Letter = tuple[bytes | None, bytes | None, Original]
"""Key, payload and headers of a dead letter."""


def noise(size: int, seed: int = 1) -> bytes:
    """Bytes that no compression makes smaller, and that are no JSON."""
    return b"\xff" + random.Random(seed).randbytes(size - 1)


def good(number: int) -> bytes:
    return b'{"n": %d}' % number


class Run:
    """One service between three topics, and their contents."""

    def __init__(
        self, kafka: Any, topics: Any, compression: str = "lz4", max_message: str = "1MiB", **dead: str
    ) -> None:
        self.bootstrap = kafka.bootstrap
        self.source = topics(1, "large-in", max_message_bytes="10000000")
        self.sink = topics(1, "large-out")
        self.dead = topics(1, "large-dead", **dead)
        self.text = SERVICE.format(
            bootstrap=self.bootstrap,
            source=self.source,
            sink=self.sink,
            dead=self.dead,
            compression=compression,
            max_message=max_message,
        )

    def write(self, *records: tuple[Any, ...], **properties: Any) -> None:
        """Payload, key and headers of each."""
        made = {"bootstrap.servers": self.bootstrap, "message.max.bytes": 20_000_000, **IN_ORDER}
        producer = Producer({**made, **properties})
        for value, key, headers in records:
            producer.produce(self.source, value, key, headers=list(headers))
        assert producer.flush(120) == 0

    def serve(self, letters: int, results: int) -> tuple[list[Letter], list[Any]]:
        """Run the service until this many are there, and stop it."""
        agent = Agent(streamer.loads(self.text))
        agent.start()
        try:
            found = [(one.key, one.value, _told(one)) for one in read(self.bootstrap, self.dead, letters, 120)]
            return found, [json.loads(one.value)["n"] for one in read(self.bootstrap, self.sink, results, 120)]
        finally:
            agent.stop()
            agent.join(60)


def _told(message: Message) -> Original:
    found = original(message.headers)
    assert found is not None
    return found


@pytest.fixture
def run(kafka: Any, topics: Any) -> Callable[..., Run]:
    """`run(compression, max_message=, **config of the dead letters' topic)`."""
    return lambda *arguments, **more: Run(kafka, topics, *arguments, **more)


def test_a_bad_record_that_no_letter_has_room_for_is_told_of_without_its_payload(run: Any) -> None:
    here = run()
    largest = noise(LIMIT - FRAMING)
    fits = noise(1_030_000)
    here.write((good(0), b"a", ()), (largest, None, ()), (fits, b"k", [("trace", b"\x00\xff")]), (good(1), b"a", ()))
    letters, results = here.serve(2, 2)
    assert results == [0, 1]
    by_offset = {told.offset: (key, value, told) for key, value, told in letters}
    assert sorted(by_offset) == [1, 2]
    key, value, told = by_offset[2]
    assert (key, value, told.left_out, told.headers) == (b"k", fits, "", [("trace", b"\x00\xff")])
    key, value, told = by_offset[1]
    assert (told.topic, told.partition, told.step, told.left_out) == (here.source, 0, "decode", "payload")
    assert (told.size, told.sha256) == (len(largest), hashlib.sha256(largest).hexdigest())
    assert "MSG_SIZE_TOO_LARGE" in told.refusal
    assert json.loads(value or b"")["streamer-sha256"] == told.sha256


@pytest.mark.parametrize("max_message", ["1MiB", "5MB"], ids=["the client", "the broker"])
def test_a_result_that_its_topic_has_no_room_for_is_a_dead_letter_of_its_record(run: Any, max_message: str) -> None:
    here = run(max_message_bytes="5000000", max_message=max_message)
    chance = random.Random(3)
    # Hexadecimal digits of noise, which lz4 makes no smaller.
    large = [json.dumps({"n": n, "filler": chance.randbytes(600_000).hex()}).encode() for n in (1, 3)]
    here.write(
        (good(0), b"a", ()), (large[0], b"a", ()), (good(2), b"a", ()), (large[1], None, ()), (good(4), b"a", ())
    )
    letters, results = here.serve(2, 3)
    assert sorted(results) == [0, 2, 4]
    assert [(value, told.step, told.left_out) for _, value, told in letters] == [
        (value, "sink kafka", "") for value in large
    ]


def test_headers_that_leave_no_room_for_ours_are_left_out_too(run: Any) -> None:
    here = run()
    huge = [(f"h{n}", noise(100_000, n)) for n in range(10)] + [("end", noise(90_000))]
    here.write((b"\xff", b"k", huge), (b"\xff small", b"k", [("a", b"b")]), (good(1), b"a", ()))
    letters, results = here.serve(2, 1)
    assert results == [1]
    (bare_key, bare, told), (key, value, other) = sorted(letters, key=lambda one: one[2].offset)
    assert (told.left_out, told.size, told.headers) == ("payload, key, headers", 1, [])
    assert bare_key == f"{here.source}-0-0".encode()
    assert len(bare or b"") < 3000
    assert (key, value, other.left_out, other.headers) == (b"k", b"\xff small", "", [("a", b"b")])


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_topic_of_dead_letters_that_takes_little_gets_short_ones(run: Any, compression: str) -> None:
    here = run(compression, max_message_bytes="3000")
    sent = [noise(size, size) for size in (10, 2000, 4000, 500_000, 20)]
    here.write(*((value, b"k", ()) for value in sent))
    letters, _ = here.serve(5, 0)
    assert {told.offset: told.left_out for _, _, told in letters} == {0: "", 1: "", 2: "payload", 3: "payload", 4: ""}
    assert {told.sha256 for _, _, told in letters if told.left_out} == {
        hashlib.sha256(value).hexdigest() for value in sent[2:4]
    }


def test_a_topic_of_dead_letters_that_takes_much_gets_whole_ones(run: Any) -> None:
    here = run(max_message_bytes="10000000")
    payload = noise(5_000_000)
    here.write((payload, b"k", ()))
    ((_, value, told),), _ = here.serve(1, 0)
    assert (value == payload, told.left_out) == (True, "")


def test_a_letter_that_compresses_is_whole_though_its_record_is_larger_than_the_topic_takes(run: Any) -> None:
    here = run()
    payload = b"\xff" * 5_000_000
    here.write((payload, b"k", ()), **{"compression.type": "lz4"})
    ((_, value, told),), _ = here.serve(1, 0)
    assert (value == payload, told.left_out) == (True, "")
    here = run()
    # More than is ever handed to the client of a sink of dead letters.
    payload = b"\xff" * 18_000_000
    here.write((payload, b"k", ()), **{"compression.type": "lz4"})
    ((_, _, told),), _ = here.serve(1, 0)
    assert (told.left_out, told.size) == ("payload", len(payload))


def test_a_compacted_topic_of_dead_letters_takes_those_of_records_without_a_key(run: Any) -> None:
    here = run(cleanup_policy="compact")
    here.write((b"\xff no key", None, ()), (b"\xff", b"k", ()), (good(1), b"a", ()))
    letters, results = here.serve(2, 1)
    assert results == [1]
    assert {told.offset: (key, told.left_out) for key, _, told in letters} == {
        0: (f"{here.source}-0-0".encode(), "payload, key, headers"),
        1: (b"k", ""),
    }
