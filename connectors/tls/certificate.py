"""The server's side of TLS: a certificate from files, or a self-signed one."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from pathlib import Path

from pipelines.errors import ConnectorError, MissingPackageError

_VALID = datetime.timedelta(days=365)


def server_context(
    cert: Path | None,
    key: Path | None,
    password: str | None,
    client_ca: Path | None,
    host: str,
    pem: bytes | None = None,
) -> ssl.SSLContext:
    """The context for accepting connections: with the certificate in `cert`, or without it a self-signed one for
    `host`: `pem`, or one that is made.

    `client_ca`: the authorities whose certificates clients have to show. Raises `ConnectorError` for files that cannot
    be used, `MissingPackageError` where a certificate has to be made and cryptography is not installed (extra `tls`).
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        if cert is not None:
            # A function, as openssl would ask at the terminal for a password that is missing.
            context.load_cert_chain(cert, key, lambda: password or "")
            return context
    except (OSError, ValueError) as error:
        named = ", ".join(f"{name} {path}" for name, path in (("cert", cert), ("key", key), ("ca", client_ca)) if path)
        reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else error
        raise ConnectorError(f"tls: {reason}; check {named}") from None
    with tempfile.TemporaryDirectory(prefix="streamer-tls-") as folder:
        made = Path(folder) / "self-signed.pem"
        made.touch(mode=0o600)
        made.write_bytes(pem or self_signed(host))
        context.load_cert_chain(made)
    return context


def self_signed(host: str) -> bytes:
    """A new private key and a certificate for `host`, localhost and 127.0.0.1 that it signed itself, PEM.

    Clients that check certificates have to be given it, so it is for tests and trusted networks. Raises
    `MissingPackageError` without cryptography.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise MissingPackageError(
            "cryptography", "tls", "A self-signed certificate (or name one as tls.cert)"
        ) from error
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    try:
        names.append(x509.IPAddress(ipaddress.ip_address(host)))
    except ValueError:
        names.append(x509.DNSName(host))
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(list(dict.fromkeys(names))), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
