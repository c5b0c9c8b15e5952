"""`Listener`: the thread that accepts connections at an address, for all services of the process that name it."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from connectors.http.endpoint.app import App
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.model import ServedModel
from connectors.tls.certificate import self_signed
from connectors.units import host_and_port
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

BACKLOG = 512
START = 30.0
"""Seconds until a listener that starts is given up."""
KEEP_ALIVE = 75
"""Seconds that a connection may stay open between two requests."""
EXPIRE = 0.1
"""Seconds between two looks for requests whose deadline is over."""
LEAVE = 5.0
"""Seconds that answers may take to be written when the listener ends."""


class Listener:
    """Accepts requests over HTTP in a thread of its own, with one loop. Found by address; the last service that leaves
    ends it."""

    _known: ClassVar[dict[str, Listener]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, config: HttpSourceConfig) -> None:
        """Listens at once. Raises `ConnectorError` where the address cannot be had, or the certificate not be used."""
        self._config = config
        self._models: dict[str, ServedModel] = {}
        host = host_and_port(config.listen)[0]
        self._pem = self_signed(host) if config.tls is not None and config.tls.cert is None else None
        self._context = None if config.tls is None else config.tls.context(host, self._pem)
        self._socket = _bound(config.listen)
        address = self._socket.getsockname()
        self.address: tuple[str, int] = (str(address[0]), int(address[1]))
        """Host and port."""
        self.grpc_address: tuple[str, int] | None = None
        """Host and port of gRPC; `None` without it."""
        self.loop: asyncio.AbstractEventLoop = _new_loop()
        self._app = App(config, self._models)
        self._server = _server(self._app, config)
        self._leaving = asyncio.Event()
        self._failure: BaseException | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"http {config.listen}", daemon=True)
        self._thread.start()
        if not self._started.wait(START) or self._failure is not None:
            self._socket.close()
            if isinstance(self._failure, ConnectorError):
                raise self._failure
            raise ConnectorError(f'listen "{config.listen}": {self._failure or "it does not start"}')

    @classmethod
    def of(cls, config: HttpSourceConfig) -> Listener:
        """The listener at the address of this configuration, which is opened if there is none yet.

        Raises `ConnectorError` where it cannot be had, or is there with other settings.
        """
        with cls._guard:
            listener = cls._known.get(config.listen)
            if listener is None:
                listener = cls(config)
                # Port 0 is a new port each time, so it cannot be shared.
                if not config.listen.endswith(":0"):
                    cls._known[config.listen] = listener
                return listener
            # gRPC has one limit for the messages to all services.
            alike = ("grpc", "token", "tls", "connections", "hosts", *(("max_body",) if config.grpc else ()))
            for field in alike:
                if getattr(config, field) != getattr(listener._config, field):
                    raise ConnectorError(
                        f'listen "{config.listen}": another service of this process has this address with another '
                        f"{field}; give both the same, or another port"
                    )
            return listener

    @property
    def place(self) -> str:
        """Its address as a URL, and that of gRPC if it has one."""
        url = f"{'http' if self._config.tls is None else 'https'}://{_shown(self.address)}"
        return url if self.grpc_address is None else f"{url}, gRPC {_shown(self.grpc_address)}"

    def add(self, model: ServedModel) -> None:
        """Accept requests for this model, too. Raises `ConnectorError` where there is one of this name."""
        with self._guard:
            if model.name in self._models:
                raise ConnectorError(
                    f'listen "{self._config.listen}": a service "{model.name}" of this process is there already; give '
                    "each a name of its own"
                )
            self._models[model.name] = model

    def remove(self, model: ServedModel) -> None:
        """Accept no more requests for this model; the last one ends the listener, once its answers are written."""
        with self._guard:
            if any(other is not model for other in self._models.values()):
                if self._models.get(model.name) is model:
                    del self._models[model.name]
                return
            # The last one stays, so that requests that come before the end are refused as those of a service that
            # stops, and not as those for an unknown model.
            if self._known.get(self._config.listen) is self:
                del self._known[self._config.listen]
        self._server.should_exit = True
        with suppress(RuntimeError):
            # It may have ended by itself.
            self.loop.call_soon_threadsafe(self._leaving.set)
        self._thread.join(LEAVE)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(LEAVE)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - it is raised where the listener is opened
            self._failure = error
            if self._started.is_set():
                _log.error("the listener at %s ended: %s: %s", self._config.listen, type(error).__name__, error)
        finally:
            self._started.set()
            self.loop.close()

    async def _serve(self) -> None:
        leaving = None if self._config.grpc is None else self.loop.create_task(await self._serve_grpc())
        serving = self.loop.create_task(self._server.serve(sockets=[]))
        while not (self._server.started or serving.done()):
            await asyncio.sleep(0.005)
        if not serving.done():
            await self._accept()
        self._started.set()
        while not serving.done():
            await asyncio.wait([serving], timeout=EXPIRE)
            now = time.monotonic()
            for model in list(self._models.values()):
                model.look(now)
        self._leaving.set()
        if leaving is not None:
            await leaving
        await serving

    async def _accept(self) -> None:
        """Accept connections of a server of uvicorn, which has no limit for the time of a TLS handshake."""
        from connectors.http.endpoint import bounds

        server = self._server
        connection = partial(
            bounds.bounded(self._config.connections),
            config=server.config,
            server_state=server.server_state,
            app_state={},
        )
        patience = None if self._context is None else bounds.PATIENCE
        accepting = await self.loop.create_server(
            connection, sock=self._socket, ssl=self._context, ssl_handshake_timeout=patience, backlog=BACKLOG
        )
        # It ends with the others of the server.
        server.servers.append(accepting)

    async def _serve_grpc(self) -> Coroutine[None, None, None]:
        """Listen for gRPC, too; what is returned waits until the listener ends, and ends gRPC."""
        from connectors.http.rpc.server import GrpcServer

        server = GrpcServer(self._config, self._models, self._pem)
        await server.start()
        self.grpc_address = server.address

        async def leave() -> None:
            await self._leaving.wait()
            await server.stop(LEAVE)

        return leave()


def _shown(address: tuple[str, int]) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bound(address: str) -> socket.socket:
    host, port = host_and_port(address)
    six = ":" in host
    both = six and socket.has_dualstack_ipv6() and host == "::"
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if six else socket.AF_INET, backlog=BACKLOG, dualstack_ipv6=both
        )
    except OSError as error:
        raise ConnectorError(f'listen "{address}": {error.strerror or error}; choose another address or port') from None


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _server(app: App, config: HttpSourceConfig) -> Any:
    import uvicorn

    settings = uvicorn.Config(
        app,
        http="httptools",
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
