"""A real Kafka that also listens with TLS, and asks for passwords."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certificates import Certificate, certificate_in
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from streamer.devbroker.ports import HOST, ReservedPorts

USER, PASSWORD = "digits", "correct horse"
_PROTOCOLS = {"MUTUAL": "SSL", "SECRET": "SASL_SSL", "OPEN": "SASL_PLAINTEXT"}


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """`plain` takes everybody; `mutual` speaks TLS and asks for the client's certificate; `secret` speaks TLS and asks
    for the password of `USER`, by PLAIN or SCRAM; `open` asks for it without TLS. All are `host:port`."""

    plain: str
    mutual: str
    secret: str
    open: str
    certificate: Certificate
    """The broker's, and that of its clients."""


def secured_kafka(start_kafka: Any, folder: Path) -> SecuredKafka:
    """Start one by the fixture `start_kafka`; certificates are put into the folder."""
    made = certificate_in(folder)
    both, trusted = folder / "broker.pem", made.certificate
    both.write_bytes(made.key.read_bytes() + trusted.read_bytes())
    ports = ReservedPorts(5)
    plain, controller, mutual, secret, asking = ports.numbers
    listeners = {"PLAINTEXT": plain, "MUTUAL": mutual, "SECRET": secret, "OPEN": asking}
    # Held, but nobody listens there: the broker may take them.
    start_kafka(port=plain, **_properties(listeners, controller, both, trusted))
    ports.close()
    _let_in(f"{HOST}:{plain}")
    # The name in the certificate.
    return SecuredKafka(f"{HOST}:{plain}", f"localhost:{mutual}", f"localhost:{secret}", f"localhost:{asking}", made)


def _properties(listeners: dict[str, int], controller: int, both: Path, trusted: Path) -> dict[str, str]:
    mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    asked = {
        f"listener.name.{name}.{key}": value
        for name in ("secret", "open")
        for key, value in {
            "sasl.enabled.mechanisms": mechanisms,
            "plain.sasl.jaas.config": plain,
            "scram-sha-256.sasl.jaas.config": scram,
            "scram-sha-512.sasl.jaas.config": scram,
        }.items()
    }
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **_PROTOCOLS}
    return {
        "listeners": ",".join(
            f"{name}://{HOST}:{port}" for name, port in (listeners | {"CONTROLLER": controller}).items()
        ),
        "advertised.listeners": ",".join(
            f"{name}://{HOST if name == 'PLAINTEXT' else 'localhost'}:{port}" for name, port in listeners.items()
        ),
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
        "listener.name.mutual.ssl.client.auth": "required",
        **asked,
    }


def _let_in(bootstrap: str) -> None:
    """Tell the broker the user's password for SCRAM."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        entry = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([entry]).values():
            future.result(30)
