"""A listener with one model whose requests a function answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.counts import Counts
from connectors.http.endpoint.inbox import Inbox
from connectors.http.endpoint.listener import Listener
from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.request import Answer, Request
from connectors.source import Served
from pipelines.executors.ports import Ports

Work = Callable[[Request], Answer]
# One for all, as each reads the certificates of the system anew.
CLIENT = httpx2.Client(timeout=20, limits=httpx2.Limits(max_keepalive_connections=0))


def echo(request: Request) -> Answer:
    return Answer(200, ((b"content-type", b"application/json"),), request.body)


class Serving:
    """A listener with one model, whose requests a thread answers."""

    def __init__(self, work: Work, name: str = "digits", trouble: str | None = None, **fields: Any) -> None:
        config = HttpSourceConfig(**{"listen": "127.0.0.1:0", "codec": "json", **fields})
        self.listener = Listener.of(config)
        self.inbox = Inbox(self.listener.loop, config.max_waiting, config.max_held)
        served = Served(name, Ports(), True, lambda: trouble, lambda: trouble)
        self.model = ServedModel(name, config, served, self.inbox, Counts())
        self.listener.add(self.model)
        self.paused = threading.Event()
        self._work = work
        self._ends, self._stands = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return self.listener.place

    def connected(self) -> socket.socket:
        return socket.create_connection(self.listener.address, timeout=10)

    def pause(self) -> None:
        """From now on requests wait."""
        self.paused.set()
        assert self._stands.wait(10)

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        self.inbox.close(Answer.refusal(503, "stopping"))
        self.listener.remove(self.model)

    def _run(self) -> None:
        while not self._ends.is_set():
            if self.paused.is_set():
                self._stands.set()
                time.sleep(0.005)
                continue
            requests = self.inbox.take(1, 1 << 20, 0.02)
            requests += self.inbox.take(99, 1 << 20, 0.0)
            self.inbox.answer([(request.number, self._work(request)) for request in requests])
            if requests:
                self.inbox.finish(requests[-1].number + 1, Answer.refusal(422, "dropped"))


@contextmanager
def serving(work: Work = echo, **fields: Any) -> Iterator[Serving]:
    each = Serving(work, **fields)
    try:
        yield each
    finally:
        each.close()


def asked(each: Serving, method: str, path: str, **named: Any) -> httpx2.Response:
    return CLIENT.request(method, each.url + path, **named)
