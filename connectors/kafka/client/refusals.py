"""Checks properties for values that librdkafka refuses, without connecting."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from connectors.kafka.client.hints import with_hints
from connectors.kafka.client.properties import require_client, scrubber, sink_properties, source_properties
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.errors import ConnectorError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer


def check_properties(config: KafkaSourceConfig | KafkaSinkConfig) -> None:
    """Make a client of these settings and close it again; it gets no broker's address, so it connects to none.

    Raises `ConnectorError` for the properties that librdkafka does not know, or whose values it does not take, and
    `MissingPackageError`.
    """
    require_client()
    from confluent_kafka import Consumer, Producer

    kind: type[Consumer | Producer]
    if isinstance(config, KafkaSourceConfig):
        kind, properties = Consumer, source_properties(config, {})
    else:
        kind, properties = Producer, sink_properties(config, {})
    left = {**properties, "bootstrap.servers": "", "log_level": 0}
    messages: list[str] = []
    # librdkafka reports one property at a time: without it, the next.
    while (text := _refused(kind, left)) is not None:
        messages.append(text)
        wrong = next((name for name in re.findall(r'"([^"]*)"', text) if name in config.client and name in left), None)
        if wrong is None:
            break
        del left[wrong]
    if messages:
        raise ConnectorError(scrubber(config)(f"client: {with_hints(*messages)}"))


def _refused(kind: type[Consumer | Producer], properties: dict[str, Any]) -> str | None:
    """Why a client cannot be made with these properties, `None` if it can."""
    from confluent_kafka import Consumer, KafkaException

    try:
        client = kind(properties)
    except (KafkaException, ValueError, TypeError) as error:
        return str(error.args[0].str() if isinstance(error, KafkaException) else error)
    if isinstance(client, Consumer):
        client.close()
    return None
