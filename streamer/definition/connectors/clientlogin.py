"""`ClientLogin`: how a Kafka connector logs in, for engines whose clients are not librdkafka's."""

from __future__ import annotations

from typing import Final, NamedTuple

from pydantic import SecretStr

from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.definitions.document import KeyPath
from pipelines.errors import DefinitionError
from streamer.definition.connectors.written import Written

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""Those of SASL that need a name and a password only."""
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
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


class Engine(NamedTuple):
    """What errors say of an engine."""

    where: str
    """As in `inside Faust the client is Faust's`."""
    whose: str
    """Whose the client is, as in `Faust's`."""
    other_properties: str
    """What to do for properties that are none of the login; `{name}` stands for the property."""
    other_mechanisms: str
    """What to do for a mechanism that is none of `MECHANISMS`."""


class Sasl(NamedTuple):
    """A login by name and password."""

    mechanism: str
    username: str
    password: str


class ClientLogin:
    """The properties of librdkafka for TLS and login that `client` of a connector has, as texts."""

    def __init__(
        self, connector: KafkaSourceConfig | KafkaSinkConfig, path: KeyPath, written: Written, engine: Engine
    ) -> None:
        """`path` is the connector's place.

        Raises `DefinitionError` with file and line for a property that is none of the login, and an unknown protocol.
        """
        self.properties = client_texts(connector)
        self._path = (*path, "client")
        self._written = written
        self._engine = engine
        for name in self.properties:
            if name not in _KNOWN:
                raise self.error(
                    name,
                    f"is a property of librdkafka, and {engine.where} the client is {engine.whose}; leave it out, and "
                    f"{engine.other_properties.format(name=name)}",
                )
        self.protocol = self.properties.get("security.protocol", "PLAINTEXT").upper()
        if self.protocol not in _PROTOCOLS:
            raise self.error("security.protocol", f"is {self.protocol}; it is one of {', '.join(_PROTOCOLS)}")

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def checks_certificates(self) -> bool:
        """Whether the brokers' certificates are checked."""
        return self.properties.get("enable.ssl.certificate.verification", "true").lower() not in ("false", "f", "0")

    @property
    def checks_names(self) -> bool:
        """Whether the names of brokers have to be those of their certificates."""
        return self.properties.get("ssl.endpoint.identification.algorithm", "https").lower() != "none"

    def sasl(self) -> Sasl | None:
        """Name and password; `None`: the protocol needs none.

        Raises `DefinitionError` for another mechanism, and for a missing name or password.
        """
        if not self.protocol.startswith("SASL"):
            return None
        name = "sasl.mechanism" if "sasl.mechanism" in self.properties else "sasl.mechanisms"
        # The default is librdkafka's.
        mechanism = self.properties.get(name, "GSSAPI").upper()
        if mechanism not in MECHANISMS:
            raise self.error(
                name,
                f"is {mechanism}, and {self._engine.where} a service file can say {', '.join(MECHANISMS)}; leave "
                f"client out, and {self._engine.other_mechanisms}",
            )
        for lacking in ("sasl.username", "sasl.password"):
            if not self.properties.get(lacking):
                raise self.error(lacking, f"is missing, and {mechanism} needs it")
        return Sasl(mechanism, self.properties["sasl.username"], self.properties["sasl.password"])

    def error(self, name: str, message: str) -> DefinitionError:
        """An error about this property, or, where it is not given, about `client`."""
        if name in self.properties:
            return self._written.error((*self._path, name), message)
        return self._written.error(self._path, f"{name} {message}")


def client_texts(connector: KafkaSourceConfig | KafkaSinkConfig) -> dict[str, str]:
    """The properties of `client` as texts."""
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in connector.client.items()
    }
