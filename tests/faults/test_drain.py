"""A service on real Kafka whose step takes long: it ends in the time that it has, and nothing is lost or done twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from kafkatopics import read
from waiting import until

import pipelines
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.definition.service import Service

pytestmark = pytest.mark.slow

COUNT = 600
PER_RECORD = 0.03


def slow(data: Data) -> Data:
    time.sleep(PER_RECORD)
    return data


def quick(data: Data) -> Data:
    return data


@pytest.fixture
def service(kafka: Any, topics: Any, topic_name: Any) -> Callable[..., Service]:
    """`service(step, drain)` reads a topic that holds `COUNT` records in two partitions."""
    source, sink = topics(2, "drain-in"), topics(1, "drain-out")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(source, Data({"n": number}).to_bytes(), partition=number % 2)
    assert producer.flush(60) == 0
    group = topic_name("drain")

    def made(step: Any, drain: str) -> Service:
        fields: dict[str, Any] = {
            "source": {"type": "kafka", "bootstrap": kafka.bootstrap, "topics": source, "group": group},
            "pipeline": pipelines.Sequence([step]),
            "sink": {"type": "kafka", "topic": sink},
            "limits": {"drain": drain},
        }
        return Service(**fields)

    return made


def results(service: Service) -> list[int]:
    sink: Any = service.sinks[0]
    return [Data.from_bytes(one.value)["n"] for one in read(sink.bootstrap, sink.topic)]


def test_a_service_stops_in_time_in_the_midst_of_a_batch_and_the_next_run_has_the_rest(service: Any) -> None:
    definition = service(slow, "2s")
    agent = Agent(definition)
    agent.start()
    until(lambda: len(results(definition)) > 20)
    began = time.monotonic()
    agent.stop()
    summary = agent.join(60)
    # A whole batch takes fifteen seconds.
    assert time.monotonic() - began < 8
    assert (summary.reason, summary.error) == ("stopped", None)
    done = results(definition)
    assert len(done) < COUNT
    again = Agent(service(quick, "25s"))
    again.start()
    until(lambda: len(results(definition)) >= COUNT)
    again.stop()
    assert again.join(60).reason == "stopped"
    assert sorted(results(definition)) == list(range(COUNT)), "not each once: a finished record was not committed"
