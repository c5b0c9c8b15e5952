"""`login`: how a service logs in to its brokers, in the words of Java's clients, which Spark uses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.definitions.document import KeyPath
from pipelines.errors import DefinitionError
from streamer.definition.connectors.written import Written

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PACKAGE: Final = "org.apache.kafka.common.security"
_MODULES: Final = {
    "PLAIN": f"{_PACKAGE}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_PACKAGE}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_PACKAGE}.scram.ScramLoginModule",
}
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
_MOST: Final = 1 << 20
"""Bytes of a file with certificates or a key at most."""


def login(connector: KafkaSourceConfig | KafkaSinkConfig, path: KeyPath, written: Written) -> dict[str, str]:
    """The properties of a Java client for the login that `client` of a connector says; `path` is the connector's place.

    Certificates and keys are in them as text, so that no process of Spark needs their files. Raises `DefinitionError`
    with file and line for a property that is none of the login, or that Java's clients do not have, and for files that
    cannot be read.
    """
    return _Login(connector, (*path, "client"), written).properties()


class _Login:
    def __init__(self, connector: KafkaSourceConfig | KafkaSinkConfig, path: KeyPath, written: Written) -> None:
        self._given = {
            name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            for name, value in connector.client.items()
        }
        self._option = "read" if isinstance(connector, KafkaSourceConfig) else "write"
        self._path = path
        self._written = written

    def properties(self) -> dict[str, str]:
        for name in self._given:
            if name not in _KNOWN:
                raise self._error(
                    name,
                    "is a property of librdkafka, and on Spark the client is Java's; leave it out, and give "
                    f"streamer.spark.start Java's own, {self._option}={{'kafka.{name}': ...}}",
                )
        protocol = self._given.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise self._error("security.protocol", f"is {protocol}; it is one of {', '.join(_PROTOCOLS)}")
        if protocol == "PLAINTEXT":
            return {}
        made = {"security.protocol": protocol}
        if protocol.endswith("SSL"):
            made |= self._of_tls()
        if protocol.startswith("SASL"):
            made |= self._of_sasl()
        return made

    def _of_sasl(self) -> dict[str, str]:
        name = "sasl.mechanism" if "sasl.mechanism" in self._given else "sasl.mechanisms"
        # The default is librdkafka's.
        mechanism = self._given.get(name, "GSSAPI").upper()
        if mechanism not in _MODULES:
            raise self._error(
                name,
                f"is {mechanism}, and on Spark a service file can say {', '.join(_MODULES)}; leave client out, and "
                f"give streamer.spark.start {self._option}={{'kafka.sasl.mechanism': ...}}",
            )
        for lacking in ("sasl.username", "sasl.password"):
            if not self._given.get(lacking):
                raise self._error(lacking, f"is missing, and {mechanism} needs it")
        user, password = (_quoted(self._given[f"sasl.{name}"]) for name in ("username", "password"))
        return {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{_MODULES[mechanism]} required username={user} password={password};",
        }

    def _of_tls(self) -> dict[str, str]:
        given = self._given
        if given.get("enable.ssl.certificate.verification", "true").lower() in ("false", "f", "0"):
            raise self._error(
                "enable.ssl.certificate.verification",
                "is false, and Java's clients always check certificates; leave it out, and name the authority in "
                "ssl.ca.location",
            )
        made: dict[str, str] = {}
        authorities = given.get("ssl.ca.pem")
        if "ssl.ca.location" in given:
            authorities = self._read("ssl.ca.location", "CERTIFICATE")
        if authorities is not None:
            made |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
        if given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
            made["ssl.endpoint.identification.algorithm"] = ""
        if "ssl.certificate.location" in given:
            if "ssl.key.location" not in given:
                raise self._error("ssl.key.location", "is missing, and ssl.certificate.location needs it")
            made |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": self._read("ssl.certificate.location", "CERTIFICATE"),
                "ssl.keystore.key": self._read("ssl.key.location", "(ENCRYPTED )?PRIVATE KEY"),
            }
            if "ssl.key.password" in given:
                made["ssl.key.password"] = given["ssl.key.password"]
        return made

    def _read(self, name: str, kind: str) -> str:
        """The text of a PEM file that has a block of this kind, which Java's clients read."""
        file = Path(self._given[name]).expanduser()
        try:
            with file.open("rb") as opened:
                text = opened.read(_MOST).decode("ascii", "replace")
        except OSError as error:
            raise self._error(name, f"cannot be read: {error}") from error
        if re.search(f"-----BEGIN {kind}-----", text) is None:
            hint = "; openssl pkcs8 -topk8 turns an older key into one" if kind.endswith("KEY") else ""
            what = "a key in PKCS #8" if kind.endswith("KEY") else "certificates"
            raise self._error(name, f"{file} does not hold {what} in PEM, which Java's clients need{hint}")
        return text

    def _error(self, name: str, message: str) -> DefinitionError:
        if name in self._given:
            return self._written.error((*self._path, name), message)
        return self._written.error(self._path, f"{name} {message}")


def _quoted(text: str) -> str:
    """A value of Java's login configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
