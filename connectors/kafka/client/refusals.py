"""What the client library refuses to be set to, found out without connecting."""

from __future__ import annotations

from connectors.kafka.client.properties import require_client, scrubber, sink_properties, source_properties
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.errors import ConnectorError


def check_properties(config: KafkaSourceConfig | KafkaSinkConfig) -> None:
    """Make a client of these settings and let it go again; it knows no broker, so that it connects to none.

    Raises `ConnectorError` for a property that librdkafka does not know, or whose value it does not take, and
    `MissingPackageError`.
    """
    require_client()
    from confluent_kafka import Consumer, KafkaException, Producer

    nobody = {"bootstrap.servers": "", "log_level": 0}
    try:
        if isinstance(config, KafkaSinkConfig):
            Producer({**sink_properties(config, {}), **nobody})
        else:
            Consumer({**source_properties(config, {}), **nobody}).close()
    except (KafkaException, ValueError, TypeError) as error:
        text = scrubber(config)(str(error.args[0].str() if isinstance(error, KafkaException) else error))
        raise ConnectorError(f"client: {text}; see librdkafka's CONFIGURATION.md") from None
