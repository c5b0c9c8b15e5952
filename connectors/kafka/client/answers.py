"""The first question to brokers, for somebody who waits for the answer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from connectors.kafka.client.properties import require_client, scrubber, sink_properties, source_properties
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.errors import ConnectorError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

PATIENCE = 10.0
"""Seconds that brokers may take to answer."""
SOON = 2.0
"""Seconds after which they are given up if all connections to them have failed: refused, no such host, ..."""

Answer = TypeVar("Answer")


class Trouble:
    """What a client library tells of its connections, as its `error_cb`."""

    def __init__(self) -> None:
        self.all_down = False
        """Whether no broker could be connected to."""
        self.error: KafkaError | None = None
        """What went wrong first; rather something that waiting does not mend."""

    def __call__(self, error: KafkaError) -> None:
        """The client library's callback."""
        from confluent_kafka import KafkaError

        from connectors.kafka.client.errors import is_passing

        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.all_down = True
        elif self.error is None or (is_passing(self.error) and not is_passing(error)):
            self.error = error


def topics_of(config: KafkaSourceConfig | KafkaSinkConfig) -> dict[str, int]:
    """The topics of a connector's brokers, and how many partitions each has.

    Raises `ConnectorError`, retriable where nobody answers, and `MissingPackageError`.
    """
    require_client()
    from confluent_kafka import Consumer, KafkaException, Producer

    trouble = Trouble()
    callbacks: dict[str, Callable[..., None]] = {"error_cb": trouble}
    try:
        if isinstance(config, KafkaSinkConfig):
            producer = Producer(sink_properties(config, callbacks))
            topics = answered(producer, trouble, lambda patience: producer.list_topics(timeout=patience)).topics
        else:
            # It does not subscribe, so it is no member of its group: nobody's partitions move.
            consumer = Consumer(source_properties(config, callbacks))
            try:
                topics = answered(consumer, trouble, lambda patience: consumer.list_topics(timeout=patience)).topics
            finally:
                consumer.close()
    except KafkaException as error:
        raise unanswered(config, error, trouble) from error
    return {name: len(topic.partitions) for name, topic in topics.items()}


def answered(client: Any, trouble: Trouble, ask: Callable[[float], Answer]) -> Answer:
    """`ask(seconds)`, the first question to brokers. They get `PATIENCE`, but no more than `SOON` if all connections
    failed meanwhile; `trouble` is the client's `error_cb`. Raises `KafkaException` without an answer.
    """
    from confluent_kafka import KafkaException

    soon = min(SOON, PATIENCE)
    try:
        return ask(soon)
    except KafkaException:
        # What it has to tell it tells only when polled.
        client.poll(0.0)
        if trouble.all_down or soon == PATIENCE:
            raise
        answer = ask(PATIENCE - soon)
        # It is over, and no reason for what may fail later.
        trouble.error = None
        return answer


def unanswered(
    config: KafkaSourceConfig | KafkaSinkConfig, error: Exception, trouble: Trouble | None = None
) -> ConnectorError:
    """What a client library's error on asking these brokers means, and what it told of its connections before."""
    from confluent_kafka import KafkaException

    from connectors.kafka.client.errors import NO_LEADER, error_of, explained, is_passing

    assert isinstance(error, KafkaException)
    scrub = scrubber(config)
    told = None if trouble is None else trouble.error
    for one in (error_of(error), told):
        # Without a leader of a partition there is somebody who said so.
        if one is not None and (not is_passing(one) or one.code() in NO_LEADER):
            return explained(one, str(config.bootstrap), scrub)
    reason = error_of(error).str() if told is None else _reason(told.str())
    return ConnectorError(
        scrub(f"no Kafka answers on {config.bootstrap} ({reason}); is it running, and is -b right? ")
        + "streamer broker starts one here",
        retriable=True,
    )


def _reason(text: str) -> str:
    """`a:1/bootstrap: Connect to ipv4#1.2.3.4:1 failed: Connection refused (after 0ms in ...)` without its frame."""
    text = re.sub(r" \(after \d+ms in state \w+.*", "", " ".join(text.split()))
    return re.sub(r"^\S+/(bootstrap|\d+): ", "", text)
