"""Requests whose bytes arrive at once go a shorter way; clients cannot tell."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from listenerserving import Serving, asked, serving
from waiting import until

from connectors.http.endpoint.app import App
from connectors.http.endpoint.request import Answer, Request


def work(request: Request) -> Answer:
    kind = (b"content-type", b"application/json")
    if request.body == b"break":
        return Answer(200, (kind, (b"x", b"a\r\nset-cookie: b")), request.body)
    if request.body == b"close":
        return Answer(200, (kind, (b"connection", b"close")), request.body)
    if request.body == b"wrong":
        return Answer.refusal(400, "wrong")
    names = b" ".join(sorted(name for name, _ in request.headers))
    return Answer(
        200,
        (kind, (b"x-saw", b"%s %s" % (request.path.encode(), names))),
        request.body * (100 if len(request.body) < 100 else 1),
    )


@pytest.fixture(scope="module")
def each() -> Iterator[Serving]:
    with serving(work, max_body="64KiB") as each:
        yield each


def post(body: bytes, *lines: bytes, path: bytes = b"/v1/digits", version: bytes = b"1.1") -> bytes:
    head = [b"POST %s HTTP/%s" % (path, version), b"Host: a", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join([*head, b"", body])


def received(each: Serving, *pieces: bytes, answers: int = 1) -> bytes:
    """What the server answers, the date left out, and whether it closes the connection behind it."""
    with each.connected() as connection, connection.makefile("rb") as reader:
        for number, piece in enumerate(pieces):
            if number:
                time.sleep(0.02)
            connection.sendall(piece)
        data, closes = b"", False
        for _ in range(answers):
            lines = list(iter(reader.readline, b"\r\n"))
            length = next(int(line.split()[1]) for line in lines if line.startswith(b"content-length"))
            closes = b"connection: close\r\n" in lines
            data += b"".join(line for line in lines if not line.startswith(b"date")) + b"\r\n" + reader.read(length)
        return data + reader.read() + b"<closed>" if closes else data


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post(b"[1,2]"), 200),
        (post(b"[1,2]", b"X-Thing: b", b"Content-Type: application/json"), 200),
        (post(b"wrong"), 400),
        (post(b"break"), 500),
        (post(b"close"), 200),
        (post(b"[1,2]", b"Connection: close"), 200),
        (post(b"[1,2]", version=b"1.0"), 200),
        (post(b"[1,2]", path=b"/v1/digits?a=b"), 200),
        (post(b"[1,2]", path=b"/v1/dig%69ts"), 200),
        (post(b"[1,2]", path=b"/v1/digit"), 404),
        (post(b"[1,2]", path=b"/v2/models/digits/infer"), 400),
        (post(b"[1,2]", b"Accept-Encoding: gzip"), 200),
        (post(b"[1,2]", b"Content-Encoding: br"), 415),
        (post(b"[1,2]").replace(b"POST", b"PUT"), 405),
        (post(b"[1,2]").replace(b"Host: a", b"Host: a.example"), 403),
        (post(b"x" * (64 << 10)), 200),
        (post(b"x" * (64 << 10) + b"x"), 413),
    ],
)
def test_the_same_request_gets_the_same_answer_however_its_bytes_arrive(
    each: Serving, request_: bytes, status: int
) -> None:
    counted = dict(each.model.counts.answered)
    whole = received(each, request_)
    assert whole.startswith(b"HTTP/1.1 %d " % status)
    more = {key: count - counted.get(key, 0) for key, count in each.model.counts.answered.items()}
    cut = request_.index(b"\r\n\r\n") + 4
    assert received(each, request_[:cut], request_[cut:]) == whole
    assert received(each, request_[:10], request_[10:cut], request_[cut : cut + 2], request_[cut + 2 :]) == whole
    again = {key: count - counted.get(key, 0) for key, count in each.model.counts.answered.items()}
    assert again == {key: 3 * count for key, count in more.items()}


def test_a_large_body_is_read_however_it_arrives() -> None:
    body = b"[" + b"1," * (90 << 10) + b"1]"
    with serving(work, max_body="1MiB") as each:
        request = post(body)
        first = received(each, request)
        assert first.endswith(body)
        assert received(each, request[:200], request[200:70_000], request[70_000:]) == first
        assert received(each, request + request, answers=2) == first + first


def test_requests_behind_others_of_a_connection_are_answered_in_their_order(each: Serving) -> None:
    bodies = [b"[%d]" % number for number in range(20)]
    data = received(each, b"".join(map(post, bodies)), answers=20)
    assert re.findall(rb"\r\n\r\n(\[\d+\])", data) == bodies


def test_a_usual_request_needs_no_task(each: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> None:
        raise AssertionError("it went to the application")

    monkeypatch.setattr(App, "__call__", never)
    assert asked(each, "POST", "/v1/digits", content=b"[1]").text == "[1]" * 100


def test_a_client_that_goes_while_its_request_runs_is_counted_and_its_answer_has_no_receiver(each: Serving) -> None:
    each.pause()
    before = each.model.counts.cancelled
    with each.connected() as connection:
        connection.sendall(post(b"[1]"))
        assert until(lambda: each.inbox.waiting == 1)
        (request,) = each.inbox.take(1, 1 << 20, 0.0)
    assert until(lambda: each.model.counts.cancelled == before + 1)
    each.inbox.answer([(request.number, Answer(200, (), b"late"))])
    each.inbox.finish(request.number + 1, Answer(200, (), b""))
    each.paused.clear()
    assert asked(each, "POST", "/v1/digits", content=b"[1]").status_code == 200
