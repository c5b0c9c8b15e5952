"""Requests to brokers beside a consumer, also before the brokers know the answer."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from kafkatopics import Name, Topics, write

from connectors.kafka.client.queries import Queries, Start
from streamer.devbroker import Broker, create_topics


@pytest.fixture
def queries(kafka: Broker) -> Queries:
    return Queries({"bootstrap.servers": kafka.bootstrap})


@pytest.mark.parametrize("start", ["earliest", "latest", 1_000_000])
def test_a_client_that_asks_before_the_topic_is_made_finds_where_it_begins_and_ends(
    kafka: Broker, topic_name: Name, queries: Queries, start: Start
) -> None:
    topic = topic_name()
    making = threading.Timer(0.5, create_topics, (kafka.bootstrap, {topic: 1}))
    making.start()
    try:
        assert queries.positions([(topic, 0)], start) == {(topic, 0): 0}
    finally:
        making.join()


def test_a_topic_that_does_not_come_is_an_error_in_the_end(
    monkeypatch: pytest.MonkeyPatch, topic_name: Name, queries: Queries
) -> None:
    monkeypatch.setattr("connectors.kafka.client.queries.PATIENCE", 1.0)
    with pytest.raises(KafkaException) as raised:
        queries.positions([(topic_name(), 0)], "latest")
    assert raised.value.args[0].code() == KafkaError._NOENT


def test_the_position_of_a_time_is_that_of_its_first_record_or_the_end(
    kafka: Broker, topics: Topics, queries: Queries
) -> None:
    topic = topics(2, retention_ms="-1")
    write(kafka.bootstrap, topic, [b"0", b"1"], timestamp=1_000_000)
    write(kafka.bootstrap, topic, [b"2"], timestamp=3_000_000)
    places = [(topic, 0), (topic, 1)]
    assert queries.positions(places, 2_000_000) == {(topic, 0): 2, (topic, 1): 0}
    assert queries.positions(places, 4_000_000) == {(topic, 0): 3, (topic, 1): 0}
    assert queries.positions([], "latest") == {}


@pytest.mark.parametrize("start", ["earliest", "latest", 1_000_000])
def test_an_answer_without_an_offset_is_asked_for_again(
    kafka: Broker, topics: Topics, queries: Queries, monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    """As clients give it while a leader changes: taken for an offset, a partition would be read as an empty one."""
    topic = topics(1, retention_ms="-1")
    write(kafka.bootstrap, topic, [b"0", b"1"], timestamp=1_000_000)
    right = queries.positions([(topic, 0)], start)
    unknown: Future[Any] = Future()
    unknown.set_result(SimpleNamespace(offset=OFFSET_INVALID))
    asked = queries._asked
    answers = [{TopicPartition(topic, 0): unknown}] * 3

    def first_unknown(*arguments: Any) -> dict[TopicPartition, Future[Any]]:
        return answers.pop() if answers else asked(*arguments)

    monkeypatch.setattr(queries, "_asked", first_unknown)
    assert queries.positions([(topic, 0)], start) == right
    assert not answers
    answers.append({TopicPartition(topic, 0): unknown})
    asked_ends = queries.ask_ends([(topic, 0)])
    assert queries.ends(asked_ends) == {}


def test_a_client_that_knows_a_former_leader_is_replaced(
    kafka: Broker, topics: Topics, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics(1)
    place = (topic, 0)
    former: Future[Any] = Future()
    former.set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
    asked = queries._asked
    clients = []

    def first_former(*arguments: Any) -> dict[TopicPartition, Future[Any]]:
        clients.append(queries._admin)
        return {TopicPartition(*place): former} if len(clients) in (1, 3) else asked(*arguments)

    monkeypatch.setattr(queries, "_asked", first_former)
    assert queries.positions([place], "latest") == {place: 0}
    asked_ends = queries.ask_ends([place])
    assert queries.ends(asked_ends) == {}
    asked_ends = queries.ask_ends([place])
    assert clients[0] is not clients[1]
    assert clients[1] is clients[2]
    assert clients[2] is not clients[3]


def test_a_topic_that_is_not_there_has_no_id_and_holds_up_no_other(
    kafka: Broker, topics: Topics, topic_name: Name, queries: Queries
) -> None:
    topic = topics(1)
    found = queries.ids_now([topic, topic_name()])
    assert list(found) == [topic]
    assert queries.ids_now([topic]) == found
    assert queries.ids_now([]) == {}


def test_brokers_that_are_away_have_no_answers_and_nothing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.kafka.client.queries._ATTEMPT", 0.3)
    queries = Queries({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    assert queries.ids_now(["digits"]) == {}
    asked_ends = queries.ask_ends([("digits", 0)])
    assert queries.ends(asked_ends) == {}
