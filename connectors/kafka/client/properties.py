"""Converts our fields to librdkafka's properties, and checks which of those a service file may set itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from connectors.kafka.client.clientlog import client_logger
from connectors.kafka.client.harmless import HARMLESS
from connectors.kafka.client.internaltopics import left_out
from connectors.kafka.client.mismatch import Mismatch
from connectors.secrets import Scrubber
from connectors.tokens import token_function
from pipelines.errors import MissingPackageError
from pipelines.harmless import Harmless

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

    from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig

_CALLBACKS = dict.fromkeys(
    ("error_cb", "stats_cb", "throttle_cb", "on_commit", "on_delivery", "dr_cb", "logger", "log_cb", "rebalance_cb"),
    "it is ours: errors and losses are reported by the service",
)
_CONFIRMED = "positions are acknowledged by the service, once the results of the records are confirmed"

OF_SOURCES: Mapping[str, str] = {
    **_CALLBACKS,
    "bootstrap.servers": "use the field bootstrap",
    "metadata.broker.list": "use the field bootstrap",
    "group.id": "use the field group",
    "group.instance.id": "use the field instance",
    "group.protocol": "use the field assignor (consumer is the new protocol)",
    "group.remote.assignor": "use the field assignor (consumer lets the brokers choose)",
    "partition.assignment.strategy": "use the field assignor",
    "auto.offset.reset": "use the fields start and out_of_range",
    "enable.auto.commit": _CONFIRMED,
    "auto.commit.enable": _CONFIRMED,
    "auto.commit.interval.ms": _CONFIRMED,
    "enable.auto.offset.store": _CONFIRMED,
    "enable.partition.eof": "the lag is found by it; a service goes on where a topic ends",
    "offset.store.method": _CONFIRMED,
    "offset.store.path": _CONFIRMED,
}
"""Properties that a source's `client` may not set, and what to do instead."""

_TIMEOUT = "use the field timeout"
_LINGER = "use the field linger"
_COMPRESSION = "use the field compression"

OF_SINKS: Mapping[str, str] = {
    **_CALLBACKS,
    "bootstrap.servers": "use the field bootstrap",
    "metadata.broker.list": "use the field bootstrap",
    "compression.type": _COMPRESSION,
    "compression.codec": _COMPRESSION,
    "linger.ms": _LINGER,
    "queue.buffering.max.ms": _LINGER,
    "message.timeout.ms": _TIMEOUT,
    "delivery.timeout.ms": _TIMEOUT,
    "message.max.bytes": "use the field max_message",
    "partitioner": "use the field partitioner",
    "transactional.id": "use `delivery: exactly_once` of the service",
    "delivery.report.only.error": "losses are found by it: without it nothing could be confirmed",
}
"""Properties that a sink's `client` may not set, and what to do instead."""

QUEUE: Final = "queue.buffering.max.kbytes"
"""The property that bounds the messages that a producer holds, and its default."""
_QUEUE_SIZE: Final = 64 * 1024

_BATCH_SIZE: Final = 1_000_000
"""librdkafka's default of `batch.size`."""

_LINGER_UNDER_LOAD = 0.02

_SECURITY = ("security.", "sasl.", "ssl.", "https.", "oauth_cb", "enable.sasl.", "enable.ssl.")

_CONNECTION = ("socket.", "broker.", "client.dns.", "reconnect.", "connections.", "api.version.")


def is_security(name: str) -> bool:
    """Whether this property says how to log in to the brokers, rather than what to do there."""
    return name.startswith(_SECURITY)


def is_connection(name: str) -> bool:
    """Whether this property says how to reach the brokers, for any client."""
    return is_security(name) or name.startswith(_CONNECTION)


CODE: Final = ("oauth_cb", "plugin.library.paths", "ssl.engine.location", "ssl.providers", "sasl.kerberos.kinit.cmd")
"""Properties that name a function, a library or a command to run."""
_IN_COMMAND: Final = ("sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.keytab")
"""Properties that librdkafka inserts into the command of `sasl.kerberos.kinit.cmd`, which a shell runs."""
_HARMLESS: Final = re.compile(r"[\w@./:+-]*", re.ASCII)
_FILES: Final = frozenset(
    {
        "sasl.kerberos.keytab",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.keystore.location",
    }
)
"""Files with keys, assertions and passwords."""
_PUBLIC: Final = frozenset({"ssl.ca.location", "https.ca.location", "ssl.crl.location"})
"""Files without secrets: trusted and revoked certificates."""
_IDENTITY: Final = "sasl.oauthbearer.metadata.authentication.type"


def code_in(client: Mapping[str, object]) -> tuple[str, ...]:
    """The keys of properties that run something, as a service file has them: `client.oauth_cb`."""
    more = (name for name in _IN_COMMAND if name in client and not _HARMLESS.fullmatch(_text(client[name])))
    return tuple(f"client.{name}" for name in (*(name for name in CODE if name in client), *more))


def functions_in(client: Mapping[str, object]) -> tuple[str, ...]:
    """The functions that properties name, as `module:function`."""
    return (_text(client["oauth_cb"]),) if "oauth_cb" in client else ()


FREE: Final = Harmless(
    HARMLESS
    | _PUBLIC
    # Judged by themselves: files have to be listed, the rest runs code, or logs in as the machine.
    | {*CODE, *_IN_COMMAND, *_FILES, _IDENTITY},
    "others of librdkafka may run code, read files, or log in as this machine",
    {
        name: frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"})
        for name in ("sasl.mechanism", "sasl.mechanisms")
    },
)
"""The properties that any service file may set."""


def files_in(client: Mapping[str, object]) -> dict[str, Path]:
    """The files that librdkafka reads as keys, assertions or passwords, by their keys in a service file:
    `client.ssl.key.location`."""
    return {f"client.{name}": Path(_text(client[name])) for name in client if name in _FILES}


def identities_in(client: Mapping[str, object]) -> tuple[str, ...]:
    """The keys of properties by which librdkafka logs in as the machine that it runs on, as a service file has them."""
    found = [_IDENTITY] if _text(client.get(_IDENTITY, "none")) != "none" else []
    mechanism = next((name for name in ("sasl.mechanisms", "sasl.mechanism") if name in client), None)
    # librdkafka's own default is GSSAPI. Without a keytab it takes the tickets of whoever runs it.
    if (
        _text(client.get("security.protocol", "")).upper().startswith("SASL")
        and _text("GSSAPI" if mechanism is None else client[mechanism]).upper() == "GSSAPI"
        and "sasl.kerberos.keytab" not in client
    ):
        found.append(mechanism or "security.protocol")
    return tuple(f"client.{name}" for name in found)


def refuse(client: Mapping[str, object], ours: Mapping[str, str]) -> None:
    """Raise `ValueError` for the first property that the service itself sets."""
    for name in client:
        if name in ours:
            raise ValueError(f"{name} cannot be set here: {ours[name]}")


def queue_room(client: Mapping[str, object]) -> int:
    """Bytes of messages that a producer with these properties holds at most."""
    return int(str(client.get(QUEUE, _QUEUE_SIZE))) * 1024


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
        "topic.blacklist": left_out(config.topics, _text(config.client.get("topic.blacklist", ""))),
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
        QUEUE: _QUEUE_SIZE,
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
    found = sink_properties(config, callbacks)
    batch_size = int(str(found.get("batch.size", _BATCH_SIZE)))
    return {
        # A transaction waits so long while the brokers still write the end of the last one; the default is 100 ms.
        "retry.backoff.ms": 10,
        **found,
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

    def told(error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            mismatch.look(lambda text: tell(KafkaError(KafkaError._SSL, text)))
        tell(error)

    return {**callbacks, "error_cb": told}


def _passed_through(config: KafkaSourceConfig | KafkaSinkConfig) -> dict[str, Any]:
    return {name: _plain(name, value) for name, value in config.client.items()}


def _text(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _plain(name: str, value: object) -> Any:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if name == "oauth_cb":
        return token_function("client.oauth_cb", str(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, int) else str(value)
