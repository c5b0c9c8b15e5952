"""`GrpcServer`: accepts gRPC connections in the thread of the listener's loop."""

from __future__ import annotations

from typing import Any, Final

import grpc
import grpc.aio

from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.repository.models import Models
from connectors.http.rpc.service import GrpcService
from connectors.tls.fields import ServerTls
from connectors.units import host_and_port
from pipelines.errors import ConnectorError, MissingPackageError

CALLS_OF_CONNECTION: Final = 1000
"""How many calls a connection may have at a time; clients wait with more."""
MOST_METADATA: Final = 16 << 10
"""Bytes of a request's metadata."""
OPTIONS: Final = (
    # Two servers at one address would share its requests, without either knowing.
    ("grpc.so_reuseport", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", MOST_METADATA),
    ("grpc.max_concurrent_streams", CALLS_OF_CONNECTION),
    # A client that has gone without a word is noticed; a client may ask as often that we are there, not more often.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.server_handshake_timeout_ms", 10_000),
    # A connection without calls is closed in the end; its client opens another when it needs one.
    ("grpc.max_connection_idle_ms", 900_000),
)


class GrpcServer:
    """A server for the models of a listener. To be made, started and stopped in the thread of its loop."""

    def __init__(self, config: HttpSourceConfig, models: Models, pem: bytes | None = None) -> None:
        """Binds the address. `pem`: the self-signed certificate with its key, PEM, where `tls` names none. Raises
        `ConnectorError` where the address cannot be had, or the certificate not be used.
        """
        assert config.grpc is not None
        host, port = host_and_port(config.grpc)
        self._service = GrpcService(config, models)
        self._server: Any = grpc.aio.server(
            options=(
                *OPTIONS,
                ("grpc.max_receive_message_length", config.max_body),
                ("grpc.max_allowed_incoming_connections", config.connections),
            ),
            maximum_concurrent_rpcs=config.connections + 2 * config.max_waiting,
        )
        self._server.add_generic_rpc_handlers((self._service,))
        try:
            if config.tls is None:
                bound = self._server.add_insecure_port(config.grpc)
            else:
                bound = self._server.add_secure_port(config.grpc, _credentials(config.tls, pem))
        except RuntimeError:
            raise ConnectorError(
                f'grpc "{config.grpc}": the address is in use or not of this machine; choose another address or port'
            ) from None
        self.address: tuple[str, int] = (host, int(bound) or port)
        """Host and port."""

    async def start(self) -> None:
        """Accept connections."""
        await self._server.start()

    async def stop(self, seconds: float) -> None:
        """Accept no more calls; returns once those that there are have ended, at most after this time."""
        self._service.stop()
        await self._server.stop(seconds)


def _credentials(tls: ServerTls, pem: bytes | None) -> Any:
    try:
        certificate = pem if tls.cert is None else tls.cert.read_bytes()
        key = certificate if tls.key is None else tls.key.read_bytes()
        authorities = None if tls.ca is None else tls.ca.read_bytes()
    except OSError as error:
        raise ConnectorError(f"tls: {error.strerror}; check {error.filename}") from None
    if certificate is None or key is None:
        raise ConnectorError("tls: there is no certificate; name one as tls.cert")
    if tls.key_password is not None:
        key = _decrypted(key, tls.key_password.get_secret_value())
    return grpc.ssl_server_credentials([(key, certificate)], authorities, require_client_auth=authorities is not None)


def _decrypted(key: bytes, password: str) -> bytes:
    """The private key without its password, which grpc cannot be given."""
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError as error:
        raise MissingPackageError(
            "cryptography", "tls", "A private key with a password for gRPC (or give one without)"
        ) from error
    try:
        private = serialization.load_pem_private_key(key, password.encode())
    except (TypeError, ValueError) as error:
        raise ConnectorError(f"tls: the private key cannot be read: {error}; check key and key_password") from None
    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
