"""`TopicLimits`: the limits of brokers for a topic's messages, so that a sink can refuse a message alone.

Brokers refuse a whole request because of one message, and a transaction with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from connectors.blockcolumns import where_null
from connectors.kafka.client.errors import error_of, is_passing
from connectors.kafka.producer.messagesizes import message_sizes
from connectors.records import Messages

BATCH_OVERHEAD = 61
"""Bytes of a batch besides its records."""
RECORD_OVERHEAD = 36
"""Bytes that librdkafka counts for a message besides payload, key and headers."""
_HEADERS = 64 * 1024
"""Headers are counted only for messages whose payloads are closer to the limit than this many bytes."""


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The limits in a topic's settings."""

    batch: int
    """`max.message.bytes`: bytes of a batch of records, compressed."""
    needs_keys: bool
    """Whether it is compacted, so that a message without a key is refused."""

    @property
    def message(self) -> int:
        """The size of a message, as librdkafka counts it, up to which the topic surely accepts it."""
        return self.batch - BATCH_OVERHEAD

    def refusals(self, messages: Messages, longest: int) -> dict[int, KafkaError]:
        """The messages that would be refused, or are larger than `longest`, by index."""
        refused: dict[int, KafkaError] = {}
        # The client counts, too, but knows only the largest limit of all sinks that share it.
        most = min(self.message, longest) - RECORD_OVERHEAD
        if message_sizes(messages, headers=False).max(initial=0) > most - _HEADERS:
            for index in np.flatnonzero(message_sizes(messages) > most).tolist():
                refused[index] = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        if self.needs_keys:
            for index in _without_key(messages):
                refused[index] = KafkaError(KafkaError.INVALID_RECORD, "the topic is compacted: a message needs a key")
        return refused


NO_LIMITS = TopicLimits(1 << 40, needs_keys=False)
"""The limits of a topic whose settings are not known."""


def limits_of(admin: AdminClient, topics: Iterable[str], seconds: float) -> dict[str, TopicLimits]:
    """The limits of these topics; those that do not exist, or whose settings we may not read, are left out.

    Raises `KafkaException` if the brokers do not answer.
    """
    asked = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    if not asked:
        return {}
    answers = admin.describe_configs(list(asked.values()), request_timeout=seconds)
    limits = {}
    for topic, resource in asked.items():
        try:
            limits[topic] = _read(answers[resource].result())
        except KafkaException as exception:
            if is_passing(error_of(exception)):
                raise
    return limits


def _read(settings: Mapping[str, Any]) -> TopicLimits:
    return TopicLimits(
        int(settings["max.message.bytes"].value), "compact" in str(settings["cleanup.policy"].value).split(",")
    )


def _without_key(messages: Messages) -> Iterable[int]:
    if messages.keys is None:
        return range(len(messages))
    return where_null(messages.keys)
