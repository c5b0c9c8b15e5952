"""When is a broker up? When it answers a client and lists the nodes that are waited for."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

from streamer.devbroker.errors import BrokerError


def wait_until_listed(bootstrap: str, nodes: set[int], timeout: float, check: Callable[[], None] | None = None) -> None:
    """Return when `bootstrap` answers and its metadata lists `nodes`; `check` is called in between and may raise.

    Raises `BrokerError` after `timeout` seconds.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    deadline = time.monotonic() + timeout

    def pause() -> None:
        if check is not None:
            check()
        if time.monotonic() > deadline:
            raise BrokerError(f"no Kafka with the nodes {sorted(nodes)} answered on {bootstrap} within {timeout:g} s")
        time.sleep(0.05)

    # A bare connection first: librdkafka would write a line to stderr for each refused one.
    while not any(_accepts(address) for address in bootstrap.split(",")):
        pause()
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
    while True:
        with contextlib.suppress(KafkaException):
            if nodes <= set(client.list_topics(timeout=1.0).brokers):
                return
        pause()


def ask_for_coordinator(bootstrap: str) -> None:
    """Have the broker create its topic for group offsets now, which else costs the first group 1 to 3 s."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    # The question is the use: whether the coordinator has loaded in time to answer it does not matter.
    with contextlib.suppress(KafkaException):
        client.describe_consumer_groups(["none"], request_timeout=2.0)["none"].result()


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True
