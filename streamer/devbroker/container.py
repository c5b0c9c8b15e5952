"""Apache Kafka in a container, where a Docker engine answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.errors import MissingPackageError
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.jars import KAFKA_VERSION, Progress
from streamer.devbroker.ports import ReservedPorts
from streamer.devbroker.ready import wait_until_listed
from streamer.devbroker.settings import SINGLE_NODE, as_environment, new_uuid

IMAGE = f"apache/kafka:{KAFKA_VERSION}"
"""The image that is started; docker-compose.yml uses the same one."""

_ENGINE_TIMEOUT = 2
_START_TIMEOUT = 60.0


@contextmanager
def kafka_container(progress: Progress | None = None) -> Iterator[str]:
    """A container of `IMAGE` for the length of the block; yields its bootstrap address as seen from here.

    Raises `BrokerError` when no engine answers within 2 s or the broker does not come up, `MissingPackageError`
    without testcontainers (extra `broker`).
    """
    try:
        import docker
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise MissingPackageError(error.name or "testcontainers", "broker", "Kafka in a container") from error
    try:
        engine = docker.from_env(timeout=_ENGINE_TIMEOUT)
        engine.ping()
        engine.close()
    except Exception as error:
        raise BrokerError(f"the Docker engine does not answer ({_first_line(error)})") from error
    if progress is not None:
        progress(f"starting {IMAGE} in a container (the first time its image is pulled)")
    # The broker has to be told its outside port before it starts, so the port is chosen here, not by Docker.
    ports = ReservedPorts(1)
    port = ports.numbers[0]
    ports.close()
    container = DockerContainer(IMAGE)
    bootstrap = f"{container.get_container_host_ip()}:{port}"
    for key, value in container_environment(bootstrap).items():
        container.with_env(key, value)
    container.with_bind_ports(9092, port)
    try:
        try:
            container.start()
            wait_until_listed(bootstrap, {1}, _START_TIMEOUT)
        except Exception as error:
            raise BrokerError(f"{IMAGE} did not start ({_first_line(error)})") from error
        yield bootstrap
    finally:
        container.stop()


def container_environment(bootstrap: str) -> dict[str, str]:
    """Environment of a one-node container that clients reach as `bootstrap`.

    The image has defaults of its own only while no `KAFKA_` variable is set, so all that it needs is here.
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


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
