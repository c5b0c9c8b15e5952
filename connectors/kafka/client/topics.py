"""Checking that a topic exists, when a connector opens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from connectors.kafka.client.errors import error_of, is_passing
from pipelines.errors import ConnectorError, nearest

_ATTEMPTS = 10
_ATTEMPT = 0.5
_CREATION = 4


class Client(Protocol):
    """A `Consumer` or `Producer`."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any: ...


def check_topic(client: Client, topic: str, label: str, hopeless: Callable[[], bool]) -> int | None:
    """How many partitions the topic has, 0 if it is being created; `None` if the brokers did not answer in 5 s, or
    before `hopeless` returned true.

    Raises `ConnectorError` if the topic does not exist, `KafkaException` for other errors of the brokers.
    """
    for attempt in range(_ATTEMPTS):
        try:
            metadata = client.list_topics(topic, timeout=_ATTEMPT).topics[topic]
            error = metadata.error
            if error is None or is_passing(error):
                return len(metadata.partitions)
            # A broker with `auto.create.topics.enable` denies the topic in its first answers.
            if attempt < _CREATION:
                time.sleep(0.1)
                continue
            known = list(client.list_topics(timeout=_ATTEMPT).topics)
        except KafkaException as exception:
            if not is_passing(error_of(exception)):
                raise
            if hopeless():
                return None
            continue
        if error.code() == KafkaError.TOPIC_EXCEPTION:
            raise ConnectorError(
                f'{label}: topic "{topic}": {error.str()}; a name has up to 249 letters of ASCII, digits, ".", "_" and '
                f'"-"; several topics are a list, [NAME, NAME]'
            )
        raise ConnectorError(
            f'{label}: topic "{topic}": {error.str()}; create the topic, check its name, or ask for access to it'
            f"{nearest(topic, known)}"
        )
    return None
