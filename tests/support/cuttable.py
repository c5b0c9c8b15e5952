"""A port of this machine whose connections can be cut, and refused for a while."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType

from streamer.devbroker.ports import ReservedPorts


class CuttablePort:
    """Leads to another port of this machine, from its `with` block's begin to its end, but for the time it is cut."""

    def __init__(self, target: int) -> None:
        self._proxy = Proxy()
        self._target = target

    @property
    def port(self) -> int:
        return self._proxy.port

    def __enter__(self) -> CuttablePort:
        self._proxy.open(lambda: self._target)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._proxy.end()

    def cut(self) -> None:
        self._proxy.close()

    def mend(self) -> None:
        self._proxy.listen()


class Proxy:
    """Passes connections on to a port of this machine; `close` cuts them and refuses new ones until `listen`."""

    def __init__(self) -> None:
        # While nothing listens there it would else become the source port of one that tries to connect to it.
        self._reserved = ReservedPorts(1)
        self.port = self._reserved.numbers[0]
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._upstream: Callable[[], int] = lambda: 0
        self._connections: list[socket.socket] = []
        self._lock = threading.Lock()

    def open(self, upstream: Callable[[], int]) -> None:
        self._upstream = upstream
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.open(self._upstream)

    def close(self) -> None:
        # Wakes the thread in accept(), which close() alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections, self._connections = self._connections, []
        for one in connections:
            _shut(one)

    def end(self) -> None:
        self.close()
        self._reserved.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream()))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._connections += [client, server]
            threading.Thread(target=_pass_on, args=(client, server), daemon=True).start()


def _pass_on(client: socket.socket, server: socket.socket) -> None:
    """Pass on both ways, and close both when both have ended.

    Closed earlier, with something to read left, a socket takes with it what the other side has not read.
    """
    back = threading.Thread(target=_copy, args=(server, client), daemon=True)
    back.start()
    _copy(client, server)
    back.join()
    _shut(client)
    _shut(server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes, and then that no more comes."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
