"""The fields of the server's side of TLS in a service file."""

from __future__ import annotations

import ssl
from typing import Self

from pydantic import SecretStr, model_validator

from connectors.localpath import LocalPath
from connectors.tls.certificate import server_context
from pipelines.described import FrozenSettings


class ServerTls(FrozenSettings):
    """The server's side of TLS."""

    cert: LocalPath | None = None
    """File with the server's certificate, PEM; without it a self-signed one is made (extra `tls`)."""
    key: LocalPath | None = None
    """File with its private key, PEM; by default it is in `cert`, too."""
    key_password: SecretStr | None = None
    """The password of the private key."""
    ca: LocalPath | None = None
    """File with the certificates of the authorities, PEM, one of which has to have signed the certificate of each client; by default clients need none."""  # noqa: E501

    @model_validator(mode="after")
    def _key_with_certificate(self) -> Self:
        if self.cert is None and (self.key is not None or self.key_password is not None):
            raise ValueError("key is the private key of a certificate, and cert names none")
        return self

    def context(self, host: str, pem: bytes | None = None) -> ssl.SSLContext:
        """The context for accepting connections. `pem`: what `self_signed` made, for where no certificate is named.

        Raises `ConnectorError` for files that cannot be used, `MissingPackageError` if a certificate has to be made and
        cryptography is not installed.
        """
        password = None if self.key_password is None else self.key_password.get_secret_value()
        return server_context(self.cert, self.key, password, self.ca, host, pem)
