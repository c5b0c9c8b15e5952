"""`BoundedProtocol`: uvicorn's HTTP/1.1 connection with limits of number, time and size, for clients that are slow or
hostile."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from connectors.http.endpoint.parser import RequestParser
from connectors.http.endpoint.request import Answer

PATIENCE: Final = 10.0
"""Seconds that a TLS handshake may take; the head of a request, from the connection or its first byte on; and in which
a client has to read some of its answer."""
LONGEST_HEAD: Final = 64 << 10
"""The most bytes of a request's first line and headers, and of anything else in it that is no body."""
SLOWEST: Final = 16 << 10
"""The fewest bytes of an answer that a client has to read in that time."""
CONNECTION: Final = "streamer.connection"
"""The key under which the scope of a request holds its `BoundedProtocol`."""
COMPLETE: Final = "streamer.complete"
"""The key that the scope of a request has as soon as all of its body has arrived."""


def bounded(connections: int) -> type[BoundedProtocol]:
    """The class of connections of a server that has at most this number of them: one more is closed at once."""

    class Bounded(BoundedProtocol):
        most = connections

    return Bounded


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed when the head of a request is late, or an answer is not read, and that answers 431 if
    a head is too long.

    `awaited` is the future of the request that is answered next; it is cancelled when the client has gone.
    """

    most = 1000

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.parser: RequestParser = RequestParser(self)  # type: ignore[assignment]
        self.awaited: asyncio.Future[Any] | None = None
        self._idle = 0
        """Bytes that have arrived since the message began, or since the last of its body."""
        self._in_head = True
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
            return
        self._timer = self.loop.call_later(PATIENCE, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)
        if self.awaited is not None:
            self.awaited.cancel()

    def data_received(self, data: bytes) -> None:
        self._idle += len(data)
        super().data_received(data)
        if self._idle > LONGEST_HEAD and not self.transport.is_closing():
            self._refuse(431, f"the head of the request is longer than {LONGEST_HEAD} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        self._in_head = True
        if self._timer is None:
            self._idle = 0
            self._timer = self.loop.call_later(PATIENCE, self._late)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Behind a chunked body there may be more.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._idle = 0
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._idle = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.is_left:
            return
        self._idle = 0
        self.scope[COMPLETE] = True  # type: ignore[typeddict-unknown-key]
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._watch()

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: more waits to be read by the client than it should."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`: the client has read most of what waited."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was silent."""
        super().timeout_keep_alive_handler()
        self._watch()

    def _watch(self) -> None:
        """See that the client reads what waits for it, or end the connection."""
        waiting = self.transport.get_write_buffer_size()
        if waiting and self._unread is None:
            self._unread = self.loop.call_later(PATIENCE, self._look, waiting)

    def _look(self, before: int) -> None:
        self._unread = None
        waiting = self.transport.get_write_buffer_size()
        if waiting > max(0, before - SLOWEST):
            self.transport.abort()
        else:
            self._watch()

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
