"""Results with pictures, and a sink that shows them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from connectors.message import Message, block_of
from connectors.view.config import ViewSinkConfig
from connectors.view.sink import ViewSink
from pipelines import BoundingBox, Data, Image
from pipelines.data.record import RecordContext


def result(camera: str = "gate", shade: int = 0, *, boxes: int = 1, wide: int = 64, **values: Any) -> Data:
    """A picture of one shade with boxes, as a pipeline gives it."""
    image = Image(np.full((wide * 3 // 4, wide, 3), shade, np.uint8))
    found = [BoundingBox.corners(0.1 * n, 0.1 * n + 0.2, 0.2, 0.6, "face", 0.9) for n in range(boxes)]
    record = RecordContext("cameras", camera, offset=shade, timestamp=1_700_000_000_000)
    return Data({"image": image, "faces": found, "ids": list(range(1, boxes + 1)), **values}, record=record)


def deliver(sink: Any, *results: Any, first: int = 0) -> Any:
    """Send these; the sink has to accept or refuse them at once."""
    return sink.send(block_of([Message(one) for one in results], first), time.monotonic() + 60)


@pytest.fixture
def viewing() -> Iterator[Callable[..., ViewSink]]:
    """`viewing(**fields)` is an open sink `view` at a free port."""
    with ExitStack() as stack:

        def opened(**fields: Any) -> ViewSink:
            sink = ViewSink(ViewSinkConfig(**{"listen": "127.0.0.1:0", "name": "yard", **fields}))
            sink.open()
            stack.callback(sink.close)
            return sink

        yield opened


class Client:
    """A connection to the page: one request, and the received part of the answer."""

    def __init__(self, sink: ViewSink, path: str, *headers: str, host: str = "localhost") -> None:
        assert sink.address is not None
        self.socket = socket.create_connection(sink.address, timeout=60)
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{sink.address[1]}", *headers, "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        self._held = b""
        self._chunks: bytes | None = None
        head = self.until(b"\r\n\r\n").decode("latin-1")
        self.status = int(head.split()[1])
        self.head = head
        if "transfer-encoding: chunked" in head:
            began, self._held, self._chunks = self._held, b"", b""
            self._receive(began)

    def until(self, end: bytes) -> bytes:
        while end not in self._held:
            self._more()
        found, _, self._held = self._held.partition(end)
        return found

    def take(self, count: int) -> bytes:
        while len(self._held) < count:
            self._more()
        found, self._held = self._held[:count], self._held[count:]
        return found

    def rest(self) -> bytes:
        while block := self.socket.recv(1 << 20):
            self._receive(block)
        found, self._held = self._held, b""
        return found

    def close(self) -> None:
        self.socket.close()

    def _more(self) -> None:
        block = self.socket.recv(1 << 20)
        assert block, "the server closed the connection"
        self._receive(block)

    def _receive(self, block: bytes) -> None:
        """Hold what is content of this: of a chunked body, its whole chunks."""
        if self._chunks is None:
            self._held += block
            return
        self._chunks += block
        while (end := self._chunks.find(b"\r\n")) > 0:
            begin, size = end + 2, int(self._chunks[:end], 16)
            if len(self._chunks) < begin + size + 2:
                return
            self._held += self._chunks[begin : begin + size]
            self._chunks = self._chunks[begin + size + 2 :]


@pytest.fixture
def ask() -> Iterator[Callable[..., Client]]:
    """`ask(sink, path, *headers)` sends a request."""
    with ExitStack() as stack:

        def asked(sink: ViewSink, path: str, *headers: str, host: str = "localhost") -> Client:
            client = Client(sink, path, *headers, host=host)
            stack.callback(client.close)
            return client

        yield asked
