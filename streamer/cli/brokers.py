"""Asking brokers for their topics."""

from __future__ import annotations

from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.kafka.properties import require_client, scrubber, sink_properties, source_properties
from pipelines.errors import ConnectorError

PATIENCE = 10.0
"""Seconds that brokers may take to answer."""


def topics_of(config: KafkaSourceConfig | KafkaSinkConfig) -> dict[str, int]:
    """The topics of a connector's brokers, and how many partitions each has.

    Raises `ConnectorError`, retriable where nobody answers, and `MissingPackageError`.
    """
    require_client()
    from confluent_kafka import Consumer, KafkaException, Producer

    try:
        if isinstance(config, KafkaSinkConfig):
            topics = Producer(sink_properties(config, {})).list_topics(timeout=PATIENCE).topics
        else:
            # It does not subscribe, so it is no member of its group: nobody's partitions move.
            consumer = Consumer(source_properties(config, {}))
            try:
                topics = consumer.list_topics(timeout=PATIENCE).topics
            finally:
                consumer.close()
    except KafkaException as error:
        raise unanswered(config, error) from error
    return {name: len(topic.partitions) for name, topic in topics.items()}


def unanswered(config: KafkaSourceConfig | KafkaSinkConfig, error: Exception) -> ConnectorError:
    """What a client library's error on asking these brokers means."""
    from confluent_kafka import KafkaException

    from connectors.kafka.errors import error_of, explained, is_passing

    assert isinstance(error, KafkaException)
    scrub = scrubber(config)
    if not is_passing(error_of(error)):
        return explained(error_of(error), str(config.bootstrap), scrub)
    return ConnectorError(
        scrub(f"no Kafka answers on {config.bootstrap} ({error_of(error).str()}); is it running, and is -b right? ")
        + "streamer broker starts one here",
        retriable=True,
    )
