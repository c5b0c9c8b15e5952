"""`HttpPort`: short answers and streams over HTTP, robust against slow and hostile clients.

It serves probes, scrapes and pages of a service, and has to answer them while other clients hold connections, send
slowly or never read. So connections, bytes and time are bounded. Every client is accepted; when there are too many
connections, the oldest one is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import aclosing, suppress
from email.message import Message
from http import HTTPStatus
from typing import Final

from connectors.http.bounds import Bounds
from connectors.http.connection import CONNECTION, BoundedProtocol
from connectors.http.exchange import Answer, Handler, HttpRequest, Stream
from connectors.http.listening import Listening, Receive, Scope, Send

_log = logging.getLogger(__name__)

CONNECTIONS: Final = 64
"""The most open connections."""
LONGEST_HEAD: Final = 16 << 10
"""The most bytes of a request's first line and headers."""
LONGEST_BODY: Final = 64 << 10
"""The most bytes of a request's body."""


class HttpPort:
    """Answers one request a connection."""

    def __init__(
        self, host: str, port: int, handler: Handler, name: str = "control", methods: Collection[str] = ("GET", "HEAD")
    ) -> None:
        """Listens at once. Raises `OSError`.

        `name` is the purpose of the port, for logs and its thread's name. Requests by other `methods` are refused; HEAD
        gets what GET does, without the body.
        """
        self._handler = handler
        self._name = f"{name} port"
        self._methods = methods
        self._bounds = Bounds(CONNECTIONS, LONGEST_HEAD, brief=True)
        self._listening = Listening(host, port, self._serve, self._bounds, name=self._name)
        self.address: tuple[str, int] = self._listening.address
        """Host and port."""

    def close(self) -> None:
        """Stop listening, and end all connections; idempotent."""
        self._listening.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        connection: BoundedProtocol = scope[CONNECTION]
        # Cancelled when the client has gone, or the port is closed.
        connection.awaited = asyncio.current_task()
        with suppress(asyncio.CancelledError):
            body = await _body(receive)
            if body is not None:
                await self._send(await self._answer(scope, body), connection, send, with_body=scope["method"] != "HEAD")
        connection.awaited = None

    async def _answer(self, scope: Scope, body: bytes) -> Answer:
        if len(body) > LONGEST_BODY:
            return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if scope["method"] not in self._methods:
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, Allow=", ".join(self._methods))
        path = scope["raw_path"].decode("latin-1")
        try:
            query = scope["query_string"].decode("latin-1")
            answer = self._handler(HttpRequest(path, _headers(scope), query, scope["method"], body))
            return answer if isinstance(answer, Answer) else await answer
        except Exception as error:  # noqa: BLE001 - any error ends this request only
            _log.error("no answer to %s at the %s: %s: %s", path, self._name, type(error).__name__, error)
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _send(self, answer: Answer, connection: BoundedProtocol, send: Send, *, with_body: bool) -> None:
        headers = {"content-type": answer.kind, **answer.headers, "connection": "close"}
        if answer.stream is None:
            headers["content-length"] = str(len(answer.body))
        encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
        if answer.stream is None or not with_body:
            await send({"type": "http.response.body", "body": answer.body})
        elif not await self._stream(answer.stream, connection, send):
            connection.abort()
            # Until uvicorn knows that the connection is lost: it complains of answers that are not whole.
            await asyncio.sleep(0)

    async def _stream(self, stream: Stream, connection: BoundedProtocol, send: Send) -> bool:
        """Whether all of the stream was sent."""
        connection.stay()
        try:
            async with aclosing(stream()) as pieces:
                async for piece in pieces:
                    # `asyncio.wait_for` may lose a cancellation.
                    async with asyncio.timeout(self._bounds.patience):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            return False
        except Exception as error:  # noqa: BLE001 - any error of a page ends its stream only
            _log.error("a stream at the %s broke: %s: %s", self._name, type(error).__name__, error)
            return False
        return True


async def _body(receive: Receive) -> bytes | None:
    """The body of a request, or as much as is too much; `None` if the client has gone."""
    body = bytearray()
    while len(body) <= LONGEST_BODY:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    return bytes(body)


def _headers(scope: Scope) -> Message:
    headers = Message()
    for name, value in scope["headers"]:
        headers[name.decode("latin-1")] = value.decode("latin-1")
    return headers


def _refusal(status: HTTPStatus, **headers: str) -> Answer:
    return Answer(status, b'{"error": "%s"}' % status.phrase.lower().encode(), headers=headers)
