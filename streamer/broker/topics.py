"""Create topics and wait until a client can use them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipelines.errors import MissingPackageError
from streamer.broker.errors import BrokerError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_MOCK = "mockCluster"
"""How the cluster id of librdkafka's mock cluster begins, which has no controller to create topics."""


def create_topics(
    bootstrap: str,
    topics: Mapping[str, int],
    replication: int = 1,
    config: Mapping[str, str] | None = None,
    *,
    client: Mapping[str, str | int | float | bool] | None = None,
    timeout: float = 30.0,
) -> None:
    """Create each topic of `topics` (name to number of partitions) and wait until every partition has a leader.

    A topic that exists already stays as it is, also with another number of partitions. On librdkafka's mock cluster,
    where topics appear on first use, asking for them is the use; they have four partitions.
    `config` holds topic settings such as `{"max.message.bytes": "2000000"}`, `client` librdkafka properties (TLS,
    SASL), `timeout` is in seconds.

    Raises `BrokerError` when the broker refuses a topic or does not show it in time, `MissingPackageError` without
    confluent-kafka.
    """
    try:
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise MissingPackageError("confluent-kafka", "kafka", "Creating topics") from error
    deadline = time.monotonic() + timeout
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **(client or {})})
    if not _cluster_id(admin, bootstrap, timeout).startswith(_MOCK):
        _create(admin, topics, replication, config or {}, timeout)
    for name in topics:
        while not _has_leaders(admin, name):
            if time.monotonic() > deadline:
                raise BrokerError(f"topic {name} was created but has no leader on {bootstrap} after {timeout:g} s")
            time.sleep(0.02)


def _cluster_id(admin: AdminClient, bootstrap: str, timeout: float) -> str:
    from confluent_kafka import KafkaException

    try:
        return str(admin.list_topics(timeout=timeout).cluster_id)
    except KafkaException as error:
        raise BrokerError(f"no Kafka answers on {bootstrap} ({error.args[0]}): is the broker running?") from error


def _create(
    admin: AdminClient, topics: Mapping[str, int], replication: int, config: Mapping[str, str], timeout: float
) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    wanted = [
        NewTopic(name, num_partitions=partitions, replication_factor=replication, config=dict(config))
        for name, partitions in topics.items()
    ]
    for name, outcome in admin.create_topics(wanted, operation_timeout=timeout, request_timeout=timeout).items():
        try:
            outcome.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise BrokerError(f"topic {name} could not be created: {error.args[0].str()}") from error


def _has_leaders(admin: AdminClient, name: str) -> bool:
    from confluent_kafka import KafkaException

    try:
        topic = admin.list_topics(name, timeout=5.0).topics[name]
    except KafkaException:
        return False
    partitions = topic.partitions.values()
    return topic.error is None and bool(partitions) and all(p.error is None and p.leader >= 0 for p in partitions)
