"""Create topics and wait until a client can use them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipelines.errors import MissingPackageError
from streamer.devbroker.errors import BrokerError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_MOCK = "mockCluster"
"""The beginning of the cluster id of librdkafka's mock cluster, which has no controller to create topics."""


def create_topics(
    bootstrap: str,
    topics: Mapping[str, int],
    replication: int = 1,
    config: Mapping[str, str] | None = None,
    *,
    timeout: float = 30.0,
) -> None:
    """Create each topic of `topics` (name to number of partitions) and wait until every partition is led.

    A topic that exists already stays as it is, also with another number of partitions. On librdkafka's mock cluster
    topics appear on first use, which waiting for them is; they have four partitions.
    `config` holds topic settings such as `{"max.message.bytes": "2000000"}`, `timeout` is in seconds.

    Raises `BrokerError` when the broker refuses a topic or does not show it in time, `MissingPackageError` without
    confluent-kafka.
    """
    try:
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise MissingPackageError("confluent-kafka", "kafka", "Creating topics") from error
    deadline = time.monotonic() + timeout
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    if not _cluster_id(admin, bootstrap, deadline).startswith(_MOCK):
        _create(admin, topics, replication, config or {}, timeout)
    for name in topics:
        while not _is_led(admin, name):
            if time.monotonic() > deadline:
                raise BrokerError(f"topic {name} was created but has no leader on {bootstrap} after {timeout:g} s")
            time.sleep(0.02)


def _cluster_id(admin: AdminClient, bootstrap: str, deadline: float) -> str:
    from confluent_kafka import KafkaException

    while True:
        try:
            metadata = admin.list_topics(timeout=max(0.1, deadline - time.monotonic()))
        except KafkaException as error:
            raise BrokerError(f"no Kafka answers on {bootstrap} ({error.args[0]}): is the broker running?") from error
        # A client that gets no controller, as from a broker that was away, waits for one and does not query again.
        if metadata.controller_id >= 0:
            return str(metadata.cluster_id)
        if time.monotonic() > deadline:
            raise BrokerError(f"the Kafka on {bootstrap} has no controller, which creates topics")
        time.sleep(0.02)


def _create(
    admin: AdminClient, topics: Mapping[str, int], replication: int, config: Mapping[str, str], timeout: float
) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

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


def _is_led(admin: AdminClient, name: str) -> bool:
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    try:
        topic = admin.list_topics(name, timeout=5.0).topics[name]
        partitions = topic.partitions.values()
        if topic.error is not None or not partitions or any(p.error or p.leader < 0 for p in partitions):
            return False
        # The leaders are queried, too: a broker is listed as leader a moment before it begins to lead.
        end = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(name, number): end for number in topic.partitions}
        for offset in admin.list_offsets(wanted, request_timeout=5.0).values():
            offset.result()
    except KafkaException:
        return False
    return True
