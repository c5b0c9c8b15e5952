"""When a topic counts as gone: by the brokers' answer alone."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from connectors.kafka.producer import presence
from connectors.kafka.producer.presence import Presence, TopicState


@pytest.fixture(autouse=True)
def asks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_EVERY", 0.0)


def answers(*found: TopicState | None) -> Presence:
    """Brokers that answer these in turn; `None` is no answer."""
    left = list(found)

    def ask(seconds: float) -> TopicState:
        answer = left.pop(0)
        if answer is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return answer

    return Presence(ask)


@pytest.mark.parametrize("found", [TopicState.READY, TopicState.WITHOUT_LEADER])
def test_a_topic_whose_messages_timed_out_is_not_gone_while_the_brokers_know_it(found: TopicState) -> None:
    topic = answers(found)
    topic.suspect()
    topic.check()
    assert topic.gone_since is None
    # Nothing more is asked: the answers have run out.
    topic.check()


def test_a_topic_whose_messages_timed_out_is_gone_once_the_brokers_say_so() -> None:
    topic = answers(None, TopicState.GONE, TopicState.WITHOUT_LEADER, TopicState.READY)
    topic.suspect()
    topic.check()
    assert topic.gone_since is None, "without an answer nothing is known"
    topic.check()
    since = topic.gone_since
    assert since is not None
    topic.check()
    assert topic.gone_since == since, "messages for a partition without a leader would wait"
    topic.check()
    assert topic.gone_since is None


def test_the_brokers_are_not_asked_about_a_topic_without_reason() -> None:
    answers().check()
