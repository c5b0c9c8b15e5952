"""What a connector says about a topic that it cannot use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from connectors.kafka.client.topics import check_topic
from pipelines.errors import ConnectorError


class Refusing:
    """A client whose brokers refuse every topic."""

    def __init__(self, code: int) -> None:
        self._code = code

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        refused = {} if topic is None else {topic: SimpleNamespace(error=KafkaError(self._code), partitions={})}
        return SimpleNamespace(topics=refused)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.TOPIC_EXCEPTION, "; a name has up to 249 letters of ASCII, .*; several topics are a list"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "; create the topic, check its name, or ask for access to it"),
    ],
)
def test_several_topics_in_one_text_are_told_to_be_a_list(code: int, said: str) -> None:
    with pytest.raises(ConnectorError, match=f'source a: topic "in.a, in.b": .*{said}'):
        check_topic(Refusing(code), "in.a, in.b", "source a", lambda: False)
