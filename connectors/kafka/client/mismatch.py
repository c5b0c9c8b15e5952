"""Whether the brokers speak TLS where the client does not, or the other way round.

librdkafka reports both as brokers that are away, for which a service waits; but waiting does not mend it. So when all
brokers are reported away, this code connects to their ports to find out which protocol they speak.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

_EVERY: Final = 10.0
"""Seconds between two probes."""
_OPENING: Final = 5.0
"""Seconds from its creation in which a client may be opening."""
_WAIT: Final = 1.0
"""Seconds that a port may take for each step of its answer."""
_ASKED: Final = 3
"""The most brokers that are probed."""
_PORT: Final = 9092
_UNREACHABLE: Final = (OSError, ValueError, OverflowError)
"""Errors if nothing listens at the address, or the name or port is wrong."""
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A request that every broker answers without a login: length, ApiVersions, version 0, correlation id 1, no client
id."""


class Mismatch:
    """Finds out whether the brokers of one client speak TLS, every ten seconds at most."""

    def __init__(self, bootstrap: str, client: Mapping[str, object]) -> None:
        """`client`: properties of librdkafka by name."""
        self._brokers = [address_of(broker) for broker in bootstrap.split(",") if broker.strip()][:_ASKED]
        protocol = str(client.get("security.protocol", "plaintext")).lower()
        self._tls = protocol.endswith("ssl")
        self._login = protocol.startswith("sasl_")
        self._next = 0.0
        self._opened = time.monotonic()
        self._thread: threading.Thread | None = None

    def look(self, tell: Callable[[str], object]) -> None:
        """Call `tell` with the mismatch and the advice, if there is one.

        While the client is being opened `tell` is called before this returns, so that opening fails; later it is called
        by another thread, as frozen brokers may be slow to answer.
        """
        now = time.monotonic()
        if now < self._next or (self._thread is not None and self._thread.is_alive()):
            return
        self._next = now + _EVERY
        self._thread = threading.Thread(target=self._look, args=(tell,), name="kafka mismatch", daemon=True)
        self._thread.start()
        if now < self._opened + _OPENING:
            self._thread.join(_ASKED * _WAIT)

    def _look(self, tell: Callable[[str], object]) -> None:
        if (mismatch := self._ask()) is not None:
            tell(mismatch)

    def _ask(self) -> str | None:
        for host, port in self._brokers:
            if self._tls and _speaks_kafka(host, port):
                return (
                    f"{host}:{port} is a port without TLS, and the client speaks TLS there; set security.protocol to "
                    f"{'SASL_PLAINTEXT' if self._login else 'PLAINTEXT'}, or name the port that has TLS"
                )
            if not self._tls and _speaks_tls(host, port):
                return (
                    f"{host}:{port} is a port with TLS, and the client speaks none there; set security.protocol to "
                    f"{'SASL_SSL' if self._login else 'SSL (SASL_SSL if there is a login)'}, "
                    "or name the port that has no TLS"
                )
        return None


def address_of(text: str) -> tuple[str, int]:
    """Host and port of a broker as `bootstrap` has it: `host:port`, `[::1]:port`, `host`, `ssl://host:port`."""
    host, separator, port = text.strip().rpartition("://")[2].rpartition(":")
    # The last colon of a bare IPv6 address does not separate a port.
    if not separator or not port.isdecimal() or (host.count(":") and not host.endswith("]")):
        host, port = text.strip().rpartition("://")[2], str(_PORT)
    return host.strip("[]"), int(port)


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate is not checked, as nothing is sent.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=_WAIT) as raw,
            context.wrap_socket(raw, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        # It refuses us by a TLS alert, so it speaks TLS.
        return "ALERT" in (error.reason or "")
    except _UNREACHABLE:
        return False


def _speaks_kafka(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_WAIT) as raw:
            raw.sendall(_API_VERSIONS)
            answer = raw.recv(8, socket.MSG_WAITALL)
    except _UNREACHABLE:
        return False
    return len(answer) == 8 and answer[0] == 0 and answer[4:] == struct.pack(">i", 1)
