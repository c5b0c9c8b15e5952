"""What must stay within bounds: the wait for health, descriptors, memory, copies."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.serving import servers
from benchmarks.serving.load import Order, seen
from benchmarks.serving.rounds import Bodies


@contextmanager
def _service(model: Path, folder: Path, pause: float = 0.0) -> Iterator[servers.Server]:
    server, _ = servers.ours(model, folder, pause=pause)
    with server:
        server.wait()
        yield server


def health(model: Path, folder: Path) -> float:
    """The longest wait for `/v2/health/live`, in ms, while batches of 5 s run and 64 clients send."""
    with _service(model, folder, 5.0) as server:
        asking = Order(server.port, str(Bodies.into(folder).json), 6.0, 64)
        thread = threading.Thread(target=seen, args=(asking,))
        thread.start()
        time.sleep(1.0)
        worst = seen(Order(server.port, "", 3.0, 1, path="/v2/health/live")).longest
        thread.join()
        return worst * 1e3


def dropped(model: Path, folder: Path, connections: int = 10_000) -> int:
    """How many more descriptors there are after these connections, a third of which sent a request, have been dropped
    without reading an answer."""
    body = Bodies.into(folder).json.read_bytes()
    head = b"POST /v2/models/model/infer HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % len(body)
    with _service(model, folder) as server:
        seen(Order(server.port, str(Bodies.into(folder).json), 0.5, 8))
        time.sleep(1.0)
        before = server.descriptors()
        for number in range(connections):
            with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
                if number % 3 == 1:
                    connection.sendall(head + body)
                elif number % 3 == 2:
                    connection.sendall(head)
        deadline = time.monotonic() + 10
        while (more := server.descriptors() - before) > 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        # It still answers.
        saw = seen(Order(server.port, str(Bodies.into(folder).json), 0.5, 8))
        if saw.failures or not saw.answers:
            raise RuntimeError(f"{saw.failures} of {saw.answers} answers are errors after that")
        return more


def steady(model: Path, folder: Path, seconds: float) -> float:
    """MiB by which memory grows while 64 clients send for so long a second time."""
    with _service(model, folder) as server:
        order = Order(server.port, str(Bodies.into(folder).json), seconds, 64)
        seen(order)
        before = server.rss()
        seen(order)
        return (server.rss() - before) / 2**20
