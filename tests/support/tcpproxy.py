"""A way through to a server that can be cut after any byte, or swallow everything, in both directions."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

from listener import Listener

Direction = Literal["to client", "to server"]


class TcpProxy(Listener):
    """Listens on a port of its own and passes on what comes, to `port` on this machine and back.

    `cut_after("to client", 17)`: the next connection ends when the client has got 17 bytes.
    """

    def __init__(self, port: int, *, keeps: bool = False) -> None:
        """`keeps`: all bytes that come are kept in `came`."""
        super().__init__()
        self.connections = 0
        """Connections so far."""
        self.passed: dict[Direction, int] = {"to client": 0, "to server": 0}
        """Bytes passed on so far, of all connections."""
        self.came: dict[Direction, bytearray] = {"to client": bytearray(), "to server": bytearray()}
        """Bytes that came, of all connections, those that were swallowed too."""
        self._keeps = keeps
        self._target = port
        self._limit: tuple[Direction, int] | None = None
        self._swallowed: frozenset[Direction] = frozenset()

    def cut_after(self, direction: Direction, count: int) -> None:
        """End the next connection when exactly so many bytes have gone in this direction."""
        with self._lock:
            self._limit = (direction, count)

    def swallow(self, swallows: bool = True, direction: Direction | None = None) -> None:
        """Pass nothing on any more, though connections stay open; or pass on what comes from now on.

        `direction`: in this one only.
        """
        both: tuple[Direction, ...] = ("to client", "to server")
        self._swallowed = frozenset(both if direction is None else (direction,)) if swallows else frozenset()

    def _came(self, client: socket.socket) -> None:
        self.connections += 1
        try:
            server = socket.create_connection((self.host, self._target))
        except OSError:
            client.close()
            return
        with self._lock:
            limit, self._limit = self._limit, None
            self._open |= {client, server}
        left = {"to client": None, "to server": None} | ({} if limit is None else {limit[0]: limit[1]})
        one = threading.Thread(target=self._pump, args=(client, server, "to server", left["to server"]), daemon=True)
        two = threading.Thread(target=self._pump, args=(server, client, "to client", left["to client"]), daemon=True)
        threading.Thread(target=self._follow, args=(client, server, one, two), daemon=True).start()

    def _follow(self, client: socket.socket, server: socket.socket, *pumps: threading.Thread) -> None:
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: Direction, left: int | None) -> None:
        with contextlib.suppress(OSError):
            while left != 0 and (data := source.recv(65_536 if left is None else min(left, 65_536))):
                if self._keeps:
                    self.came[direction] += data
                if direction in self._swallowed:
                    continue
                sink.sendall(data)
                self.passed[direction] += len(data)
                left = None if left is None else left - len(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
