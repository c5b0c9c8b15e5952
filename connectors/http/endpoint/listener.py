"""`Listener`: the thread that accepts connections at an address, for all services of the process that name it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import ClassVar

from connectors.http.bounds import Bounds
from connectors.http.endpoint.app import App
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.origins import Origins
from connectors.http.endpoint.repository.models import Models, Repository
from connectors.http.listening import LEAVE, Listening
from connectors.tls.certificate import self_signed
from connectors.units import host_and_port
from pipelines.errors import ConnectorError

EXPIRE = 0.1
"""Seconds between two looks for requests whose deadline is over."""


class Listener:
    """Accepts requests over HTTP in a thread of its own, with one loop. Found by address; the last service that leaves
    ends it."""

    _known: ClassVar[dict[str, Listener]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, config: HttpSourceConfig) -> None:
        """Listens at once. Raises `ConnectorError` where the address cannot be had, or the certificate not be used."""
        self._config = config
        self._models = Models()
        self._arriving: dict[str, ServedModel] = {}
        """Models that are to take the place of those of their names."""
        host, port = host_and_port(config.listen)
        self._pem = self_signed(host) if config.tls is not None and config.tls.cert is None else None
        context = None if config.tls is None else config.tls.context(host, self._pem)
        self.grpc_address: tuple[str, int] | None = None
        """Host and port of gRPC; `None` without it."""
        self._leaving = asyncio.Event()
        # It imports uvicorn.
        from connectors.http.endpoint.direct.protocol import DirectProtocol

        app, bounds = App(config, self._models), Bounds(config.connections)
        application = Origins(app, config.origins) if config.origins else app
        try:
            self._listening = Listening(
                host,
                port,
                application,
                bounds,
                name="listener",
                # Answers to pages need headers that only the application puts on them.
                protocol=None if config.origins else partial(DirectProtocol, app),
                context=context,
                fast=True,
                beside=self._beside,
            )
        except OSError as error:
            raise ConnectorError(
                f'listen "{config.listen}": {error.strerror or error}; choose another address or port'
            ) from None
        self.address = self._listening.address
        """Host and port."""
        self.loop = self._listening.loop

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
            alike = ("grpc", "token", "tls", "connections", "hosts", "origins", *(("max_body",) if config.grpc else ()))
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

    @classmethod
    def keep(cls, config: HttpSourceConfig, repository: Repository) -> Listener:
        """The listener at this address, which stays until `end`, as the models of a repository come and go.

        A model that is added under a name that is there gets its requests after `admit`. Raises `ConnectorError` as
        `of`.
        """
        listener = cls.of(config)
        with cls._guard:
            listener._models.repository = repository
        return listener

    def admit(self, name: str) -> None:
        """From now on requests for this name are for the model that was added last."""
        with self._guard:
            if (model := self._arriving.pop(name, None)) is not None:
                before, self._models[name] = self._models.get(name), model
                if before is not None:
                    before.successor = model

    def end(self) -> None:
        """The repository has no more models: end the listener, once its answers are written."""
        with self._guard:
            self._forget()
        self._close()

    def add(self, model: ServedModel) -> None:
        """Accept requests for this model, too. Raises `ConnectorError` where there is one of this name."""
        with self._guard:
            if model.name in self._models:
                if self._models.repository is not None:
                    self._arriving[model.name] = model
                    return
                raise ConnectorError(
                    f'listen "{self._config.listen}": a service "{model.name}" of this process is there already; give '
                    "each a name of its own"
                )
            self._models[model.name] = model

    def remove(self, model: ServedModel) -> None:
        """Accept no more requests for this model; the last one ends the listener, once its answers are written."""
        with self._guard:
            if self._arriving.get(model.name) is model:
                del self._arriving[model.name]
                return
            kept = self._models.repository is not None
            if kept or any(other is not model for other in self._models.values()):
                if self._models.get(model.name) is model:
                    del self._models[model.name]
                return
            # The last one stays, so that requests that come before the end are refused as those of a service that
            # stops, and not as those for an unknown model.
            self._forget()
        self._close()

    def _forget(self) -> None:
        if self._known.get(self._config.listen) is self:
            del self._known[self._config.listen]

    def _close(self) -> None:
        with suppress(RuntimeError):
            # It may have ended by itself.
            self.loop.call_soon_threadsafe(self._leaving.set)
        self._listening.close(answering=True)

    @asynccontextmanager
    async def _beside(self) -> AsyncGenerator[None, None]:
        """What runs in the loop beside HTTP: gRPC, and looks at the deadlines of requests."""
        leaving = None if self._config.grpc is None else asyncio.create_task(await self._serve_grpc())
        looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            looking.cancel()
            self._leaving.set()
            if leaving is not None:
                await leaving

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE)
            now = time.monotonic()
            for model in list(self._models.values()):
                model.look(now)

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
