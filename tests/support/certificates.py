"""Certificates for brokers and servers that a test starts."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from connectors.tls.certificate import self_signed

_END_OF_KEY = b"-----END PRIVATE KEY-----\n"


class Certificate(NamedTuple):
    """Files of a certificate for localhost that signed itself: clients are given `certificate` as their authority."""

    certificate: Path
    key: Path


def server_context(made: Certificate, *, clients: Certificate | None = None) -> ssl.SSLContext:
    """What a server with this certificate encrypts with; `clients`: the certificate that every client has to show."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.certificate, made.key)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients.certificate)
    return context


def certificate_in(folder: Path) -> Certificate:
    """A new one, in this folder."""
    key, end, rest = self_signed("localhost").partition(_END_OF_KEY)
    made = Certificate(folder / "server.pem", folder / "server.key")
    made.certificate.write_bytes(rest)
    made.key.write_bytes(key + end)
    return made
