"""`HttpServer`: a small HTTP server with short answers and streams, in one thread, robust against slow and hostile
clients.

It serves probes, scrapes and pages of a service, and has to answer them while other clients hold connections, send
slowly or never read. So connections, bytes and time are bounded. Every client is accepted; when there are too many
connections, the oldest one is closed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from email.message import Message
from email.utils import formatdate
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from io import BytesIO
from typing import Final
from urllib.parse import unquote

_log = logging.getLogger(__name__)

CONNECTIONS: Final = 64
"""The most open connections."""
PATIENCE: Final = 10.0
"""Seconds that a connection may take until the last byte of the answer is sent; for a stream, each piece."""
LONGEST: Final = 16 << 10
"""The most bytes of a request: its first line and headers."""
_TELL_EVERY: Final = 60.0
_REST: Final = 0.5
"""Seconds until connections are accepted again after file descriptors ran out."""
_END: Final = re.compile(rb"\r?\n\r?\n")
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


Stream = Callable[[], AsyncGenerator[bytes, None]]
"""Makes the generator of a body's pieces, which is closed when the client has gone."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A client's request."""

    path: str
    """The path without the query, as it was sent."""
    headers: Message
    query: str = ""
    """The query: the part after the `?`."""

    @property
    def parts(self) -> list[str]:
        """The path's parts between slashes, percent-decoded."""
        return [unquote(part) for part in self.path.strip("/").split("/")]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stream: Stream | None = None
    """Yields the body's pieces, in the server's thread, for as long as the client reads; `body` is not sent then."""


def url_of(address: tuple[str, int]) -> str:
    """The URL of a server at this host and port."""
    host, port = address
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class HttpServer:
    """Answers GET and HEAD, one request a connection."""

    def __init__(self, host: str, port: int, answer: Callable[[HttpRequest], Answer], name: str = "control") -> None:
        """Listens at once; `answer` is called in the server's thread and must be quick. Raises `OSError`.

        `name` is the purpose of the server, for logs and its thread's name.
        """
        six = ":" in host
        both = six and socket.has_dualstack_ipv6() and host == "::"
        family = socket.AF_INET6 if six else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=CONNECTIONS, dualstack_ipv6=both)
        self._socket.setblocking(False)
        address = self._socket.getsockname()
        self.address: tuple[str, int] = (str(address[0]), int(address[1]))
        """Host and port."""
        self._answer = answer
        self._name = f"{name} port {host}:{self.address[1]}"
        self._open: dict[asyncio.Transport, None] = {}
        self._tell_at = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._failure: OSError | None = None
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{name} {host}:{port}", daemon=True)
        self._thread.start()
        self._running.wait()
        if self._failure is not None:
            self._socket.close()
            raise self._failure

    def close(self) -> None:
        """Stop listening, and end all connections; idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            # No descriptors for the loop itself.
            self._failure = error
            self._running.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        accepting = asyncio.create_task(self._accept())
        self._running.set()
        await self._stop.wait()
        accepting.cancel()
        await asyncio.wait([accepting])
        self._socket.close()
        self._end_all()

    async def _accept(self) -> None:
        while True:
            try:
                client, _ = await self._loop.sock_accept(self._socket)
                await self._loop.connect_accepted_socket(self._connection, client)
            except OSError as error:
                self._tell(error)
                if error.errno in _EXHAUSTED:
                    # The waiting connection would be reported again at once, so accepting pauses.
                    self._end_all()
                    await asyncio.sleep(_REST)

    def _connection(self) -> _Connection:
        return _Connection(self._open, self._loop, self._answer_to)

    def _end_all(self) -> None:
        for transport in list(self._open):
            transport.abort()

    def _tell(self, error: OSError) -> None:
        if self._loop.time() >= self._tell_at:
            self._tell_at = self._loop.time() + _TELL_EVERY
            _log.warning("no connection to the %s: %s", self._name, error)

    def _answer_to(self, head: bytes) -> _Written:
        """The answer to a request of these bytes, or to one that is too long."""
        if len(head) > LONGEST:
            return _written(_refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        first, _, rest = head.partition(b"\n")
        method, _, rest_of_line = first.decode("latin-1").strip().partition(" ")
        target, _, version = rest_of_line.rpartition(" ")
        if not target or not version.startswith("HTTP/"):
            return _written(_refusal(HTTPStatus.BAD_REQUEST))
        if method not in ("GET", "HEAD"):
            return _written(_refusal(HTTPStatus.METHOD_NOT_ALLOWED, Allow="GET, HEAD"))
        try:
            headers = parse_headers(BytesIO(rest))
        except HTTPException:
            return _written(_refusal(HTTPStatus.BAD_REQUEST))
        try:
            path, _, query = target.partition("?")
            answer = self._answer(HttpRequest(path, headers, query))
        except Exception as error:  # noqa: BLE001 - any error ends this request only
            _log.error("no answer to %s at the %s: %s: %s", path, self._name, type(error).__name__, error)
            answer = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)
        return _written(answer, with_body=method == "GET")


class _Connection(asyncio.Protocol):
    """One connection: receives a request, sends the answer, and is closed."""

    def __init__(
        self,
        connections: dict[asyncio.Transport, None],
        loop: asyncio.AbstractEventLoop,
        answer_to: Callable[[bytes], _Written],
    ) -> None:
        """`connections` are those that are open, the oldest first."""
        self._connections = connections
        self._loop = loop
        self._answer_to = answer_to
        self._received = bytearray()
        self._answered = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._sending: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if len(self._connections) >= CONNECTIONS:
            oldest = next(iter(self._connections))
            del self._connections[oldest]
            oldest.abort()
        self._transport = transport
        self._connections[transport] = None
        self._timer = self._loop.call_later(PATIENCE, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        # The end may lie across two pieces.
        before = max(0, len(self._received) - 3)
        self._received += data
        end = _END.search(self._received, before)
        if end is None and len(self._received) <= LONGEST:
            return
        self._answered = True
        written, stream = self._answer_to(bytes(self._received if end is None else self._received[: end.end()]))
        self._transport.write(written)
        if stream is None:
            self._transport.pause_reading()
            # Closes once the answer is sent; if the client does not read it, the timer ends the connection.
            self._transport.close()
            return
        # Reading goes on, to notice when the client has gone.
        self._timer.cancel()
        self._sending = self._loop.create_task(self._send(stream))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def _send(self, stream: Stream) -> None:
        try:
            async with aclosing(stream()) as pieces:
                async for piece in pieces:
                    if self._transport.is_closing():
                        return
                    self._transport.write(piece)
                    # `asyncio.wait_for` may lose a cancellation.
                    async with asyncio.timeout(PATIENCE):
                        await self._writable.wait()
        except TimeoutError:
            self._transport.abort()
        except Exception as error:  # noqa: BLE001 - any error of a page ends its stream only
            _log.error("a stream over HTTP broke: %s: %s", type(error).__name__, error)
            self._transport.abort()
        self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()
        self._connections.pop(self._transport, None)


def _refusal(status: HTTPStatus, **headers: str) -> Answer:
    return Answer(status, b'{"error": "%s"}' % status.phrase.lower().encode(), headers=headers)


_Written = tuple[bytes, Stream | None]
"""The bytes of an answer that are sent at once, and the stream of the rest."""


def _written(answer: Answer, *, with_body: bool = True) -> _Written:
    length = [] if answer.stream is not None else [f"Content-Length: {len(answer.body)}"]
    lines = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        f"Date: {formatdate(usegmt=True)}",
        f"Content-Type: {answer.kind}",
        *length,
        *(f"{name}: {value}" for name, value in answer.headers.items()),
        "Connection: close",
    ]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    if not with_body or answer.stream is not None:
        return head, answer.stream if with_body else None
    return head + answer.body, None
