"""What is found out about a service by connecting: brokers, topics, the pipeline as a whole."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from connectors.config import ConnectorConfig
from pipelines.errors import ConnectorError, nearest
from streamer.cli.brokers import topics_of
from streamer.cli.findings import Finding, found
from streamer.definition.service import Service


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
    with service.sequence().open(allow_code=service.allows_code, runners=service.runners):
        return "opens"


def _topics(config: ConnectorConfig, silent: dict[str, ConnectorError]) -> str:
    connector: Any = config
    if connector.bootstrap in silent:
        raise silent[connector.bootstrap]
    try:
        known = topics_of(connector)
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
