"""`BoundedProtocol`: uvicorn's HTTP/1.1 connection with limits of number, time and size, for clients that are slow or
hostile."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from connectors.http.endpoint.request import Answer

PATIENCE: Final = 10.0
"""Seconds that the head of a request may take, from the connection or its first byte on."""
LONGEST_HEAD: Final = 64 << 10
"""The most bytes of a request's first line and headers."""
CONNECTION: Final = "streamer.connection"
"""The key under which the scope of a request holds its `BoundedProtocol`."""


def bounded(connections: int) -> type[asyncio.Protocol]:
    """The class of connections of a server that has at most this number of them: one more is closed at once."""

    class Bounded(BoundedProtocol):
        most = connections

    return Bounded


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed when the head of a request is late, and answers 431 if it is too long.

    `awaited` is the future of the request that is answered next; it is cancelled when the client has gone.
    """

    most = 1000

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.awaited: asyncio.Future[Any] | None = None
        self._head = 0
        self._in_head = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
            return
        self._timer = self.loop.call_later(PATIENCE, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        if self.awaited is not None:
            self.awaited.cancel()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > LONGEST_HEAD:
            self._refuse(431, f"the head of the request is longer than {LONGEST_HEAD} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        if self._timer is None:
            self._head, self._in_head = 0, True
            self._timer = self.loop.call_later(PATIENCE, self._late)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP."""
        self._refuse(400, "the request is no HTTP/1.1")

    def _late(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, status: int, text: str) -> None:
        if self.transport.is_closing():
            return
        answer = Answer.refusal(status, text)
        lines = [
            b"HTTP/1.1 %d %s" % (status, b"Bad Request" if status == 400 else b"Request Header Fields Too Large"),
            *(name + b": " + value for name, value in answer.headers),
            b"content-length: %d" % len(answer.body),
            b"connection: close",
        ]
        self.transport.write(b"\r\n".join([*lines, b"", answer.body]))
        self.transport.close()
