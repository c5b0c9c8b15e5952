"""Requests keep the contract of sources, answers that of sinks; the clients are sockets that wait for their answers."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from connectors.contract import SinkBus, SinkContract, SourceBus, SourceContract
from connectors.http.endpoint.config import HttpSinkConfig, HttpSourceConfig
from connectors.http.endpoint.inbox import Inbox
from connectors.http.endpoint.sink import HttpSink
from connectors.http.endpoint.source import HttpSource
from connectors.message import Message, block_of
from connectors.records import Messages
from connectors.sink import Refused, Sink
from connectors.source import Source

CONNECTIONS = 1100


def inbox_of(source: HttpSource) -> Inbox:
    return source._open[2]


def request(body: bytes, headers: Sequence[tuple[str, bytes | None]] = ()) -> bytes:
    lines = b"".join(b"%s: %s\r\n" % (name.encode(), value or b"") for name, value in headers)
    return b"POST /v1/service HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n%s" % (lines, len(body), body)


class ClientsBus(SourceBus):
    """A client for each record. The next one sends when the last one's request has arrived, as connections have no
    order; it sends again as long as it is refused."""

    held_at_most = 2 << 20

    def __init__(self) -> None:
        self._later: deque[Message] = deque()
        self._clients: list[socket.socket] = []
        self._source: HttpSource | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        for client in self._clients:
            client.close()

    def feed(self, messages: Sequence[Message]) -> None:
        self._later += messages

    def source(self) -> Source:
        config = HttpSourceConfig(
            name=f"http-{uuid.uuid4().hex}",
            listen="127.0.0.1:0",
            codec="raw",
            key="headers.key",
            max_held=self.held_at_most // 2,
            connections=CONNECTIONS,
        )
        self._source = HttpSource(config)
        return self._source

    def held_bytes(self, source: Source) -> int:
        assert isinstance(source, HttpSource)
        return inbox_of(source).held_bytes

    def _run(self) -> None:
        while not self._ends.wait(0.001):
            while self._later and not self._ends.is_set():
                source = self._source
                if source is None or source._opened is None or not inbox_of(source).is_open:
                    break
                if self._send(source, self._later[0]):
                    self._later.popleft()

    def _send(self, source: HttpSource, message: Message) -> bool:
        inbox = inbox_of(source)
        before = inbox._next
        client = socket.create_connection(source.address, timeout=10)
        key = () if message.key is None else (("key", message.key),)
        client.sendall(request(message.value or b"", (*key, *message.headers)))
        while inbox._next == before and not self._ends.is_set():
            # One that was accepted may have its answer already.
            if select.select([client], [], [], 0.0002)[0] and inbox._next == before:
                client.close()
                return False
        self._clients.append(client)
        return True


class TestHttpSource(SourceContract):
    """Requests as records."""

    cannot: ClassVar[Mapping[str, str]] = {
        "headers": "every request has headers of its own, and values are no more than Latin-1",
        "binary_headers": "values of headers are text",
        "binary_keys": "a key is the value of a header",
        "timestamps": "a request has the time of its arrival",
        "tombstones": "a request may have an empty body, but not none",
        "partitions": "there is one lane",
        "positions": "they are counted by the process",
        "restart": "a client learns that its request was not run, and sends it again itself",
        "revoke": "a client belongs to the process that it is connected to",
        "end": "clients can always come",
    }

    @pytest.fixture
    def bus(self) -> Iterator[ClientsBus]:
        bus = ClientsBus()
        yield bus
        bus.close()

    def test_headers_arrive_with_names_in_lower_case_and_without_secrets(self, bus: ClientsBus) -> None:
        secrets = (("Authorization", b"Bearer a"), ("Cookie", b"b"), ("Proxy-Authorization", b"c"))
        bus.feed([Message(b"x", headers=(("Trace", b"a"), *secrets, ("trace", b"b"), ("empty", b"")))])
        source = bus.source()
        source.open()
        try:
            records = source.poll(1, 1000, bus.patience)
            (headers,) = records.header_column() or ()
            assert headers == [
                *(("host", b"a"), ("trace", b"a"), ("trace", b"b"), ("empty", b""), ("content-length", b"1")),
            ]
        finally:
            source.close()


class Numbered(HttpSink):
    """A sink whose messages answer the requests of new clients, one each, as the contract's messages answer none."""

    bus: AnsweredBus

    def send(self, messages: Messages, deadline: float) -> Refused:
        parts = [messages.parents(at) for at in range(len(messages))]
        numbers = self.bus.ask(len(parts))
        return super().send(replace(messages, positions=np.array(numbers, np.int64)), deadline)


class AnsweredBus(SinkBus):
    """Clients with one request each, which read their answers in the order of their requests."""

    def __init__(self) -> None:
        self.config = HttpSourceConfig(
            name=f"http-{uuid.uuid4().hex}", listen="127.0.0.1:0", codec="raw", connections=CONNECTIONS
        )
        self.source = HttpSource(self.config)
        self.source.open()
        self._clients: list[socket.socket] = []
        self._arrived: list[Message] = []

    def close(self) -> None:
        self.source.close()
        for client in self._clients:
            client.close()

    def key(self, number: int) -> bytes | None:
        return None

    def ask(self, count: int) -> list[int]:
        """So many clients more, whose requests are polled, in their order; the numbers of these."""
        before = len(self._clients)
        for number in range(before, before + count):
            client = socket.create_connection(self.source.address, timeout=self.patience)
            client.sendall(request(b"%d" % number))
            self._clients.append(client)
        values: dict[int, int] = {}
        while len(values) < count:
            records = self.source.poll(count, 1 << 24, self.patience)
            values |= {int(bytes(value)): int(at) for value, at in zip(records.values, records.positions, strict=True)}
        return [values[number] for number in range(before, before + count)]

    def sink(self) -> Sink:
        sink = Numbered(HttpSinkConfig().in_service("", [self.config]))
        sink.bus = self
        sink.attach([self.source])
        return sink

    def read_back(self, count: int, topic: str | None = None) -> list[Message]:
        self._arrived += [answer(client) for client in self._clients[len(self._arrived) : count]]
        return list(self._arrived)


def answer(client: socket.socket) -> Message:
    with client.makefile("rb") as file:
        assert file.readline().split()[1] in {b"200", b"500"}
        headers = {}
        while (line := file.readline().strip()) != b"":
            name, _, value = line.partition(b": ")
            headers[name.decode()] = value
        body = file.read(int(headers.pop("content-length")))
    return Message(body, headers=tuple((name, headers[name]) for name in headers if name not in {"date", "server"}))


class TestHttpSink(SinkContract):
    """Answers of requests."""

    cannot: ClassVar[Mapping[str, str]] = {
        "keys": "an answer has no key",
        "headers": "an answer has headers of HTTP besides",
        "binary_headers": "headers are text",
        "topics": "an answer goes to its client",
        "timestamps": "an answer has the time at which it was sent",
        "tombstones": "a body may be empty, but not absent",
        "limit": "an answer may have any size",
        "override": "each request has one answer",
        "reopen": "each client reads its own answer",
        "cut": "there is no peer but the clients, and one that is gone needs no answer",
        "vanish": "clients come and go",
        "lose": "an answer is written to a connection, or its client is gone",
    }

    def test_a_shortened_dead_letter_is_always_accepted(self, bus: SinkBus) -> None:
        """Its failures are answers, whatever their text is; a client that has gone needs none."""
        assert isinstance(bus, AnsweredBus)
        errors = Numbered(HttpSinkConfig().in_service("", [bus.config]).for_failures())
        errors.bus = bus
        errors.attach([bus.source])
        headers = (("streamer-topic", b"images"), ("streamer-text", "\u00fc\r\n".encode() * 2200))
        assert errors.send(block_of([Message(b"x", None, headers), Message(b"x")]), time.monotonic() + 30) == {}
        assert errors.barrier(time.monotonic() + 30) == {}
        assert [rows.tolist() for rows in errors.confirmed()] == [[0, 1]]
        first, second = bus.read_back(2)
        assert json.loads(first.value)["error"].startswith(": \u00fc\r\n")
        assert "error" in json.loads(second.value)

    @pytest.fixture
    def bus(self) -> Iterator[AnsweredBus]:
        bus = AnsweredBus()
        yield bus
        bus.close()
