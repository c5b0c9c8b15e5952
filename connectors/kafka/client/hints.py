"""What to write instead: for a property that librdkafka does not know, and for an address that is no `host:port`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pipelines.errors import nearest

_UNKNOWN: Final = re.compile(r'No such configuration property: "([^"]*)"')
_OF_PAYLOADS: Final = frozenset({"key.deserializer", "value.deserializer", "key.serializer", "value.serializer"})
_OF_JAVA: Final[Mapping[str, str]] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "max.request.size": "message.max.bytes",
    "buffer.memory": "queue.buffering.max.kbytes",
    "ssl.truststore.location": "ssl.ca.location",
    "sasl.jaas.config": "sasl.username",
}
"""Properties of the Java client, and their equivalents in librdkafka."""
_COMMON: Final = (
    *("client.id", "message.max.bytes", "receive.message.max.bytes", "metadata.max.age.ms", "debug", "log_level"),
    *("topic.metadata.refresh.interval.ms", "socket.timeout.ms", "socket.keepalive.enable", "socket.nagle.disable"),
    *("broker.address.ttl", "broker.address.family", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "client.rack"),
    *(
        "connections.max.idle.ms",
        "statistics.interval.ms",
        "api.version.request",
        "security.protocol",
        "sasl.mechanism",
    ),
    *("sasl.mechanisms", "sasl.username", "sasl.password", "sasl.kerberos.service.name", "sasl.kerberos.principal"),
    *("sasl.kerberos.keytab", "sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.scope"),
    *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.token.endpoint.url", "ssl.ca.location", "ssl.ca.pem"),
    *("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.key.password"),
    *("ssl.cipher.suites", "ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"),
    *("session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "fetch.wait.max.ms", "fetch.min.bytes"),
    *("fetch.max.bytes", "fetch.message.max.bytes", "queued.min.messages", "queued.max.messages.kbytes"),
    *("isolation.level", "check.crcs", "allow.auto.create.topics", "fetch.error.backoff.ms"),
    *("linger.ms", "batch.size", "batch.num.messages", "queue.buffering.max.messages", "queue.buffering.max.kbytes"),
    *("delivery.timeout.ms", "request.timeout.ms", "message.timeout.ms", "compression.type", "compression.level"),
    *("retry.backoff.ms", "retry.backoff.max.ms", "sticky.partitioning.linger.ms", "transaction.timeout.ms", "retries"),
)
"""The properties that are set most, of more than a hundred."""
_SCHEMES: Final = frozenset({"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"})
_PORTS: Final = range(1, 65536)


def with_hints(*texts: str) -> str:
    """librdkafka's errors about properties, each with the property that was meant; else with where all are listed."""
    hints = [_hint(text) for text in texts]
    message = "; ".join(text + hint for text, hint in zip(texts, hints, strict=True))
    return message if all(hints) else f"{message}; see librdkafka's CONFIGURATION.md"


def _hint(text: str) -> str:
    match = _UNKNOWN.search(text)
    if match is None:
        return ""
    plain = match[1].strip().lower().replace("_", ".")
    if plain in _OF_PAYLOADS:
        return "; leave it out: codec says how payloads are read and written"
    meant = _OF_JAVA.get(plain)
    return nearest(plain, _COMMON) if meant is None else f'; did you mean "{meant}"?'


def checked_bootstrap(text: str) -> str:
    """The same text. Raises `ValueError` unless it is `host:port`, several separated by commas."""
    for broker in filter(None, (part.strip() for part in text.split(","))):
        scheme, separator, rest = broker.rpartition("://")
        if separator and scheme.lower() not in _SCHEMES:
            host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
            address = host if re.search(r":\d+$", host) else f"{host}:9092"
            raise ValueError(f"brokers are host:port, without {scheme}://: write {address}")
        port = re.search(r":(\d*)$", rest if rest.startswith("[") or rest.count(":") == 1 else "")
        if port is not None and (not port[1] or int(port[1]) not in _PORTS):
            raise ValueError(
                f'"{port[1]}" is not a port: they are numbers from 1 to 65535, and Kafka\'s is mostly 9092'
            )
    return text
