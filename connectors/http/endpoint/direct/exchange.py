"""`Exchange`: a request on the short way, and its answer."""

from __future__ import annotations

import time
from typing import Any, Final, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from connectors.http.endpoint.app import BROKEN
from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.request import Answer, Request, sendable


class Connection(Protocol):
    """What an exchange needs of its connection."""

    awaited: Any

    def write(self, data: bytes, *, last: bool) -> None:
        """Send these bytes; with `last` the connection is closed behind them."""

    def on_response_complete(self) -> None:
        """All of an answer was written: the next request may be answered."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that each answer has."""


class _NoEvent:
    """Stands for the event for which an ASGI task of uvicorn waits."""

    def set(self) -> None:
        """Nothing: there is no task."""


class Exchange:
    """Receives the answer of one request and writes it. To its connection it is what a cycle of uvicorn is, so that
    requests behind it wait, and a server that stops knows what is still to be answered.
    """

    __slots__ = (
        "_connection",
        "_model",
        "_request",
        "disconnected",
        "keep_alive",
        "parts",
        "response_complete",
    )

    message_event: Final = _NoEvent()

    def __init__(self, connection: Connection, model: ServedModel, *, keep_alive: bool) -> None:
        self._connection = connection
        self._model = model
        self._request: Request | None = None
        self.keep_alive = keep_alive
        """Whether the connection stays open behind the answer."""
        self.response_complete = False
        self.disconnected = False
        """Whether the client has gone."""
        self.parts: list[bytes] = []
        """The body, as far as it has arrived."""

    @property
    def patience(self) -> float:
        """Seconds that the body may take."""
        return self._model.config.timeout

    def begin(self, headers: list[tuple[bytes, bytes]], path: str, client: str) -> None:
        """Let the request, which has arrived, wait to be run; or answer it, if it cannot."""
        now = time.monotonic()
        body = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        until = now + self._model.config.timeout
        self._request = Request(body, headers, self, "http", path, client, until, now, int(time.time() * 1000))
        self.parts = []
        self._connection.awaited = self
        refusal = self._model.put(self._request)
        if refusal is not None:
            self.set_result(refusal)

    def done(self) -> bool:
        """Whether nobody waits for an answer any more."""
        return self.response_complete or self.disconnected

    def set_result(self, answer: Answer) -> None:
        """Write the answer. Called by the thread of the loop."""
        self._model.counts.answered["http", answer.status] += 1
        self._connection.awaited = None
        # The inbox may know the request for as long as it is not acknowledged.
        self._request = None
        self.response_complete = True
        self._connection.write(self._bytes(answer), last=not self.keep_alive)
        self._connection.on_response_complete()

    def cancel(self) -> None:
        """The client has gone."""
        self.disconnected = True
        if self._request is not None:
            self._model.inbox.withdraw(self._request)
            self._model.counts.cancelled += 1
            self._request = None

    def _bytes(self, answer: Answer) -> bytes:
        if not sendable(answer.headers):
            answer = BROKEN
        lines = [STATUS_LINE[answer.status]]
        closes = False
        for name, value in (*self._connection.default_headers, *answer.headers):
            closes = closes or (name == b"connection" and value == b"close")
            lines += (name, b": ", value, b"\r\n")
        lines.append(b"content-length: %d\r\n" % len(answer.body))
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines += (b"\r\n", answer.body)
        return b"".join(lines)
