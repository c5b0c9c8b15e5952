"""The properties of librdkafka that a service file sets under `client`: which it may set, and what they name.

Some run code, read files or log in as the machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from connectors.kafka.client.harmless import HARMLESS
from pipelines.harmless import Harmless

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
"""The property that bounds the messages that a producer holds, in kilobytes."""
QUEUE_SIZE: Final = 64 * 1024
"""Its default here."""

_SECURITY = ("security.", "sasl.", "ssl.", "https.", "oauth_cb", "enable.sasl.", "enable.ssl.")

_CONNECTION = ("socket.", "broker.", "client.dns.", "reconnect.", "connections.", "api.version.")


def is_security(name: str) -> bool:
    """Whether this property is about the login to the brokers."""
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
    more = (name for name in _IN_COMMAND if name in client and not _HARMLESS.fullmatch(text_of(client[name])))
    return tuple(f"client.{name}" for name in (*(name for name in CODE if name in client), *more))


def functions_in(client: Mapping[str, object]) -> tuple[str, ...]:
    """The functions that properties name, as `module:function`."""
    return (text_of(client["oauth_cb"]),) if "oauth_cb" in client else ()


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
    return {f"client.{name}": Path(text_of(client[name])) for name in client if name in _FILES}


def identities_in(client: Mapping[str, object]) -> tuple[str, ...]:
    """The keys of properties by which librdkafka logs in as the machine that it runs on, as a service file has them."""
    names = [_IDENTITY] if text_of(client.get(_IDENTITY, "none")) != "none" else []
    mechanism = next((name for name in ("sasl.mechanisms", "sasl.mechanism") if name in client), None)
    # librdkafka's own default is GSSAPI. Without a keytab it takes the tickets of whoever runs it.
    if (
        text_of(client.get("security.protocol", "")).upper().startswith("SASL")
        and text_of("GSSAPI" if mechanism is None else client[mechanism]).upper() == "GSSAPI"
        and "sasl.kerberos.keytab" not in client
    ):
        names.append(mechanism or "security.protocol")
    return tuple(f"client.{name}" for name in names)


def refuse(client: Mapping[str, object], ours: Mapping[str, str]) -> None:
    """Raise `ValueError` for the first property that the service itself sets."""
    for name in client:
        if name in ours:
            raise ValueError(f"{name} cannot be set here: {ours[name]}")


def queue_room(client: Mapping[str, object]) -> int:
    """Bytes of messages that a producer with these properties holds at most."""
    return int(str(client.get(QUEUE, QUEUE_SIZE))) * 1024


def text_of(value: object) -> str:
    """The value of a property as a text, with a secret's real value."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
