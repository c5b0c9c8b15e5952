"""Options of Spark's reader and writer for Kafka, from the fields of a service."""

from __future__ import annotations

import re
from typing import Final

from connectors.kafka.client.internaltopics import INTERNAL
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from streamer.definition.connectors.written import Written
from streamer.definition.service import Service
from streamer.spark.fitting import setting_of_producer
from streamer.spark.login import login

BATCHES: Final = 200
"""Batches of a micro-batch at most: what a killed query repeats, and what one trigger reads of a backlog."""
_ROOM: Final = 64 * 1024
"""Bytes beside a message that its request to the brokers has."""
_BUFFER: Final = 32 << 20
"""The buffer of Java's producer, in bytes, which has to hold a message."""


def read_options(service: Service, written: Written) -> dict[str, str]:
    """Those of the source: topics, the first position, bounds, brokers and login. Raises as `login`."""
    (source,) = service.sources
    assert isinstance(source, KafkaSourceConfig)
    path = written.connector("source")
    return {
        **_kafka(
            {
                "bootstrap.servers": source.brokers.address,
                # Of aborted transactions nobody shall see a record, as with `streamer run`.
                "isolation.level": "read_committed",
                "fetch.max.bytes": str(source.max_fetch),
                **login(source, path, written),
            }
        ),
        **_topics(source.topics),
        **_start(source),
        "includeHeaders": str(source.reads_headers).lower(),
        "groupIdPrefix": source.group or service.name,
        "failOnDataLoss": str(source.out_of_range == "stop").lower(),
        "maxOffsetsPerTrigger": str(BATCHES * service.batch.max_records),
    }


def write_options(service: Service, written: Written) -> dict[str, str]:
    """Those of the one producer for all sinks, which agree about it. Raises as `login`."""
    sinks = written.sinks_of(service)
    first, linger = sinks[0][0], setting_of_producer(sinks, "linger", written)
    assert isinstance(first, KafkaSinkConfig)
    largest = max(sink.max_message for sink, _ in sinks if isinstance(sink, KafkaSinkConfig)) + _ROOM
    made = {
        "bootstrap.servers": first.brokers.address,
        "acks": "all",
        "compression.type": setting_of_producer(sinks, "compression", written),
        "linger.ms": str(round(linger * 1000)),
        "max.request.size": str(largest),
        "buffer.memory": str(max(_BUFFER, 2 * largest)),
        **login(first, written.connector("sink"), written),
    }
    if (timeout := setting_of_producer(sinks, "timeout", written)) is not None:
        # Java's producer refuses one that is shorter than a request and its linger.
        milliseconds = max(1, round(timeout * 1000))
        made["delivery.timeout.ms"] = str(milliseconds)
        made["request.timeout.ms"] = str(max(1, min(30_000, milliseconds - round(linger * 1000))))
    return _kafka(made)


def _kafka(properties: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in properties.items()}


def _topics(topics: tuple[str, ...]) -> dict[str, str]:
    if not any(topic.startswith("^") for topic in topics):
        return {"subscribe": ",".join(topics)}
    # Java compares the whole name, and a pattern of a service file only its beginning.
    parts = [f"(?:{topic}).*" if topic.startswith("^") else re.escape(topic) for topic in topics]
    hidden = "|".join(re.escape(name) for name in INTERNAL if name not in topics)
    return {"subscribePattern": f"(?!(?:{hidden})$)(?:{'|'.join(parts)})"}


def _start(source: KafkaSourceConfig) -> dict[str, str]:
    if source.start in ("earliest", "latest"):
        return {"startingOffsets": source.start}
    return {
        "startingTimestamp": str(source.start),
        # A partition without a record since then is read from its end, as with `streamer run`.
        "startingOffsetsByTimestampStrategy": "latest",
    }
