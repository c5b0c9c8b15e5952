"""Requests between their arrival and their answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from connectors.http.endpoint.inbox import Inbox
from connectors.http.endpoint.request import Answer, Request


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever, daemon=True)
    thread.start()
    yield running
    running.call_soon_threadsafe(running.stop)
    thread.join()
    running.close()


class Client:
    """Puts requests into an inbox, in the thread of its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inbox: Inbox) -> None:
        self._loop = loop
        self._inbox = inbox

    def ask(self, *deadlines: float, busy: float = 0.0) -> list[Request]:
        """All in one turn of the loop, which is `busy` for so many seconds after the first."""

        async def put() -> list[Request]:
            requests = [Request(b"x", (), self._loop.create_future(), deadline=deadline) for deadline in deadlines]
            assert self._inbox.put(requests[0])
            time.sleep(busy)
            assert all(map(self._inbox.put, requests[1:]))
            return requests

        return asyncio.run_coroutine_threadsafe(put(), self._loop).result(10)

    def status(self, request: Request) -> int:
        async def answered() -> int:
            assert isinstance(request.reply, asyncio.Future)
            return int((await request.reply).status)

        return asyncio.run_coroutine_threadsafe(answered(), self._loop).result(10)


def test_a_request_whose_time_is_over_is_answered_instead_of_run(loop: asyncio.AbstractEventLoop) -> None:
    inbox = Inbox(loop, 10, 1 << 20)
    client = Client(loop, inbox)
    later = time.monotonic() + 60
    # The second has less time than the first, as a client of gRPC may say.
    requests = client.ask(later, 0.0, later)
    assert [request.number for request in inbox.take(10, 1 << 20, 1.0)] == [0, 2]
    assert client.status(requests[1]) == 504
    assert (inbox.late, inbox.held_bytes, inbox.running) == (1, 0, 2)


def test_a_polled_request_whose_time_is_over_is_answered_though_others_have_more(
    loop: asyncio.AbstractEventLoop,
) -> None:
    inbox = Inbox(loop, 10, 1 << 20)
    client = Client(loop, inbox)
    now = time.monotonic()
    requests = client.ask(now + 60, now + 30)
    assert len(inbox.take(10, 1 << 20, 1.0)) == 2
    inbox.expire(now + 40)
    assert client.status(requests[1]) == 504
    inbox.answer([(0, Answer(200, (), b"")), (1, Answer(200, (), b""))])
    assert (client.status(requests[0]), client.status(requests[1])) == (200, 504)


def test_requests_that_come_together_wake_the_reader_once_and_are_a_batch(loop: asyncio.AbstractEventLoop) -> None:
    inbox = Inbox(loop, 100, 1 << 20)
    client = Client(loop, inbox)
    taken: list[int] = []

    def read() -> None:
        taken.append(len(inbox.take(1, 1 << 20, 10.0)))
        taken.append(len(inbox.take(100, 1 << 20, 0.0)))

    reader = threading.Thread(target=read)
    reader.start()
    while not inbox._wanted:
        time.sleep(0.001)
    client.ask(*[time.monotonic() + 60] * 20, busy=0.1)
    reader.join(10)
    assert taken == [1, 19]


def test_requests_come_again_in_order_before_others_and_keep_their_numbers(loop: asyncio.AbstractEventLoop) -> None:
    inbox = Inbox(loop, 10, 1 << 20)
    client = Client(loop, inbox)
    client.ask(*[time.monotonic() + 60] * 4)
    assert [request.number for request in inbox.take(3, 1 << 20, 0.0)] == [0, 1, 2]
    inbox.finish(1, Answer(202, (), b""))
    assert inbox.again() == 1
    assert [request.number for request in inbox.take(10, 1 << 20, 0.0)] == [1, 2, 3]


def test_finishing_requests_that_were_answered_leaves_the_loop_alone(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = Inbox(loop, 10, 1 << 20)
    client = Client(loop, inbox)
    requests = client.ask(*[time.monotonic() + 60] * 3)
    assert len(inbox.take(3, 1 << 20, 0.0)) == 3
    inbox.answer([(0, Answer(200, (), b"")), (1, Answer(200, (), b""))])
    call, calls = loop.call_soon_threadsafe, list[object]()

    def counted(*given: Any) -> None:
        calls.append(given)
        call(*given)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    inbox.finish(2, Answer(202, (), b""))
    assert (calls, inbox.running) == ([], 1)
    inbox.finish(3, Answer(202, (), b""))
    assert [client.status(request) for request in requests] == [200, 200, 202]


def test_positions_are_awaited_as_long_as_a_client_below_them_has_no_answer(loop: asyncio.AbstractEventLoop) -> None:
    inbox = Inbox(loop, 10, 1 << 20)
    client = Client(loop, inbox)
    first, second = client.ask(60.0 + time.monotonic(), 60.0 + time.monotonic())
    assert len(inbox.take(10, 1 << 20, 1.0)) == 2
    assert inbox.awaits(1)
    inbox.answer([(first.number, Answer(200, (), b""))])
    assert not inbox.awaits(1)
    assert inbox.awaits(2)
    inbox.again()
    assert len(inbox.take(10, 1 << 20, 0.0)) == 2
    assert second.number == 1
    assert inbox.awaits(1), "it runs again"
