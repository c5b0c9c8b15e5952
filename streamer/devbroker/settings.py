"""The settings in a node's server.properties, and the reasons for them."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path

from streamer.devbroker.ports import HOST

SINGLE_NODE = {
    # Else the first member of every group waits 3 s for others.
    "group.initial.rebalance.delay.ms": "0",
    # Else 50 each, which are slow to create and to load.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # By default Kafka's own topics need three replicas: it would wait for them for ever.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "default.replication.factor": "1",
    # The default sets 128 MB of heap aside for compaction.
    "log.cleaner.dedupe.buffer.size": "16777216",
}
"""Settings of a development broker with one node. docker-compose.yml carries the same ones."""

QUICK_LOSS = {
    # A dead node is noticed after 9 s by default, and a restarted one is not let in before.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""Settings of nodes that are there to be killed."""

SLOW_LOSS = {"broker.session.timeout.ms": "30000"}
"""Settings of a node that is not killed in tests: it keeps leading its topics on a machine that hangs for seconds."""


def server_properties(
    node: int,
    ports: list[int],
    data: Path,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Properties of node `node` (from 1). `ports` holds the client ports of all nodes, then their controllers'."""
    nodes = len(ports) // 2
    client, controller = ports[node - 1], ports[nodes + node - 1]
    voters = ",".join(f"{i + 1}@{HOST}:{ports[nodes + i]}" for i in range(nodes))
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{client}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        **SINGLE_NODE,
        **QUICK_LOSS,
    }
    if nodes > 1:
        replicas, majority = str(min(nodes, 3)), str(min(nodes, 3) // 2 + 1)
        for key in SINGLE_NODE:
            if key.endswith("replication.factor"):
                properties[key] = replicas
            if key.endswith("min.isr"):
                properties[key] = majority
        properties["min.insync.replicas"] = majority
    return properties | dict(extra)


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write Java's `.properties` form; backslashes, which it would eat, are doubled."""
    lines = [f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def as_environment(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties as the environment variables that the apache/kafka image turns back into them."""
    return {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in properties.items()}


def renumber(path: Path, node: int) -> None:
    """Give a copied `meta.properties` the number of node `node` and a new id of the folder."""
    changed = {"node.id": str(node), "directory.id": new_uuid()}
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    write_properties(path, pairs | changed)


def new_uuid() -> str:
    """A random UUID in Kafka's form: 22 characters of URL-safe base64."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # As an argument a leading dash would read as an option.
    return f"A{text[1:]}" if text.startswith("-") else text
