"""Kafka services that read topics which other programs write by transactions: where their group ends up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafkatopics import ReadTopic
from waiting import until

from streamer.agent.agent import Agent
from streamer.definition.loading import loads
from streamer.devbroker import Broker

pytestmark = [pytest.mark.usefixtures("hot_path"), pytest.mark.slow]

GUARANTEES = ("at_most_once", "at_least_once", "exactly_once")
Topics = Callable[..., str]


def transactions(bootstrap: str, topic: str, committed: int, aborted: int) -> None:
    """Writes so many records in a transaction that is committed (none without any), then so many in an aborted one."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for count, end in ((committed, producer.commit_transaction), (aborted, producer.abort_transaction)):
        if count:
            producer.begin_transaction()
            for number in range(count):
                producer.produce(topic, str(number).encode(), partition=0)
            assert producer.flush(60) == 0
            end(60)


def end_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
        assert found is not None
        return int(found[1])
    finally:
        consumer.close()


def empty(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """As retention does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, one, -1) for one in range(partitions)]).values():
        future.result()


@contextmanager
def running(bootstrap: str, topic: str, results: str, delivery: str) -> Iterator[Agent]:
    service = loads(
        f"""
name: {topic}
source: {{type: kafka, bootstrap: "{bootstrap}", topics: {topic}, codec: raw, client: {{session.timeout.ms: 6000}}}}
pipeline: [{{"@type": LOGGING, logLevel: DEBUG}}]
sink: {{type: kafka, topic: {results}, codec: raw}}
delivery: {delivery}
"""
    )
    agent = Agent(service)
    agent.start()
    try:
        yield agent
    finally:
        agent.stop()
        agent.join(60)


@pytest.mark.parametrize("delivery", GUARANTEES)
def test_the_group_passes_aborted_records_and_markers_at_the_end_of_a_topic(
    kafka: Broker, topics: Topics, delivery: str
) -> None:
    topic, results = topics(1), topics(1)
    transactions(kafka.bootstrap, topic, 5, 20)
    with running(kafka.bootstrap, topic, results, delivery) as agent:
        until(lambda: ReadTopic(kafka.bootstrap, topic).committed() == end_of(kafka.bootstrap, topic) == 27)
        transactions(kafka.bootstrap, topic, 3, 0)
        until(lambda: ReadTopic(kafka.bootstrap, topic).committed() == end_of(kafka.bootstrap, topic) == 31)
        agent.stop()
        assert agent.join(60).ok == 8


@pytest.mark.parametrize("delivery", GUARANTEES)
def test_a_topic_that_was_read_whole_and_emptied_by_retention_starts_again(
    kafka: Broker, topics: Topics, delivery: str
) -> None:
    topic, results = topics(1), topics(1)
    transactions(kafka.bootstrap, topic, 5, 0)
    with running(kafka.bootstrap, topic, results, delivery):
        until(lambda: ReadTopic(kafka.bootstrap, topic).committed() == 6)
    empty(kafka.bootstrap, topic)
    with running(kafka.bootstrap, topic, results, delivery) as agent:
        transactions(kafka.bootstrap, topic, 2, 0)
        until(lambda: ReadTopic(kafka.bootstrap, topic).committed() == 9)
        agent.stop()
        assert agent.join(60).ok == 2


@pytest.mark.parametrize("delivery", GUARANTEES)
def test_a_topic_that_holds_aborted_records_only_has_no_lag(kafka: Broker, topics: Topics, delivery: str) -> None:
    topic, results = topics(1), topics(1)
    transactions(kafka.bootstrap, topic, 0, 20)
    with running(kafka.bootstrap, topic, results, delivery):
        until(lambda: ReadTopic(kafka.bootstrap, topic).committed() == end_of(kafka.bootstrap, topic) == 21)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_second_process_joins_after_retention_has_emptied_the_topic(
    kafka: Broker, topics: Topics, delivery: str
) -> None:
    topic, results = topics(2), topics(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(6):
        producer.produce(topic, b"record", partition=number % 2)
    producer.commit_transaction(60)
    with running(kafka.bootstrap, topic, results, delivery) as first:
        until(lambda: all(ReadTopic(kafka.bootstrap, topic).committed(one) == 4 for one in (0, 1)))
        empty(kafka.bootstrap, topic, 2)
        with running(kafka.bootstrap, topic, results, delivery) as second:
            sources = [one._assembly.sources[0][2] for one in (first, second)]
            until(lambda: [len(one._lanes) for one in sources] == [1, 1])  # type: ignore[attr-defined]
            producer.begin_transaction()
            for number in range(4):
                producer.produce(topic, b"later", partition=number % 2)
            producer.commit_transaction(60)
            until(lambda: all(ReadTopic(kafka.bootstrap, topic).committed(one) == 7 for one in (0, 1)))
            assert first.live() is None
            assert second.live() is None
