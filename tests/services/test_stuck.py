"""A Kafka service whose client stops fetching a partition, as one did once, says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from waiting import until

from streamer.agent.agent import Agent
from streamer.definition.loading import loads
from streamer.devbroker import Broker

pytestmark = [pytest.mark.usefixtures("hot_path"), pytest.mark.slow]


def test_a_partition_that_the_client_does_not_fetch_makes_the_service_not_alive(
    kafka: Broker, topics: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kafka.consumer.lag._ASK_AFTER", 1.0)
    topic, results = topics(2), topics(1)
    service = loads(
        f"""
name: {topic}
source: {{type: kafka, bootstrap: "{kafka.bootstrap}", topics: {topic}, codec: raw}}
pipeline: [{{"@type": LOGGING, logLevel: DEBUG}}]
sink: {{type: kafka, topic: {results}, codec: raw}}
limits: {{stuck: 2s}}
"""
    )
    agent = Agent(service)
    agent.start()
    try:
        source: Any = agent._assembly.sources[0][2]
        until(lambda: len(source._lanes) == 2)
        # What no interface of ours does: it stands for whatever may be wrong in a client.
        source._consumer.pause([TopicPartition(topic, 1)])
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for partition in (0, 1):
            producer.produce(topic, b"a record", partition=partition)
        assert producer.flush(60) == 0
        until(lambda: agent.live() is not None)
        assert f"{topic}[1] has records to deliver, and none has come for" in str(agent.live())
        source._consumer.resume([TopicPartition(topic, 1)])
        until(lambda: agent.live() is None)
    finally:
        agent.stop()
        summary = agent.join(60)
    assert summary.ok == 2
