"""A broker in this process, for machines without mosquitto: amqtt, made to answer clients of MQTT 5."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self

from anyio.from_thread import BlockingPortal, start_blocking_portal

from pipelines.errors import MissingPackageError
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.ports import HOST
from streamer.devbroker.program import Started

_GREETING_WAIT = 10.0
"""Seconds within which a client has to begin its CONNECT."""
_CONNECT = 0x10

_REFUSED = b"\x20\x02\x00\x01"
"""A CONNACK of MQTT 3.1.1: unacceptable protocol version."""


class DevelopmentBroker(Started):
    """amqtt in a thread of this process, listening on 127.0.0.1 only, open to every client.

    It is for trying things out: it speaks MQTT 3.1.1 only (clients that try 5.0 first fall back), holds all data in
    memory, passes on several hundred messages a second, and drops a message of QoS 1 or 2 that a client does not
    acknowledge within 5 s.

    Args:
        port: The port; 0 takes any free one.

    Raises (from `start()`):
        MissingPackageError: amqtt is not installed (extra `broker`).
        BrokerError: The port is taken.
    """

    host = HOST

    def __init__(self, port: int = 0) -> None:
        self.port = port
        """The port it listens on; known when it has started."""
        self._running: AbstractContextManager[Any] | None = None
        self._stopped = threading.Event()

    @property
    def url(self) -> str:
        """The URL for clients, `mqtt://127.0.0.1:PORT`."""
        return f"mqtt://{self.host}:{self.port}"

    def describe(self) -> str:
        """A description in one line."""
        return f"a development MQTT broker on {self.url}, all data in memory and gone when it stops"

    def start(self) -> Self:
        """Start the broker; returns when it listens. Raises the errors named by the class."""
        try:
            from amqtt.broker import Broker
        except ImportError as error:
            raise MissingPackageError(error.name or "amqtt", "broker", "an MQTT broker without mosquitto") from error
        # It logs refused clients, and connections that end early, as errors with tracebacks.
        logging.getLogger("amqtt").setLevel(logging.CRITICAL)
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            try:
                self.port = portal.call(self._listen, Broker, stack, portal)
            except OSError as error:
                raise BrokerError(
                    f"no MQTT broker can listen on {HOST}:{self.port} ({error}): "
                    "stop the program that listens there or choose another port"
                ) from error
            self._running = stack.pop_all()
        return self

    def stop(self) -> None:
        """Disconnect all clients and discard all data."""
        self._stopped.set()
        running, self._running = self._running, None
        if running is not None:
            running.__exit__(None, None, None)

    def wait(self) -> None:
        """Block until Ctrl-C."""
        while not self._stopped.is_set():
            time.sleep(0.2)

    async def _listen(self, make: Any, stack: ExitStack, portal: BlockingPortal) -> int:
        """Start the broker and a listener in front of it; returns its port. `stack` stops both."""
        # This plugin lets every client in. As `AnonymousAuthPlugin` does it, nothing is kept for clients that are away.
        plugins: dict[str, Any] = {"amqtt.plugins.base.BaseAuthPlugin": {}}
        broker = make({"listeners": {"default": {"type": "external"}}, "plugins": plugins})
        await broker.start()
        stack.callback(portal.call, broker.shutdown)
        server = await asyncio.start_server(lambda reader, writer: _connected(broker, reader, writer), HOST, self.port)
        stack.callback(portal.call, server.close)
        port: int = server.sockets[0].getsockname()[1]
        return port


class _Unread:
    """The reader of a connection for amqtt: bytes that were read already come first, then those of the stream."""

    def __init__(self, first: bytes, reader: asyncio.StreamReader) -> None:
        self._first = first
        self._reader = reader

    async def read(self, n: int) -> bytes:
        """The next `n` bytes. Raises `asyncio.IncompleteReadError` if the connection ends before."""
        first, self._first = self._first[:n], self._first[n:]
        return first + await self._reader.readexactly(n - len(first))

    def feed_eof(self) -> None:
        """Mark the end of the stream."""
        self._reader.feed_eof()


async def _connected(broker: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one client. A client of MQTT 5 is refused as a broker of 3.1.1 does: amqtt would take its properties for a
    client id and wait for more."""
    from amqtt.adapters import StreamWriterAdapter

    try:
        async with asyncio.timeout(_GREETING_WAIT):
            first = await reader.readexactly(2)
            while first[-1] > 127 and len(first) < 5:  # bytes of the packet's length, but for the last
                first += await reader.readexactly(1)
            # The length of the protocol's name, the name, and the level.
            first += await reader.readexactly(2)
            first += await reader.readexactly(int.from_bytes(first[-2:]) + 1)
        if first[0] == _CONNECT and first.endswith(b"MQTT\x05"):
            writer.write(_REFUSED)
            await writer.drain()
        else:
            await broker.external_connected(_Unread(first, reader), StreamWriterAdapter(writer), "default")
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        return
    finally:
        writer.close()
