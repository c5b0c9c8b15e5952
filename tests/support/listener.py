"""A server of tests: it listens on a free port, and can cut its connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Listener(ABC):
    """Listens on 127.0.0.1 within a `with` block."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self._listening = socket.create_server((self.host, 0), backlog=64)
        self.port = int(self._listening.getsockname()[1])
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        """The sockets that `cut` ends."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # It wakes `accept`, which closing alone does not.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """End all connections now."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    @abstractmethod
    def _came(self, client: socket.socket) -> None:
        """Serve this connection, without holding up the next."""

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._came(client)
