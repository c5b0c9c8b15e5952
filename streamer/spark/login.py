"""`login`: how a service logs in to its brokers, in the words of Java's clients, which Spark uses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.definitions.document import KeyPath
from streamer.definition.connectors.clientlogin import ClientLogin, Engine, Sasl
from streamer.definition.connectors.written import Written

_PACKAGE: Final = "org.apache.kafka.common.security"
_MOST: Final = 1 << 20
"""Bytes of a file with certificates or a key at most."""


def login(connector: KafkaSourceConfig | KafkaSinkConfig, path: KeyPath, written: Written) -> dict[str, str]:
    """The properties of a Java client for the login that `client` of a connector says; `path` is the connector's place.

    Certificates and keys are in them as text, so that no process of Spark needs their files. Raises `DefinitionError`
    with file and line for a property that is none of the login, or that Java's clients do not have, and for files that
    cannot be read.
    """
    option = "read" if isinstance(connector, KafkaSourceConfig) else "write"
    engine = Engine(
        "on Spark",
        "Java's",
        f"give streamer.spark.start Java's own, {option}={{{{'kafka.{{name}}': ...}}}}",
        f"give streamer.spark.start {option}={{'kafka.sasl.mechanism': ...}}",
    )
    given = ClientLogin(connector, path, written, engine)
    if given.protocol == "PLAINTEXT":
        return {}
    made = {"security.protocol": given.protocol}
    if given.has_tls:
        made |= _of_tls(given)
    if (sasl := given.sasl()) is not None:
        made |= _of_sasl(sasl)
    return made


def _of_sasl(sasl: Sasl) -> dict[str, str]:
    module = f"{_PACKAGE}.plain.Plain" if sasl.mechanism == "PLAIN" else f"{_PACKAGE}.scram.Scram"
    user, password = _quoted(sasl.username), _quoted(sasl.password)
    return {
        "sasl.mechanism": sasl.mechanism,
        "sasl.jaas.config": f"{module}LoginModule required username={user} password={password};",
    }


def _of_tls(login: ClientLogin) -> dict[str, str]:
    given = login.properties
    if not login.checks_certificates:
        raise login.error(
            "enable.ssl.certificate.verification",
            "is false, and Java's clients always check certificates; leave it out, and name the authority in "
            "ssl.ca.location",
        )
    made: dict[str, str] = {}
    authorities = given.get("ssl.ca.pem")
    if "ssl.ca.location" in given:
        authorities = _read(login, "ssl.ca.location", "CERTIFICATE")
    if authorities is not None:
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    if not login.checks_names:
        made["ssl.endpoint.identification.algorithm"] = ""
    if "ssl.certificate.location" in given:
        if "ssl.key.location" not in given:
            raise login.error("ssl.key.location", "is missing, and ssl.certificate.location needs it")
        made |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _read(login, "ssl.certificate.location", "CERTIFICATE"),
            "ssl.keystore.key": _read(login, "ssl.key.location", "(ENCRYPTED )?PRIVATE KEY"),
        }
        if "ssl.key.password" in given:
            made["ssl.key.password"] = given["ssl.key.password"]
    return made


def _read(login: ClientLogin, name: str, kind: str) -> str:
    """The text of a PEM file that has a block of this kind, which Java's clients read."""
    file = Path(login.properties[name]).expanduser()
    try:
        with file.open("rb") as opened:
            text = opened.read(_MOST).decode("ascii", "replace")
    except OSError as error:
        raise login.error(name, f"cannot be read: {error}") from error
    if re.search(f"-----BEGIN {kind}-----", text) is None:
        hint = "; openssl pkcs8 -topk8 turns an older key into one" if kind.endswith("KEY") else ""
        what = "a key in PKCS #8" if kind.endswith("KEY") else "certificates"
        raise login.error(name, f"{file} does not hold {what} in PEM, which Java's clients need{hint}")
    return text


def _quoted(text: str) -> str:
    """A value of Java's login configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
