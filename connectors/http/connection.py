"""`BoundedProtocol`: uvicorn's HTTP/1.1 connection with limits of number, time and size, for clients that are slow or
hostile."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any, Final, Protocol

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from connectors.http.bounds import Bounds
from connectors.http.parser import RequestParser

SLOWEST: Final = 16 << 10
"""The fewest bytes of an answer that a client has to read in the time that `Bounds.patience` gives it."""
CONNECTION: Final = "streamer.connection"
"""The key under which the scope of a request holds its `BoundedProtocol`."""
COMPLETE: Final = "streamer.complete"
"""The key that the scope of a request has as soon as all of its body has arrived."""


class Awaited(Protocol):
    """What receives the answer to a request: a future, as a rule."""

    def cancel(self) -> object:
        """The client has gone."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed when the head of a request is late, or an answer is not read, and that answers 431 if
    a head is too long.

    `awaited` receives the answer to the request that is answered next; it is cancelled when the client has gone.
    """

    def __init__(self, bounds: Bounds, *arguments: Any, **named: Any) -> None:
        """`bounds` are those of all connections of a server; all else is uvicorn's."""
        super().__init__(*arguments, **named)
        self._bounds = bounds
        self.parser: RequestParser = RequestParser(self)  # type: ignore[assignment]
        self.awaited: Awaited | None = None
        self._idle = 0
        """Bytes that have arrived since the message began, or since the last of its body."""
        self._in_head = True
        self._stays = False
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._bounds.admits(self):
            transport.abort()
            return
        self._timer = self.loop.call_later(self._bounds.patience, self._late)

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    def stay(self) -> None:
        """Have the connection last for as long as the client reads: its answer is a stream."""
        self._stays = True
        self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._bounds.forget(self)
        self._stop_timer()
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)
        if self.awaited is not None:
            self.awaited.cancel()

    def data_received(self, data: bytes) -> None:
        self._idle += len(data)
        super().data_received(data)
        if self._idle > self._bounds.longest_head:
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]
        self._in_head = True
        if self._timer is None and not self._stays:
            self._idle = 0
            self._timer = self.loop.call_later(self._bounds.patience, self._late)

    def on_header(self, name: bytes, value: bytes) -> None:
        # Behind a chunked body there may be more.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._idle > self._bounds.longest_head and self._length_of_head() > self._bounds.longest_head:
            # It has come whole, and maybe with a body.
            self._refuse_head()
            raise ValueError("the head of the request is too long")
        self._idle = 0
        if not self._bounds.brief:
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
            self._unread = self.loop.call_later(self._bounds.patience, self._look, waiting)

    def _look(self, before: int) -> None:
        self._unread = None
        waiting = self.transport.get_write_buffer_size()
        if waiting > max(0, before - SLOWEST):
            self.transport.abort()
        else:
            self._watch()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP."""
        self._refuse(HTTPStatus.BAD_REQUEST, "the request is no HTTP/1.1")

    def _late(self) -> None:
        self._timer = None
        # What is still to be read of the last answer is watched.
        if self._bounds.brief or not self.transport.is_closing():
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _length_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse_head(self) -> None:
        text = f"the head of the request is longer than {self._bounds.longest_head} bytes"
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        if self.transport.is_closing():
            return
        body = json.dumps({"error": text}).encode()
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()
