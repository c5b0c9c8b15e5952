"""TCP ports on the loopback address that stay reserved for as long as a broker may need them."""

from __future__ import annotations

import socket
import sys

from streamer.devbroker.errors import BrokerError

HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a program could listen on this port now."""
    try:
        ReservedPorts(1, port, 1).close()
    except BrokerError:
        return False
    return True


class ReservedPorts:
    """`count` ports; the first ones from `first` upwards where that is given.

    On Linux the sockets that reserve them stay open, bound and not listening: a broker may still bind the ports (both
    sides set SO_REUSEADDR), but the kernel gives them to no other program. Without that the port of a killed broker may
    become the source port of the very client that tries to reconnect to it. Elsewhere the sockets are closed at once
    and the ports are only probably free.

    Raises `BrokerError` when a wanted port is taken.
    """

    def __init__(self, count: int, first: int | None = None, wanted: int = 0) -> None:
        self._sockets: list[socket.socket] = []
        self.numbers: list[int] = []
        try:
            for index in range(count):
                port = first + index if first is not None and index < wanted else 0
                self.numbers.append(self._reserve(port))
        except BaseException:
            self.close()
            raise
        if not sys.platform.startswith("linux"):
            self.close()

    def close(self) -> None:
        """Give the ports back."""
        for reserved in self._sockets:
            reserved.close()
        self._sockets.clear()

    def _reserve(self, port: int) -> int:
        reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._sockets.append(reserved)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reserved.bind((HOST, port))
        except OSError as error:
            raise BrokerError(
                f"port {port} on {HOST} is taken: stop the program that listens there or choose another port"
            ) from error
        return int(reserved.getsockname()[1])
