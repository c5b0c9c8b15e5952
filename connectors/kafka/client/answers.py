"""The first request to brokers, when a user waits for the answer."""

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
"""Seconds of waiting for an answer if all connections have failed: refused, no such host, ..."""

Answer = TypeVar("Answer")


class ConnectionErrors:
    """The errors of a client's connections; used as its `error_cb`."""

    def __init__(self) -> None:
        self.all_down = False
        """Whether no broker could be connected to."""
        self.error: KafkaError | None = None
        """The first error that is not transient; if all are transient, the first error."""

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

    Raises `ConnectorError`, retriable if no broker answers, and `MissingPackageError`.
    """
    require_client()
    from confluent_kafka import Consumer, KafkaException, Producer

    errors = ConnectionErrors()
    callbacks: dict[str, Callable[..., None]] = {"error_cb": errors}
    try:
        if isinstance(config, KafkaSinkConfig):
            producer = Producer(sink_properties(config, callbacks))
            topics = answered(producer, errors, lambda patience: producer.list_topics(timeout=patience)).topics
        else:
            # It does not subscribe, so it does not join its group: no partitions move.
            consumer = Consumer(source_properties(config, callbacks))
            try:
                topics = answered(consumer, errors, lambda patience: consumer.list_topics(timeout=patience)).topics
            finally:
                consumer.close()
    except KafkaException as error:
        raise unanswered(config, error, errors) from error
    return {name: len(topic.partitions) for name, topic in topics.items()}


def answered(client: Any, errors: ConnectionErrors, ask: Callable[[float], Answer]) -> Answer:
    """The result of `ask(seconds)`, the first request to brokers. They get `PATIENCE`, but no more than `SOON` if all
    connections failed meanwhile; `errors` is the client's `error_cb`. Raises `KafkaException` without an answer.
    """
    from confluent_kafka import KafkaException

    soon = min(SOON, PATIENCE)
    try:
        return ask(soon)
    except KafkaException:
        # The client calls `error_cb` only when polled.
        client.poll(0.0)
        if errors.all_down or soon == PATIENCE:
            raise
        answer = ask(PATIENCE - soon)
        # The connection works now, so this error is not the reason of later failures.
        errors.error = None
        return answer


def unanswered(
    config: KafkaSourceConfig | KafkaSinkConfig, error: Exception, errors: ConnectionErrors | None = None
) -> ConnectorError:
    """The error for users, of a request to brokers that failed with `error`, and of earlier connection errors."""
    from confluent_kafka import KafkaException

    from connectors.kafka.client.errors import NO_LEADER, error_of, explained, is_passing

    assert isinstance(error, KafkaException)
    scrub, brokers = scrubber(config), config.brokers
    reported = None if errors is None else errors.error
    for cause in (error_of(error), reported):
        # "No leader for the partition" is the answer of a broker, not a failure to connect.
        if cause is not None and (not is_passing(cause) or cause.code() in NO_LEADER):
            return explained(cause, str(brokers), scrub)
    reason = error_of(error).str() if reported is None else _reason(reported.str())
    where = f"{brokers.address} ({reason})" + (f", {brokers.origin}" if brokers.origin else "")
    return ConnectorError(
        scrub(f"no Kafka answers on {where}; is it running, and is {brokers.setting} right?")
        + (" streamer broker starts one here" if _is_here(brokers.address) else ""),
        retriable=True,
    )


def _is_here(bootstrap: str) -> bool:
    """Whether an address is one where `streamer broker` would listen."""
    return all(re.match(r"\s*(\w+://)?(localhost|127\.|\[::1\])", address) for address in bootstrap.split(","))


def _reason(text: str) -> str:
    """`a:1/bootstrap: Connect to ipv4#1.2.3.4:1 failed: Connection refused (after 0ms in ...)` without its frame."""
    text = re.sub(r" \(after \d+ms in state \w+.*", "", " ".join(text.split()))
    return re.sub(r"^\S+/(bootstrap|\d+): ", "", text)
