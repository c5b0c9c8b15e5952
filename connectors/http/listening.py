"""`Listening`: an address, and the thread in which uvicorn serves an ASGI application there."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Any, Final

from connectors.http.bounds import Bounds

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
"""An application as ASGI 3 has it, for HTTP only."""

_log = logging.getLogger(__name__)

BACKLOG: Final = 512
START: Final = 30.0
"""Seconds until a listener that starts is given up."""
KEEP_ALIVE: Final = 75
"""Seconds that a connection may stay open between two requests."""
LEAVE: Final = 5.0
"""Seconds that answers may take to be written when the listener ends, if they are waited for."""
_TELL_EVERY: Final = 60.0
_REST: Final = 0.5
"""Seconds until connections are accepted again after file descriptors ran out."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listening:
    """Serves an application in a thread of its own, with a loop of its own, until it is closed."""

    def __init__(
        self,
        host: str,
        port: int,
        application: Application,
        bounds: Bounds,
        *,
        name: str,
        protocol: Callable[..., asyncio.Protocol] | None = None,
        context: ssl.SSLContext | None = None,
        fast: bool = False,
        beside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        """Listens at once. Raises `OSError` where the address cannot be had, and what `beside` raises.

        `name` is for the log, and its thread's name. `protocol` makes connections, as `BoundedProtocol` does. `fast`:
        on uvloop, if it is there. `beside` runs in the loop, too: it is entered before the first request, and left
        after the last.
        """
        six = ":" in host
        both = six and socket.has_dualstack_ipv6() and host == "::"
        family = socket.AF_INET6 if six else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both)
        self._socket.setblocking(False)
        address = self._socket.getsockname()
        self.address: tuple[str, int] = (str(address[0]), int(address[1]))
        """Host and port."""
        self._name = f"{name} {host}:{self.address[1]}"
        self._bounds = bounds
        self._protocol = protocol
        self._context = context
        self._beside = beside
        self._handshakes: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._tell_at = 0.0
        self._started = threading.Event()
        try:
            self.loop: asyncio.AbstractEventLoop = _new_loop(fast=fast)
        except OSError:
            # No descriptors are left for it.
            self._socket.close()
            raise
        self._server = _server(application)
        self._serving: asyncio.Task[None]
        self._accepting: asyncio.Task[None]
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        if not self._started.wait(START) or self._failure is not None:
            self._socket.close()
            raise self._failure or OSError(f"it does not start within {START:g} s")

    def close(self, *, answering: bool = False) -> None:
        """Stop listening and end all connections: at once, or once their requests are answered; idempotent."""
        self._ask(self._end_accepting if answering else self._end)
        self._thread.join(LEAVE)
        if self._thread.is_alive():
            self._ask(self._end)
            self._thread.join(LEAVE)

    def _ask(self, what: Callable[[], object]) -> None:
        # The loop may be closed already.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(what)

    def _end_accepting(self) -> None:
        self._accepting.cancel()
        self._server.should_exit = True

    def _end(self) -> None:
        self._server.force_exit = True
        self._serving.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - it is raised by `__init__`
            self._failure = error
            if self._started.is_set():
                _log.error("the %s ended: %s: %s", self._name, type(error).__name__, error)
        finally:
            self._socket.close()
            self._started.set()
            self.loop.close()

    def _accepts_no_more(self, accepting: asyncio.Task[None]) -> None:
        if not accepting.cancelled():
            # It broke.
            self._end()

    async def _serve(self) -> None:
        async with self._beside():
            server = self._server
            # Without sockets: it has no limit for the time of a TLS handshake, and spins when descriptors run out.
            self._serving = self.loop.create_task(server.serve(sockets=[]))
            while not (server.started or self._serving.done()):
                await asyncio.sleep(0)
            self._accepting = self.loop.create_task(self._accept())
            self._accepting.add_done_callback(self._accepts_no_more)
            self._started.set()
            await asyncio.wait([self._serving])
            await self._leave()

    async def _leave(self) -> None:
        """End what is left."""
        state = self._server.server_state
        for connection in list(state.connections):
            connection.transport.abort()
        # Until uvicorn knows that they are lost: it complains of answers that are not whole.
        await asyncio.sleep(0)
        left = [self._accepting, *self._handshakes, *state.tasks]
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=LEAVE)
        await self.loop.shutdown_asyncgens()
        for task in (self._serving, self._accepting):
            if task.done() and not task.cancelled():
                task.result()

    async def _accept(self) -> None:
        connected = partial(
            self._protocol or _protocol(),
            self._bounds,
            config=self._server.config,
            server_state=self._server.server_state,
            app_state={},
        )
        with self._socket:
            await self._accept_by(connected)

    async def _accept_by(self, connected: Callable[[], asyncio.Protocol]) -> None:
        while True:
            try:
                client, _ = await self.loop.sock_accept(self._socket)
            except OSError as error:
                self._tell(error)
                if error.errno in _EXHAUSTED:
                    # The waiting connection would be reported again at once, so accepting pauses.
                    self._bounds.make_room()
                    await asyncio.sleep(_REST)
                continue
            if self._context is None:
                await self._connect(connected, client)
            else:
                handshake = self.loop.create_task(self._connect(connected, client))
                self._handshakes.add(handshake)
                handshake.add_done_callback(self._handshakes.discard)
                await asyncio.sleep(0)

    async def _connect(self, connected: Callable[[], asyncio.Protocol], client: socket.socket) -> None:
        patience = None if self._context is None else self._bounds.patience
        # The client has gone, or speaks no TLS.
        with suppress(OSError):
            await self.loop.connect_accepted_socket(
                connected, client, ssl=self._context, ssl_handshake_timeout=patience
            )

    def _tell(self, error: OSError) -> None:
        if self.loop.time() >= self._tell_at:
            self._tell_at = self.loop.time() + _TELL_EVERY
            _log.warning("no connection to the %s: %s", self._name, error)


def url_of(address: tuple[str, int]) -> str:
    """The URL of a server at this host and port."""
    host, port = address
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _protocol() -> Callable[..., asyncio.Protocol]:
    from connectors.http.connection import BoundedProtocol

    return BoundedProtocol


def _new_loop(*, fast: bool) -> asyncio.AbstractEventLoop:
    if fast:
        with suppress(ImportError):
            import uvloop

            loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
            return loop
    return asyncio.new_event_loop()


def _server(application: Application) -> Any:
    import uvicorn

    settings = uvicorn.Config(
        application,
        http="httptools",
        interface="asgi3",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        # Its warnings are about what clients send.
        log_level="error",
        timeout_keep_alive=KEEP_ALIVE,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=int(LEAVE),
    )
    return uvicorn.Server(settings)
