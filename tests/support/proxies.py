"""Proxies that pass on TCP connections: one that is asked by HTTP's CONNECT, and one of SOCKS 5."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from abc import abstractmethod

from listener import Listener


class Proxy(Listener):
    """Listens on 127.0.0.1, and passes on what comes to where each connection says. `url` is for `mqtt_proxy`."""

    scheme: str

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []
        """Host and port of each connection so far."""
        self.url = f"{self.scheme}://{self.host}:{self.port}"

    @abstractmethod
    def wanted(self, client: socket.socket) -> tuple[str, int]:
        """Hear where this client wants to go."""

    @abstractmethod
    def agree(self, client: socket.socket) -> None:
        """Tell it that it is there."""

    def _came(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            place = self.wanted(client)
            self.asked.append(place)
            server = socket.create_connection(place)
            self.agree(client)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


class HttpProxy(Proxy):
    """https://www.rfc-editor.org/rfc/rfc9110#section-9.3.6"""

    scheme = "http"

    def wanted(self, client: socket.socket) -> tuple[str, int]:
        request = b""
        while b"\r\n\r\n" not in request:
            request += client.recv(1000)
        host, port = request.split()[1].decode().split(":")
        return host, int(port)

    def agree(self, client: socket.socket) -> None:
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")


class SocksProxy(Proxy):
    """SOCKS 5 without a login, for names and IPv4 addresses: https://www.rfc-editor.org/rfc/rfc1928"""

    scheme = "socks"

    def wanted(self, client: socket.socket) -> tuple[str, int]:
        version, methods = _exactly(client, 2)
        assert version == 5
        assert 0 in _exactly(client, methods), "the client wants to log in"
        client.sendall(b"\x05\x00")
        version, command, _, kind = _exactly(client, 4)
        assert (version, command) == (5, 1), "the client wants no connection"
        assert kind in (1, 3)
        host = socket.inet_ntoa(_exactly(client, 4)) if kind == 1 else _exactly(client, _exactly(client, 1)[0]).decode()
        (port,) = struct.unpack(">H", _exactly(client, 2))
        return host, port

    def agree(self, client: socket.socket) -> None:
        client.sendall(b"\x05\x00\x00\x01" + bytes(6))


def _exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = client.recv(count - len(data))
        if not more:
            raise ConnectionError("the client closed the connection")
        data += more
    return data
