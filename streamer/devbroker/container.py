"""Apache Kafka in a container, where a Docker engine answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streamer.devbroker.engine import container_of, running
from streamer.devbroker.jars import KAFKA_VERSION, Progress
from streamer.devbroker.ports import ReservedPorts
from streamer.devbroker.ready import wait_until_listed
from streamer.devbroker.settings import SINGLE_NODE, as_environment, new_uuid

IMAGE = f"apache/kafka:{KAFKA_VERSION}"
"""The image that is started; docker-compose.yml uses the same one."""

_START_TIMEOUT = 60.0


@contextmanager
def kafka_container(progress: Progress | None = None) -> Iterator[str]:
    """A container of `IMAGE` for the length of the block; yields its bootstrap address as seen from here.

    Raises `BrokerError` when no engine answers within 2 s or the broker does not come up, `MissingPackageError`
    without testcontainers (extra `broker`).
    """
    container = container_of(IMAGE, "Kafka in a container", progress)
    # The broker has to be told its outside port before it starts, so the port is chosen here, not by Docker.
    ports = ReservedPorts(1)
    port = ports.numbers[0]
    ports.close()
    bootstrap = f"{container.get_container_host_ip()}:{port}"
    for key, value in container_environment(bootstrap).items():
        container.with_env(key, value)
    container.with_bind_ports(9092, port)
    with running(container, lambda: wait_until_listed(bootstrap, {1}, _START_TIMEOUT)):
        yield bootstrap


def container_environment(bootstrap: str) -> dict[str, str]:
    """Environment of a one-node container that clients reach as `bootstrap`.

    The image drops its defaults as soon as a `KAFKA_` variable is set, so all settings that it needs are here.
    """
    return {
        "CLUSTER_ID": new_uuid(),
        **as_environment(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": "1@localhost:9093",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "advertised.listeners": f"PLAINTEXT://{bootstrap}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                **SINGLE_NODE,
            }
        ),
    }
