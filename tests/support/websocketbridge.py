"""A WebSocket in front of a TCP server: for brokers that were built without WebSockets."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import ssl
import threading
from io import BufferedReader

from listener import Listener

_BINARY, _CLOSE, _PING = 2, 8, 9
_SECRET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class WebSocketBridge(Listener):
    """Listens on a port of its own; what comes in WebSockets is passed on to `port` on this machine, and back.

    `path` is the path of the last handshake. `cut` ends all connections. `tls`: with what clients are encrypted (wss).
    """

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self._tls = tls
        self.path = ""
        self._target = port

    def _came(self, client: socket.socket) -> None:
        threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            self._bridge(client)
        client.close()

    def _bridge(self, client: socket.socket) -> None:
        with contextlib.suppress(EOFError):
            found = client.makefile("rb")
            self._shake_hands(client, found)
            with socket.create_connection((self.host, self._target)) as server:
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open |= {client, server}
                back = threading.Thread(target=_frames, args=(server, client), daemon=True)
                back.start()
                try:
                    _payloads(found, server)
                finally:
                    for one in (client, server):
                        with contextlib.suppress(OSError):
                            one.shutdown(socket.SHUT_RDWR)
                    back.join()
                    with self._lock:
                        self._open -= {client, server}

    def _shake_hands(self, client: socket.socket, found: BufferedReader) -> None:
        self.path = found.readline().split()[1].decode()
        key = b""
        while header := found.readline().strip():
            name, _, value = header.partition(b":")
            if name.lower() == b"sec-websocket-key":
                key = value.strip()
        accept = base64.b64encode(hashlib.sha1(key + _SECRET.encode()).digest()).decode()
        client.sendall(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
        )


def _payloads(found: BufferedReader, server: socket.socket) -> None:
    """Pass on what the client sends."""

    def exactly(count: int) -> bytes:
        data = found.read(count)
        if len(data) < count:
            raise EOFError
        return data

    while True:
        first, second = exactly(2)
        length = second & 0x7F
        if length == 126:
            length = int.from_bytes(exactly(2), "big")
        elif length == 127:
            length = int.from_bytes(exactly(8), "big")
        # paho does not mask its pongs.
        mask = exactly(4) if second & 0x80 else bytes(4)
        masked = exactly(length)
        if first & 15 == _CLOSE:
            return
        if first & 15 == _BINARY:
            repeated = (mask * (length // 4 + 1))[:length]
            number = int.from_bytes(masked, "big") ^ int.from_bytes(repeated, "big")
            server.sendall(number.to_bytes(length, "big"))


def _frames(server: socket.socket, client: socket.socket) -> None:
    """Pass on what the server sends, now and then with a ping between, as servers do."""
    number = 0
    with contextlib.suppress(OSError):
        while data := server.recv(60_000):
            size = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
            client.sendall(bytes([0x80 | _BINARY]) + size + data)
            number += 1
            if number % 10 == 0:
                client.sendall(bytes([0x80 | _PING, 0]))
        client.shutdown(socket.SHUT_RDWR)
