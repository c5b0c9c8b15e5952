"""A service that delivers exactly once, and whose shadow writes into a topic of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from addingmodels import adding
from confluent_kafka import Producer
from kafkatopics import read
from waiting import until

from pipelines import Onnx, Sequence
from streamer.agent.agent import Agent
from streamer.definition.service import Service
from streamer.devbroker import Broker


def test_results_of_a_shadow_arrive_in_its_topic_beside_those_of_transactions(
    kafka: Broker, topics: Callable[..., str], tmp_path: Path
) -> None:
    for version in (1, 2):
        adding(tmp_path / str(version) / "model.onnx", 1000 * version)
    topic, results, shadow = topics(1), topics(1), topics(1)
    bus = {"type": "kafka", "bootstrap": kafka.bootstrap, "codec": "json"}
    agent = Agent(
        Service(
            name=topic,
            source={**bus, "topics": topic},
            sink={**bus, "topic": results},
            pipeline=Sequence([Onnx(model_uri=tmp_path)]),
            variants={
                "shadow": {"version": 1, "sink": {**bus, "topic": shadow, "add_headers": {"at": "{record.offset}"}}}
            },
            delivery="exactly_once",
            # One batch: a shadow skips others while it is busy.
            batch={"type": "hard", "max_records": 3},
            on_error="drop",
        )
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(3):
        producer.produce(topic, b'{"x": %d}' % number, key=b"k%d" % number, headers=[("trace", b"t")])
    producer.flush(60)
    agent.start()
    try:
        until(lambda: agent.meters.total("ok") == 3)
    finally:
        agent.stop()
        assert agent.join(60).ok == 3
    (own, theirs) = read(kafka.bootstrap, results, 3), read(kafka.bootstrap, shadow, 3)
    assert [json.loads(message.value or b"")["y"] for message in own] == [2000, 2001, 2002]
    assert [json.loads(message.value or b"")["y"] for message in theirs] == [1000, 1001, 1002]
    assert [message.key for message in theirs] == [b"k0", b"k1", b"k2"]
    assert [dict(message.headers) for message in theirs] == [
        {"trace": b"t", "at": b"%d" % at, "streamer-version": b"1", "streamer-variant": b"shadow"} for at in range(3)
    ]
    assert all(dict(message.headers)["streamer-version"] == b"2" for message in own)
