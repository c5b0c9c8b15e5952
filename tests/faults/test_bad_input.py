"""Hostile and broken records on real Kafka: each ends in the dead letter or in the output, and harms no other."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from kafkatopics import IN_ORDER, read

import streamer
from pipelines import Data
from streamer.delivery.deadletter import original

pytestmark = pytest.mark.slow

SERVICE = """
name: bad-input
source: {{type: kafka, bootstrap: "{bootstrap}", topics: [{source}], group: {group},
         client: {{fetch.message.max.bytes: 10000000}}}}
pipeline:
  steps: [{{"@type": ONNX, modelUri: digits.onnx}}, {{"@type": CLASSIFIER_OUTPUT, input_name: probabilities}}]
keep: [id]
batch: {{max_records: 64}}
sink: {{type: kafka, topic: {sink}}}
dead_letter: {{type: kafka, topic: {dead}, max_message: 10MB}}
errors: {{stop_ratio: 0.95, over: 400}}
"""

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
IMAGE = np.arange(64, dtype=np.uint8).reshape(8, 8) % 17


def good(number: int) -> bytes:
    return Data({"image": IMAGE, "id": f"good-{number}"}).to_bytes()


def bad_payloads() -> dict[str, bytes | None]:
    chance = random.Random(4)
    message = good(0)
    flipped = bytearray(message)
    flipped[3] ^= 0xFF
    return {
        "random": chance.randbytes(200),
        "one byte": b"\xff",
        "truncated": message[:-7],
        "mutated": bytes(flipped),
        "text": b'{"image": "no protobuf"}',
        "wrong shape": Data({"image": np.zeros((8, 9), np.uint8), "id": "x"}).to_bytes(),
        "wrong rank": Data({"image": np.zeros((1, 1, 8, 8), np.uint8), "id": "x"}).to_bytes(),
        "wrong dtype": Data({"image": np.zeros((8, 8), np.complex64).real.astype(">f8"), "id": "x"}).to_bytes(),
        "a text for an image": Data({"image": "picture", "id": "x"}).to_bytes(),
        "no image": Data({"id": "x"}).to_bytes(),
        "5 MB": Data({"image": IMAGE, "filler": chance.randbytes(5_000_000), "id": "big"}).to_bytes()[:-3],
    }


@pytest.mark.usefixtures("hot_path")
def test_every_bad_record_ends_in_the_dead_letter_or_the_output_and_no_good_one_is_harmed(
    kafka: Any, topics: Any, topic_name: Any
) -> None:
    from confluent_kafka import Producer

    names = {
        "source": topics(2, "bad-in", max_message_bytes="10000000"),
        "sink": topics(1, "bad-out"),
        "dead": topics(1, "bad-dead", max_message_bytes="10000000"),
    }
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 10_000_000})
    sent_good = sent_bad = 0
    for kind, payload in bad_payloads().items():
        for _ in range(5):
            producer.produce(names["source"], good(sent_good), f"k{sent_good}")
            sent_good += 1
        producer.produce(names["source"], payload, kind, headers=[("binary", bytes(range(256))), ("none", None)])
        sent_bad += 1
    # Not bad, only unusual: a tombstone, an empty message (an empty Data), NaN in a value that no step reads.
    producer.produce(names["source"], None, "gone")
    producer.produce(names["source"], b"", "empty")
    producer.produce(names["source"], Data({"image": IMAGE, "id": "nan", "t": float("nan")}).to_bytes(), "nan")
    assert producer.flush(120) == 0

    service = streamer.loads(SERVICE.format(bootstrap=kafka.bootstrap, group=topic_name(), **names), base=EXAMPLE)
    with service:
        out = read(kafka.bootstrap, names["sink"], sent_good + 2, 120)
        dead = read(kafka.bootstrap, names["dead"], sent_bad + 1, 120)
    ids = sorted(Data.from_bytes(one.value)["id"] for one in out if one.value is not None)
    assert ids == sorted([f"good-{n}" for n in range(sent_good)] + ["nan"])
    assert [one.key for one in out if one.value is None] == [b"gone"]
    payloads = bad_payloads()
    for value, key, headers, *_ in dead:
        origin = original(headers)
        assert origin is not None
        assert origin.topic == names["source"]
        assert origin.step in ("decode", "0:ONNX")
        assert key is not None
        if key != b"empty":
            assert value == payloads[key.decode()]
            assert origin.headers == [("binary", bytes(range(256))), ("none", None)]
    assert sorted((one.key or b"").decode() for one in dead) == sorted([*payloads, "empty"])


@pytest.mark.timeout(600)
def test_a_broker_that_is_away_costs_no_record_and_no_memory(private_kafka: Any, topic_name: Any) -> None:
    from confluent_kafka import Producer

    from streamer.devbroker import create_topics

    source, sink, dead = topic_name("in"), topic_name("out"), topic_name("dead")
    create_topics(private_kafka.bootstrap, {source: 2, sink: 1, dead: 1})
    producer = Producer({"bootstrap.servers": private_kafka.bootstrap})
    count = 12_000
    for number in range(count):
        producer.produce(source, good(number), str(number % 100))
        if number % 10_000 == 0:
            producer.poll(0.1)
    assert producer.flush(120) == 0
    text = SERVICE.format(bootstrap=private_kafka.bootstrap, source=source, sink=sink, dead=dead, group=topic_name())
    memory = psutil.Process().memory_info
    with streamer.loads(text + "limits: {in_flight: 16MiB}\n", base=EXAMPLE):
        assert len(read(private_kafka.bootstrap, sink, 500, 120)) >= 500
        before = memory().rss
        private_kafka.freeze()
        time.sleep(6)
        grown = memory().rss - before
        private_kafka.thaw()
        results = read(private_kafka.bootstrap, sink, count, 180)
    ids = {Data.from_bytes(one.value)["id"] for one in results}
    assert ids == {f"good-{n}" for n in range(count)}
    assert grown < 150 * 2**20


@pytest.mark.usefixtures("hot_path")
def test_results_that_their_topic_refuses_become_dead_letters(kafka: Any, topics: Any, topic_name: Any) -> None:
    from confluent_kafka import Producer

    names = {
        "source": topics(1, "ref-in"),
        "sink": topics(1, "ref-out", max_message_bytes="400"),
        "dead": topics(1, "ref-dead"),
    }
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **IN_ORDER})
    for number in range(40):
        # The id is kept in the result, so a long one, that does not compress, makes a result that the topic refuses.
        name = random.Random(5).randbytes(2000).hex() if number == 20 else f"good-{number}"
        producer.produce(names["source"], Data({"image": IMAGE, "id": name}).to_bytes(), "k")
    assert producer.flush(120) == 0
    text = SERVICE.format(bootstrap=kafka.bootstrap, group=topic_name(), **names)
    # One at a time: a broker refuses a whole batch of messages for one that is too large.
    text = text.replace("max_records: 64", "max_records: 1")
    with streamer.loads(text, base=EXAMPLE):
        (letter,) = read(kafka.bootstrap, names["dead"], 1, 120)
        results = read(kafka.bootstrap, names["sink"], 39, 120)
    origin = original(letter.headers)
    assert origin is not None
    assert (origin.step, origin.offset) == ("sink kafka", 20)
    ids = [Data.from_bytes(one.value)["id"] for one in results]
    assert set(ids) == {f"good-{n}" for n in range(40) if n != 20}
