"""What is found out about a service by connecting: brokers, topics, the pipeline as a whole."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from connectors.config import ConnectorConfig
from pipelines.errors import ConnectorError, nearest
from streamer.cli.findings import Finding, found
from streamer.service import Service

PATIENCE = 10.0
"""Seconds that brokers may take to answer."""


def reached(service: Service) -> list[Finding]:
    """Ask the brokers of Kafka connectors for their topics, and open the pipeline."""
    findings = []
    # Brokers that do not answer are waited for once.
    silent: dict[str, ConnectorError] = {}
    for kind, configs in (("source", service.sources), ("sink", service.sinks), ("dead letter", [service.dead_letter])):
        for config in configs:
            if config is not None and config.type == "kafka":
                findings.append(found(f"{kind} {config.label}", partial(_topics, config, silent)))
    findings.append(found("pipeline", partial(_opened, service)))
    return findings


def _opened(service: Service) -> str:
    with service.sequence().open():
        return "opens"


def _topics(config: ConnectorConfig, silent: dict[str, ConnectorError]) -> str:
    connector: Any = config
    if connector.bootstrap in silent:
        raise silent[connector.bootstrap]
    try:
        known = _asked(connector)
    except ConnectorError as error:
        if error.retriable:
            silent[connector.bootstrap] = error
        raise
    source = hasattr(connector, "group")
    wanted = connector.topics if source else [connector.topic]
    notes = []
    for topic in wanted:
        if topic.startswith("^"):
            matching = [name for name in known if re.search(topic, name)]
            notes.append(f"{len(matching)} topics match {topic}")
        elif "{" in topic:
            notes.append(f"{topic} is made from values")
        elif topic in known:
            notes.append(f"{topic} has {known[topic]} partition{'' if known[topic] == 1 else 's'}")
        else:
            raise ConnectorError(f'{connector.bootstrap} has no topic "{topic}"{nearest(topic, known)}; create it')
    return f"{connector.bootstrap}: {', '.join(notes)}"


def _asked(connector: Any) -> dict[str, int]:
    """The brokers' topics and how many partitions each has."""
    from connectors.kafka.properties import require_client, scrubber, sink_properties, source_properties

    require_client()
    from confluent_kafka import Consumer, KafkaException, Producer

    from connectors.kafka.errors import error_of, explained

    # A consumer that has not subscribed is no member of its group: nobody's partitions move.
    is_source = hasattr(connector, "group")
    try:
        client: Any = (
            Consumer(source_properties(connector, {})) if is_source else Producer(sink_properties(connector, {}))
        )
        topics = client.list_topics(timeout=PATIENCE).topics
    except KafkaException as error:
        raise explained(error_of(error), str(connector.bootstrap), scrubber(connector)) from error
    if is_source:
        client.close()
    return {name: len(topic.partitions) for name, topic in topics.items()}
