"""How often the bytes of a large tensor are copied between the socket and the input of a model."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from listenerserving import Serving, echo, serving

import pipelines
import streamer
from connectors.http import longbody
from connectors.http.endpoint.source import HttpSource
from pipelines import Data
from streamer.agent.running import agent_of

X = np.random.default_rng(5).random((1, 3, 224, 224), np.float32)


def request(pad: int) -> tuple[bytes, bytes]:
    """The head and the body of a request with `X`; its JSON ends with `pad` blanks."""
    about = {"name": "x", "shape": list(X.shape), "datatype": "FP32", "parameters": {"binary_data_size": X.nbytes}}
    text = json.dumps({"inputs": [about]}).encode() + b" " * pad
    lines = [
        "POST /v2/models/sums/infer HTTP/1.1",
        "Host: a",
        f"Content-Length: {len(text) + X.nbytes}",
        f"Inference-Header-Content-Length: {len(text)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode(), text + X.tobytes()


def answered(connection: socket.socket) -> tuple[int, Any]:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 16)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    return int(head[9:12]), json.loads(body)


@pytest.mark.parametrize("pad", range(4))
def test_a_tensor_is_copied_once_between_socket_and_pipeline(pad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces that the socket gave are joined, and the array that the pipeline gets is that memory."""
    came: list[Any] = []
    pieces: list[Any] = []
    joined: list[Any] = []
    arrays: list[Any] = []
    received, join, add = longbody.LongBodies.data_received, longbody.LongBody.joined, longbody.LongBody.add

    def data_received(self: Any, data: bytes) -> None:
        came.append(data)
        received(self, data)

    def added(self: Any, piece: Any) -> bool:
        pieces.append(piece)
        return add(self, piece)

    def joining(self: Any) -> Any:
        joined.append(join(self))
        return joined[-1]

    monkeypatch.setattr(longbody.LongBodies, "data_received", data_received)
    monkeypatch.setattr(longbody.LongBody, "add", added)
    monkeypatch.setattr(longbody.LongBody, "joined", joining)

    def summed(data: Data) -> Data:
        arrays.append(data["x"])
        return Data({"y": float(data["x"].sum())})

    source = {"type": "http", "listen": "127.0.0.1:0"}
    service = streamer.Service(name="sums", source=source, sink={"type": "http"}, pipeline=pipelines.Sequence([summed]))
    with service:
        agent = agent_of(service)
        assert agent is not None
        (opened,) = agent.sources
        assert isinstance(opened, HttpSource)
        with socket.create_connection(opened.address, 30) as connection:
            head, body = request(pad)
            connection.sendall(head + body)
            assert answered(connection)[0] == 200
    assert sum(map(len, pieces)) == len(body)
    sockets = [np.frombuffer(data, np.uint8) for data in came]
    copied = [
        len(piece)
        for piece in pieces
        if not any(np.shares_memory(np.frombuffer(piece, np.uint8), data) for data in sockets)
    ]
    # The parser copies what came together with the head if that is little.
    assert sum(copied) <= longbody.LONG
    (whole,) = joined
    (array,) = arrays
    assert np.array_equal(array, X)
    assert array.flags.aligned
    assert np.shares_memory(array, np.frombuffer(whole, np.uint8))


@pytest.fixture(scope="module")
def plain() -> Iterator[Serving]:
    with serving(echo, max_body="2MiB") as each:
        yield each


LONG = json.dumps("x" * 300_000).encode()


@pytest.mark.parametrize("cuts", [(), (10,), (80,), (40_000,), (90, 100_000, 200_000), (150_000, 300_060)])
def test_a_long_body_is_whole_however_it_arrives_and_the_next_request_is_another(
    plain: Serving, cuts: tuple[int, ...]
) -> None:
    head = b"POST /v1/digits HTTP/1.1\r\nHost: a\r\ncontent-length: %d\r\n\r\n"
    short = head % 1 + b"7"
    sent = head % len(LONG) + LONG + short
    with plain.connected() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start, end in zip((0, *cuts), (*cuts, len(sent)), strict=True):
            connection.sendall(sent[start:end])
            # Otherwise they are one piece when they are read.
            plain.listener.loop.call_soon_threadsafe(lambda: None)
        received = b""
        while not received.endswith(b"\r\n\r\n7"):
            piece = connection.recv(1 << 16)
            assert piece
            received += piece
    assert received.count(b"HTTP/1.1 200") == 2
    assert LONG in received


def test_a_client_of_java_may_send_a_long_body_with_its_question_for_an_upgrade(plain: Serving) -> None:
    head = b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n"
    for first in (0, 1000):
        with plain.connected() as connection:
            connection.sendall(head % len(LONG) + LONG[:first])
            connection.sendall(LONG[first:])
            assert answered(connection) == (200, json.loads(LONG))


def test_a_long_body_that_is_too_long_or_in_chunks_is_treated_as_before(plain: Serving) -> None:
    with plain.connected() as connection:
        connection.sendall(b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + LONG)
        assert answered(connection)[0] == 413
    with plain.connected() as connection:
        chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(LONG), LONG)
        connection.sendall(b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk)
        assert answered(connection) == (200, json.loads(LONG))
