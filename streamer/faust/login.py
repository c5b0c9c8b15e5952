"""`credentials`: how a service logs in to its brokers, in Faust's words."""

from __future__ import annotations

import ssl
from typing import Final

import faust
from faust.types.auth import CredentialsT

from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from streamer.definition.connectors.clientlogin import ClientLogin, Engine, client_texts
from streamer.definition.connectors.written import Written
from streamer.definition.service import Service

_FAUST: Final = Engine(
    "inside Faust",
    "Faust's",
    "give streamer.faust.app Faust's own settings, such as broker_session_timeout",
    "in a module of your own give streamer.faust.app broker_credentials=faust.OAuthCredentials(...) or "
    "faust.GSSAPICredentials(...)",
)


def credentials(service: Service, written: Written) -> CredentialsT | None:
    """The `broker_credentials` for the app of a service, from `client` of the Kafka source; `None`: no login.

    Raises `DefinitionError` with file and line for a property of librdkafka that Faust does not have, files that cannot
    be read, and a sink that logs in otherwise than the source.
    """
    (source,) = service.sources
    assert isinstance(source, KafkaSourceConfig)
    login = ClientLogin(source, written.connector("source"), written, _FAUST)
    context = _context(login) if login.has_tls else None
    sasl = login.sasl()
    for sink, path in written.sinks_of(service):
        assert isinstance(sink, KafkaSinkConfig)
        # That of a sink without brokers of its own is the source's.
        if sink.client and client_texts(sink) != login.properties:
            raise written.error(
                (*path, "client"), "a Faust app has one client, which logs in as the source says; leave it out"
            )
    if sasl is not None:
        return faust.SASLCredentials(**sasl._asdict(), ssl_context=context)
    return None if context is None else faust.SSLCredentials(context)


def _context(login: ClientLogin) -> ssl.SSLContext:
    given = login.properties
    try:
        context = ssl.create_default_context(cafile=given.get("ssl.ca.location"), cadata=given.get("ssl.ca.pem"))
    except (OSError, ValueError) as error:
        name = "ssl.ca.location" if "ssl.ca.location" in given else "ssl.ca.pem"
        raise login.error(name, f"holds no certificates that can be read: {error}") from error
    context.check_hostname = login.checks_names and login.checks_certificates
    if not login.checks_certificates:
        context.verify_mode = ssl.CERT_NONE
    if (certificate := given.get("ssl.certificate.location")) is not None:
        password = given.get("ssl.key.password", "")
        try:
            # Without a password a locked key would be asked for at the terminal.
            context.load_cert_chain(certificate, given.get("ssl.key.location"), lambda: password)
        except (OSError, ValueError) as error:
            raise login.error(
                "ssl.certificate.location", f"cannot be used with its key: {type(error).__name__}: {error}"
            ) from error
    return context
