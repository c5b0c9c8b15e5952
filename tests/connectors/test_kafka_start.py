"""Where partitions begin and end, asked by clients that have been told wrong things before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from connectors.kafka.start import bounds, positions
from streamer.broker import Broker, create_topics

Name = Callable[..., str]


@pytest.fixture
def consumer(kafka: Broker) -> Iterator[Consumer]:
    made = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none"})
    yield made
    made.close()


def first_and_next(consumer: Consumer, topic: str) -> tuple[int, int]:
    return bounds(consumer, (topic, 0))


def end(consumer: Consumer, topic: str) -> tuple[int, int]:
    return 0, positions(consumer, [(topic, 0)], "latest")[topic, 0]


def at_a_time(consumer: Consumer, topic: str) -> tuple[int, int]:
    return 0, positions(consumer, [(topic, 0)], 1_000_000)[topic, 0]


@pytest.mark.parametrize("asked", [first_and_next, end, at_a_time])
def test_a_client_that_asks_before_the_topic_is_made_finds_where_it_begins_and_ends(
    kafka: Broker, topic_name: Name, consumer: Consumer, asked: Callable[[Consumer, str], tuple[int, int]]
) -> None:
    topic = topic_name()
    making = threading.Timer(0.5, create_topics, (kafka.bootstrap, {topic: 1}))
    making.start()
    try:
        assert asked(consumer, topic) == (0, 0)
    finally:
        making.join()


def test_a_topic_that_does_not_come_is_an_error_in_the_end(
    monkeypatch: pytest.MonkeyPatch, topic_name: Name, consumer: Consumer
) -> None:
    monkeypatch.setattr("connectors.kafka.start._PATIENCE", 1.0)
    with pytest.raises(KafkaException) as raised:
        positions(consumer, [(topic_name(), 0)], "latest")
    assert raised.value.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
