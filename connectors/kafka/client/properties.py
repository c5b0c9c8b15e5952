"""Converts the fields of Kafka connectors to librdkafka's properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from connectors.kafka.client.clientlog import client_logger
from connectors.kafka.client.internaltopics import left_out
from connectors.kafka.client.mismatch import Mismatch
from connectors.kafka.client.userproperties import QUEUE, QUEUE_SIZE, is_connection, queue_room, text_of
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.secrets import Scrubber
from connectors.tokens import token_function
from pipelines.errors import MissingPackageError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_BATCH_SIZE: Final = 1_000_000
"""librdkafka's default of `batch.size`."""

_LINGER_UNDER_LOAD = 0.02


def source_properties(config: KafkaSourceConfig, callbacks: Mapping[str, Callable[..., None]]) -> dict[str, Any]:
    """The properties for `confluent_kafka.Consumer`. Raises `ConnectorError` for an `oauth_cb` that cannot be
    loaded."""
    assert config.group is not None
    properties: dict[str, Any] = {
        "bootstrap.servers": config.brokers.address,
        "client.id": f"streamer-{config.label}",
        "group.id": config.group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error" if config.out_of_range == "stop" else config.out_of_range,
        "allow.auto.create.topics": False,
        # Markers, which are never delivered, may follow the last record: the lag is known by the client's position.
        "enable.partition.eof": True,
        # With the default of 1 s a backlog is drained at a quarter of the possible rate.
        "fetch.queue.backoff.ms": 5,
        "max.partition.fetch.bytes": min(config.max_fetch, 1024 * 1024),
        # The unpacked size of records fetched ahead stays below this, plus one fetch.
        "queued.max.messages.kbytes": 32 * 1024,
        "fetch.max.bytes": config.max_fetch,
        # librdkafka requires the first to be at most, and the second to be at least, fetch.max.bytes.
        "message.max.bytes": min(config.max_fetch, 1_000_000),
        "receive.message.max.bytes": max(config.max_fetch + 1024, 100_000_000),
        # A commit to a coordinator that hangs delays a revocation of partitions by so much, instead of a minute.
        "socket.timeout.ms": 20_000,
        **_of_assignor(config.assignor),
    }
    if config.instance is not None:
        properties["group.instance.id"] = config.instance
    return {
        **properties,
        **_passed_through(config),
        **_with_advice(config, callbacks),
        "topic.blacklist": left_out(config.topics, text_of(config.client.get("topic.blacklist", ""))),
        "logger": client_logger(config.label, scrubber(config)),
    }


def admin_properties(config: KafkaSourceConfig | KafkaSinkConfig) -> dict[str, Any]:
    """The properties for a `confluent_kafka.admin.AdminClient` that queries a connector's topics. Raises as the two
    others."""
    ours = {"bootstrap.servers": config.brokers.address, "client.id": f"streamer-{config.label}-admin"}
    theirs = {name: value for name, value in _passed_through(config).items() if is_connection(name)}
    # Errors of the brokers are in the log of the consumer, or producer.
    return {**ours, **theirs, "log_level": 0}


def sink_properties(config: KafkaSinkConfig, callbacks: Mapping[str, Callable[..., None]]) -> dict[str, Any]:
    """The properties for `confluent_kafka.Producer`. Raises `ConnectorError` for an `oauth_cb` that cannot be
    loaded."""
    properties: dict[str, Any] = {
        "bootstrap.servers": config.brokers.address,
        "client.id": f"streamer-{config.label}",
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": config.compression,
        # The sink itself pushes messages in a pause, by `linger`; without a pause they are sent in larger batches. A
        # shorter linger makes the client busy-wait for the answer to the last request.
        "linger.ms": max(config.linger, _LINGER_UNDER_LOAD) * 1000,
        "message.timeout.ms": 0 if (limit := config.message_timeout) is None else max(1, round(limit * 1000)),
        # A message that is larger than the queue would wait for ever.
        "message.max.bytes": min(config.max_message, queue_room(config.client)),
        "partitioner": config.partitioner,
        QUEUE: QUEUE_SIZE,
        # A missing topic is reported after this time, instead of half a minute.
        "topic.metadata.propagation.max.ms": 5000,
        "delivery.report.only.error": True,
    }
    return {
        **properties,
        **_passed_through(config),
        **_with_advice(config, callbacks),
        "logger": client_logger(config.label, scrubber(config)),
    }


def transactional_properties(
    config: KafkaSinkConfig,
    callbacks: Mapping[str, Callable[..., None]],
    identity: str,
    timeout: float,
    longest: int,
    batch: int | None,
) -> dict[str, Any]:
    """As `sink_properties`, for a producer that sends in transactions.

    `identity` is its `transactional.id`, `timeout` the seconds after which brokers abort a transaction, `longest` the
    bytes of the longest message of any sink, `batch` the bytes of the largest batch that every topic accepts (`None`:
    not known).
    """
    properties = sink_properties(config, callbacks)
    batch_size = int(str(properties.get("batch.size", _BATCH_SIZE)))
    return {
        # A transaction waits so long while the brokers still write the end of the last one; the default is 100 ms.
        "retry.backoff.ms": 10,
        **properties,
        "transactional.id": identity,
        "transaction.timeout.ms": max(1, round(timeout * 1000)),
        # librdkafka refuses a message timeout that is longer than that of the transaction.
        "message.timeout.ms": max(1, round(min(config.message_timeout or timeout, timeout) * 1000)),
        "message.max.bytes": min(longest, queue_room(config.client)),
        # Brokers refuse a batch that is larger, and the transaction with it.
        "batch.size": batch_size if batch is None else min(batch_size, batch),
    }


def scrubber(config: KafkaSourceConfig | KafkaSinkConfig) -> Scrubber:
    """Takes this client's secrets out of texts."""
    return Scrubber(config.client)


def require_client() -> None:
    """Raise `MissingPackageError` where confluent-kafka is not installed."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise MissingPackageError("confluent-kafka", "kafka", "A Kafka source or sink") from error


def _of_assignor(assignor: str) -> dict[str, str]:
    if assignor == "consumer":
        return {"group.protocol": "consumer"}
    return {"partition.assignment.strategy": assignor}


def _with_advice(
    config: KafkaSourceConfig | KafkaSinkConfig, callbacks: Mapping[str, Callable[..., None]]
) -> dict[str, Callable[..., None]]:
    """The callbacks, with an `error_cb` that also reports a mismatch of TLS: librdkafka only reports that all brokers
    are away."""
    from confluent_kafka import KafkaError

    tell = callbacks.get("error_cb")
    if tell is None:
        return dict(callbacks)
    mismatch = Mismatch(config.brokers.address, config.client)

    def with_advice(error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            mismatch.look(lambda text: tell(KafkaError(KafkaError._SSL, text)))
        tell(error)

    return {**callbacks, "error_cb": with_advice}


def _passed_through(config: KafkaSourceConfig | KafkaSinkConfig) -> dict[str, Any]:
    return {name: _plain(name, value) for name, value in config.client.items()}


def _plain(name: str, value: object) -> Any:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if name == "oauth_cb":
        return token_function("client.oauth_cb", str(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, int) else str(value)
