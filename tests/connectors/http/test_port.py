"""A port hands its handler whole requests, and sends answers of any kind."""

from __future__ import annotations

import asyncio
import http.client
import logging
import socket
import threading
from collections.abc import AsyncGenerator, Awaitable, Iterator
from contextlib import closing, contextmanager

import pytest

from connectors.http import bounds
from connectors.http.exchange import Answer, Handler, HttpRequest
from connectors.http.port import LONGEST_BODY, HttpPort


@contextmanager
def opened(handler: Handler) -> Iterator[HttpPort]:
    with closing(HttpPort("127.0.0.1", 0, handler, "test", ("GET", "HEAD", "POST"))) as port:
        yield port


def asked(port: HttpPort, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(*port.address, timeout=30)) as connection:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_a_handler_gets_all_of_a_request_and_may_take_time_for_its_answer() -> None:
    requests: list[HttpRequest] = []

    async def later(request: HttpRequest) -> Answer:
        await asyncio.sleep(0.01)
        return Answer(201, request.body)

    def handler(request: HttpRequest) -> Awaitable[Answer]:
        requests.append(request)
        return later(request)

    body = bytes(LONGEST_BODY)
    with opened(handler) as port:
        assert asked(port, "POST", "/a%2Fb/c?d=e", body) == (201, body)
        assert asked(port, "POST", "/", body + b"x")[0] == 413
        assert asked(port, "DELETE", "/")[0] == 405
    (request,) = requests
    assert (request.method, request.path, request.query) == ("POST", "/a%2Fb/c", "d=e")
    assert (request.parts, request.body) == (["a/b", "c"], body)


def test_an_answer_that_takes_time_holds_up_no_other() -> None:
    waits, goes = threading.Event(), asyncio.Event()

    async def slow() -> Answer:
        waits.set()
        await goes.wait()
        return Answer(200, b"slow")

    def handler(request: HttpRequest) -> Answer | Awaitable[Answer]:
        if request.path == "/slow":
            return slow()
        goes.set()
        return Answer(200, b"quick")

    with opened(handler) as port, socket.create_connection(port.address, timeout=30) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        assert waits.wait(30)
        assert asked(port, "GET", "/quick") == (200, b"quick")
        assert client.makefile("rb").read().endswith(b"\r\n\r\nslow")


def test_a_stream_ends_for_who_goes_or_does_not_read_and_nothing_is_logged_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bounds, "PATIENCE", 0.3)
    ended = threading.Semaphore(0)

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield bytes(1 << 16)
                await asyncio.sleep(0)
        finally:
            ended.release()

    with caplog.at_level(logging.WARNING), opened(lambda _: Answer(200, b"", stream=pieces)) as port:
        with socket.create_connection(port.address, timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1 << 16)
        assert ended.acquire(timeout=30)
        with socket.create_connection(port.address, timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert ended.acquire(timeout=30)
        with socket.create_connection(port.address, timeout=30) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert client.recv(1 << 16)
            port.close()
            assert ended.acquire(timeout=30)
    assert caplog.messages == []
