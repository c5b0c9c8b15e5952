"""`credentials`: how a service logs in to its brokers, in Faust's words."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

import faust
from faust.types.auth import CredentialsT
from pydantic import SecretStr

from connectors.config import ConnectorConfig
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.definitions.document import KeyPath
from pipelines.errors import DefinitionError
from streamer.definition.connectors.written import Written
from streamer.definition.service import Service

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_KNOWN: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
    }
)


def credentials(service: Service, written: Written) -> CredentialsT | None:
    """The `broker_credentials` for the app of a service, from `client` of the Kafka source; `None`: no login.

    Raises `DefinitionError` with file and line for a property of librdkafka that Faust does not have, files that cannot
    be read, and a sink that logs in otherwise than the source.
    """
    (source,) = service.sources
    assert isinstance(source, KafkaSourceConfig)
    login = _Login(_texts(source), (*written.connector("source"), "client"), written).credentials()
    for sink, path in written.sinks_of(service):
        assert isinstance(sink, KafkaSinkConfig)
        # That of a sink without brokers of its own is the source's.
        if sink.client and _texts(sink) != _texts(source):
            raise written.error(
                (*path, "client"), "a Faust app has one client, which logs in as the source says; leave it out"
            )
    return login


class _Login:
    """Properties of librdkafka for the login; `path` is their place in the file."""

    def __init__(self, properties: Mapping[str, str], path: KeyPath, written: Written) -> None:
        self._properties = properties
        self._path = path
        self._written = written

    def credentials(self) -> CredentialsT | None:
        for name in self._properties:
            if name not in _KNOWN:
                raise self._error(
                    name,
                    "is a property of librdkafka, and inside Faust the client is Faust's; leave it out, and give "
                    "streamer.faust.app Faust's own settings, such as broker_session_timeout",
                )
        protocol = self._properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise self._error("security.protocol", f"is {protocol}; it is one of {', '.join(_PROTOCOLS)}")
        context = self._context() if protocol.endswith("SSL") else None
        if protocol.startswith("SASL"):
            return self._sasl(context)
        return None if context is None else faust.SSLCredentials(context)

    def _sasl(self, context: ssl.SSLContext | None) -> CredentialsT:
        name = "sasl.mechanism" if "sasl.mechanism" in self._properties else "sasl.mechanisms"
        # The default is librdkafka's.
        mechanism = self._properties.get(name, "GSSAPI").upper()
        if mechanism not in _MECHANISMS:
            raise self._error(
                name,
                f"is {mechanism}, and inside Faust a service file can say {', '.join(_MECHANISMS)}; leave client out, "
                "and in a module of your own give streamer.faust.app "
                "broker_credentials=faust.OAuthCredentials(...) or faust.GSSAPICredentials(...)",
            )
        for lacking in ("sasl.username", "sasl.password"):
            if not self._properties.get(lacking):
                raise self._error(lacking, f"is missing, and {mechanism} needs it")
        return faust.SASLCredentials(
            username=self._properties["sasl.username"],
            password=self._properties["sasl.password"],
            mechanism=mechanism,
            ssl_context=context,
        )

    def _context(self) -> ssl.SSLContext:
        given = self._properties
        try:
            context = ssl.create_default_context(cafile=given.get("ssl.ca.location"), cadata=given.get("ssl.ca.pem"))
        except (OSError, ValueError) as error:
            name = "ssl.ca.location" if "ssl.ca.location" in given else "ssl.ca.pem"
            raise self._error(name, f"holds no certificates that can be read: {error}") from error
        if given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            context.check_hostname = False
        if given.get("enable.ssl.certificate.verification", "true").lower() in ("false", "f", "0"):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if (certificate := given.get("ssl.certificate.location")) is not None:
            password = given.get("ssl.key.password", "")
            try:
                # Without a password a locked key would be asked for at the terminal.
                context.load_cert_chain(certificate, given.get("ssl.key.location"), lambda: password)
            except (OSError, ValueError) as error:
                raise self._error(
                    "ssl.certificate.location", f"cannot be used with its key: {type(error).__name__}: {error}"
                ) from error
        return context

    def _error(self, name: str, message: str) -> DefinitionError:
        if name in self._properties:
            return self._written.error((*self._path, name), message)
        return self._written.error(self._path, f"{name} {message}")


def _texts(config: ConnectorConfig) -> dict[str, str]:
    """Its client's properties as texts."""
    assert isinstance(config, KafkaSourceConfig | KafkaSinkConfig)
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in config.client.items()
    }
