"""mosquitto in a container, where a Docker engine answers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamer.devbroker.engine import container_of, running
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.jars import Progress

IMAGE = "eclipse-mosquitto:2.0.21"
"""The image that is started; docker-compose.yml uses the same one."""

_START_TIMEOUT = 30.0
# The configuration in the image that lets every client in.
_CONFIGURATION = "/mosquitto-no-auth.conf"


@contextmanager
def mosquitto_container(progress: Progress | None = None) -> Iterator[tuple[str, int]]:
    """A container of `IMAGE` for the length of the block; yields its host and port as seen from here.

    Raises `BrokerError` when no engine answers within 2 s or mosquitto does not come up, `MissingPackageError` without
    testcontainers (extra `broker`).
    """
    container = container_of(IMAGE, "mosquitto in a container", progress)
    container.with_exposed_ports(1883).with_command(f"mosquitto -c {_CONFIGURATION}")
    with running(container, lambda: _wait_until_answered(*_address(container))):
        yield _address(container)


def _address(container: Any) -> tuple[str, int]:
    return container.get_container_host_ip(), int(container.get_exposed_port(1883))


def _wait_until_answered(host: str, port: int) -> None:
    # Docker's proxy accepts before the broker does: only an answer to a packet shows that the broker runs.
    deadline = time.monotonic() + _START_TIMEOUT
    while not answers(host, port):
        if time.monotonic() > deadline:
            raise BrokerError(f"no MQTT broker answered on {host}:{port} within {_START_TIMEOUT:g} s")
        time.sleep(0.05)


def answers(host: str, port: int, timeout: float = 2.0) -> bool:
    """Whether a broker answers a CONNECT packet (MQTT 3.1.1, no client id), with any return code."""
    connect = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x05\x00\x00"
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(connect)
            return connection.recv(1) == b"\x20"
    except OSError:
        return False
