"""The login of a service, given to the Faust app that is made of it. `tests/services/test_faust_login.py` logs in."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import faust
import pytest
from certificates import certificate_in
from cryptography.hazmat.primitives import serialization

import streamer.faust
from pipelines.errors import DefinitionError

SERVICE = """
name: orders
source:
  type: kafka
  topics: [orders]
  client: {client}
pipeline: {{steps: [{{"@type": FUNCTION, function: "builtins:dict"}}]}}
sink: {{type: kafka, topic: results{more}}}
dead_letter: {{type: kafka, topic: dead}}
"""
LOGIN = {"sasl.mechanism": "plain", "sasl.username": "u", "sasl.password": "correct horse"}


def service(folder: Path, more: str = "", **client: Any) -> Path:
    """A service file whose source says this about its client: `security__protocol` is `security.protocol`."""
    path = folder / "service.yaml"
    properties = {name.replace("__", "."): value for name, value in client.items()}
    path.write_text(SERVICE.format(client=json.dumps(properties), more=more))
    return path


def credentials(service: Any) -> Any:
    return streamer.faust.app(service).conf.broker_credentials


def test_without_security_settings_there_is_no_login(tmp_path: Path) -> None:
    assert credentials(service(tmp_path)) is None
    assert credentials(service(tmp_path, security__protocol="plaintext", **LOGIN)) is None


def test_a_password_is_given_in_the_mechanism_that_was_named(tmp_path: Path) -> None:
    found = credentials(service(tmp_path, security__protocol="sasl_plaintext", **LOGIN))
    assert isinstance(found, faust.SASLCredentials)
    assert (found.username, found.password, found.ssl_context) == ("u", "correct horse", None)
    assert (found.protocol.value, found.mechanism.value) == ("SASL_PLAINTEXT", "PLAIN")


def test_certificates_are_verified_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    found = credentials(service(tmp_path, security__protocol="SASL_SSL", **LOGIN))
    assert found.protocol.value == "SASL_SSL"
    assert (found.ssl_context.verify_mode, found.ssl_context.check_hostname) == (ssl.CERT_REQUIRED, True)
    lax = {"ssl.endpoint.identification.algorithm": "none"}
    found = credentials(service(tmp_path, security__protocol="SSL", **lax))
    assert (found.context.verify_mode, found.context.check_hostname) == (ssl.CERT_REQUIRED, False)
    found = credentials(service(tmp_path, security__protocol="SSL", enable__ssl__certificate__verification=False))
    assert (found.context.verify_mode, found.context.check_hostname) == (ssl.CERT_NONE, False)


def test_only_the_authority_that_is_named_is_believed(tmp_path: Path) -> None:
    made = certificate_in(tmp_path)
    by_file = credentials(service(tmp_path, security__protocol="SSL", ssl__ca__location=str(made.certificate)))
    by_text = credentials(service(tmp_path, security__protocol="SSL", ssl__ca__pem=made.certificate.read_text()))
    assert [len(one.context.get_ca_certs()) for one in (by_file, by_text)] == [1, 1]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"security__protocol": "TLS"}, r"client.security.protocol: is TLS; it is one of PLAINTEXT, SSL"),
    (
        {"security__protocol": "SSL", "statistics__interval__ms": 1},
        r"client.statistics.interval.ms: .*streamer.faust.app",
    ),
    (
        {"security__protocol": "SASL_SSL", "sasl__mechanism": "OAUTHBEARER"},
        r"sasl.mechanism: is OAUTH.*OAuthCredentials",
    ),
    ({"security__protocol": "SASL_SSL"}, r"source.client: sasl.mechanisms is GSSAPI.*GSSAPICredentials"),
    ({**LOGIN, "security__protocol": "SASL_SSL", "sasl.password": ""}, r"client.sasl.password: is missing, and PLAIN"),
    ({"security__protocol": "SSL", "ssl__ca__location": "/no/ca.pem"}, r"client.ssl.ca.location: .*No such file"),
    ({"security__protocol": "SSL", "ssl__ca__pem": "none"}, r"client.ssl.ca.pem: holds no certificates"),
    (
        {"security__protocol": "SSL", "ssl__certificate__location": "/no/c.pem"},
        r"ssl.certificate.location: .*No such file",
    ),
]


@pytest.mark.parametrize(("client", "message"), REFUSED)
def test_login_settings_that_faust_cannot_honour_are_refused_with_file_and_line(
    tmp_path: Path, client: dict[str, Any], message: str
) -> None:
    with pytest.raises(
        DefinitionError, match=rf"service.yaml:6: source\..*{message.removeprefix('source.')}"
    ) as caught:
        credentials(service(tmp_path, **client))
    assert "correct horse" not in str(caught.value)


def test_a_locked_key_is_opened_by_its_password_and_none_is_asked_for_at_the_terminal(tmp_path: Path) -> None:
    made = certificate_in(tmp_path)
    locked = tmp_path / "locked.key"
    key = serialization.load_pem_private_key(made.key.read_bytes(), None)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked.write_bytes(key.private_bytes(pem, pkcs8, serialization.BestAvailableEncryption(b"sesame")))
    files = {"ssl.certificate.location": str(made.certificate), "ssl.key.location": str(locked)}
    assert credentials(service(tmp_path, security__protocol="SSL", ssl__key__password="sesame", **files)) is not None
    for wrong in ({}, {"ssl.key.password": "not-the-password"}):
        with pytest.raises(DefinitionError, match=r"ssl.certificate.location: cannot be used with its key"):
            credentials(service(tmp_path, security__protocol="SSL", **files, **wrong))


def test_a_sink_that_logs_in_otherwise_is_refused(tmp_path: Path) -> None:
    login = {"security__protocol": "SASL_PLAINTEXT", **LOGIN}
    with pytest.raises(DefinitionError, match=r"service.yaml:8: sink.client: .*logs in as the source says"):
        credentials(service(tmp_path, ", client: {sasl.username: other}", **login))
    same = json.dumps({"security.protocol": "SASL_PLAINTEXT", **LOGIN})
    assert credentials(service(tmp_path, f", client: {same}", **login)).username == "u"


def test_an_app_with_credentials_of_its_own_takes_none_from_the_file(tmp_path: Path) -> None:
    own = faust.SASLCredentials(username="own", password="p")
    silent = service(tmp_path)
    silent.write_text(silent.read_text().replace("  client: {}\n", ""))
    app = streamer.faust.app(silent, broker_credentials=own)
    assert app.conf.broker_credentials is own
    with pytest.raises(DefinitionError, match=r"service.yaml:6: source.client: .*broker_credentials"):
        streamer.faust.app(service(tmp_path, security__protocol="SSL"), broker_credentials=own)
    with pytest.raises(DefinitionError, match=r"service.yaml:6: source.client: .*broker_credentials"):
        streamer.faust.attach(faust.App("orders"), service(tmp_path, security__protocol="SSL"))


def test_a_service_made_in_python_logs_in_too(tmp_path: Path) -> None:
    made = streamer.load(service(tmp_path, security__protocol="SASL_PLAINTEXT", **LOGIN))
    assert credentials(made).password == "correct horse"
