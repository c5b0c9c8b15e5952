"""What clients get from the listener: answers, refusals, and nothing at the cost of others."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator

import httpx2
import numpy as np
import pytest
from listenerserving import Serving, asked, echo, serving
from waiting import until

from connectors.http import bounds
from connectors.http.endpoint.request import Answer, Request
from connectors.source import Served
from pipelines.errors import ConnectorError
from pipelines.executors.ports import Ports
from pipelines.runners.models.model import Port


@pytest.fixture(scope="module")
def plain() -> Iterator[Serving]:
    with serving(max_body="64KiB") as each:
        yield each


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/v2", 200, "binary_tensor_data"),
        ("GET", "/v2/", 200, "binary_tensor_data"),
        ("GET", "/v2/health/live", 200, "true"),
        ("GET", "/v2/health/ready", 200, "true"),
        ("GET", "/v2/models", 200, "digits"),
        ("GET", "/v2/models/digits", 200, "platform"),
        ("GET", "/v2/models/digits/versions/1", 200, "platform"),
        ("GET", "/v2/models/digits/versions/1/ready", 200, "true"),
        ("GET", "/v2/models/digits/config", 200, "max_batch_size"),
        ("POST", "/v2/repository/index", 200, "READY"),
        ("GET", "/openapi.json", 200, "3.0.3"),
        ("POST", "/v1/digits", 200, "{}"),
        ("POST", "/predict", 200, "{}"),
        ("GET", "/v2/models/digit", 404, 'there is no model "digit"; did you mean "digits"'),
        ("GET", "/v2/models/digits/versions/3", 404, 'has no version "3"; there is 1'),
        ("GET", "/v2/models/digits/versions/3/ready", 404, "there is 1"),
        ("POST", "/v1/other", 404, "there is digits"),
        ("POST", "/v2/models/other/infer", 404, "there is digits"),
        ("POST", "/v2/models/digits/infer", 400, "send such bodies to /v1/digits"),
        ("GET", "/", 404, "/v2/models/NAME/infer"),
        ("GET", "/v1/digits", 405, "POST"),
        ("OPTIONS", "/v1/digits", 405, "POST"),
        ("POST", "/v2/health/live", 405, "GET"),
        ("GET", "/v2/repository/index", 405, "POST"),
        ("POST", "/v2/repository/models/digits/load", 501, "not offered"),
        ("POST", "/v2/systemsharedmemory/region/a/register", 501, "not offered"),
        ("GET", "/v2/models/digits/trace/setting", 501, "not offered"),
        ("POST", "/v2/logging", 501, "not offered"),
        ("GET", "/v2/models/digits/stats", 501, "/metrics"),
    ],
)
def test_every_path_gets_json_with_the_right_status(
    plain: Serving, method: str, path: str, status: int, said: str
) -> None:
    answer = asked(plain, method, path, content=b"{}" if method == "POST" else None)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    assert said in answer.text.replace('\\"', '"')
    assert status < 400 or list(answer.json()) == ["error"]
    assert status != 405 or answer.headers["allow"] in said + ", HEAD"


def test_a_head_request_gets_the_head_of_the_answer(plain: Serving) -> None:
    answer = asked(plain, "HEAD", "/v2")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 10


@pytest.mark.parametrize(
    ("encoding", "body", "status", "said"),
    [
        # Without the time, which would be in the test's name, and differ between workers of a test run.
        ("gzip", gzip.compress(b"[1]", mtime=0), 200, "[1]"),
        ("deflate", zlib.compress(b"[1]"), 200, "[1]"),
        ("deflate", zlib.compress(b"[1]", wbits=-15), 200, "[1]"),
        ("identity", b"[1]", 200, "[1]"),
        ("br", b"[1]", 415, "gzip, deflate"),
        ("gzip", b"[1]", 400, "no gzip"),
        ("gzip", gzip.compress(b"[1]", mtime=0)[:-2], 400, "too early"),
        ("gzip", gzip.compress(b"[1]", mtime=0) + b"x", 400, "more behind"),
        ("gzip", gzip.compress(b"0" * (64 << 20), mtime=0), 413, "max_body"),
        ("deflate", zlib.compress(b"0" * (1 << 20)), 413, "max_body"),
    ],
)
def test_compressed_bodies_are_read_within_the_limit(
    plain: Serving, encoding: str, body: bytes, status: int, said: str
) -> None:
    answer = asked(plain, "POST", "/v1/digits", content=body, headers={"content-encoding": encoding})
    assert (answer.status_code, said in answer.text) == (status, True)


@pytest.mark.parametrize("accepted", ["gzip", "deflate", "gzip, deflate, br", "identity"])
def test_answers_are_compressed_for_those_who_ask_for_one_encoding(plain: Serving, accepted: str) -> None:
    body = json.dumps(["x"] * 500).encode()
    answer = asked(plain, "POST", "/v1/digits", content=body, headers={"accept-encoding": accepted})
    assert answer.content == body
    assert answer.headers.get("content-encoding") == (accepted if accepted in ("gzip", "deflate") else None)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_beyond_the_limit_is_refused(plain: Serving, chunked: bool) -> None:
    parts = [b"0" * 1000] * 100
    answer = asked(plain, "POST", "/v1/digits", content=iter(parts) if chunked else b"".join(parts))
    assert (answer.status_code, answer.json()["error"]) == (413, "the body is larger than 65536 bytes (max_body)")


def test_chunked_bodies_and_a_thousand_requests_on_a_connection(plain: Serving) -> None:
    with httpx2.Client(base_url=plain.url) as client:
        assert client.post("/v1/digits", content=iter([b"[1", b", 2]"])).json() == [1, 2]
    with plain.connected() as connection:
        request = b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n7"
        connection.sendall(request * 1000)
        received = b""
        while received.count(b"\r\n\r\n7") < 1000:
            piece = connection.recv(1 << 16)
            assert piece
            received += piece
    assert plain.inbox.running == plain.inbox.waiting == 0


def test_names_with_slashes_and_blanks_reach_their_service() -> None:
    with serving(name="a model/x") as each:
        assert asked(each, "POST", "/v1/a%20model/x", content=b"1").status_code == 200
        assert asked(each, "GET", "/v2/models/a%20model%2Fx/versions/1").json()["name"] == "a model/x"


def test_services_of_one_address_are_told_apart_by_name_and_leave_one_by_one() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    first = Serving(echo, name="first", listen=listen)
    try:
        with serving(name="second", listen=listen, work=lambda request: echo(request)._replace(body=b"2")):
            assert asked(first, "POST", "/v1/first", content=b"1").content == b"1"
            assert asked(first, "POST", "/v1/second", content=b"1").content == b"2"
            assert "several" not in asked(first, "POST", "/predict", content=b"1").text
            with pytest.raises(ConnectorError, match='a service "first" of this process is there already'):
                Serving(echo, name="first", listen=listen)
            with pytest.raises(ConnectorError, match=r"another service of this process .* another token"):
                Serving(echo, name="third", listen=listen, token="secret")
        assert asked(first, "POST", "/v1/second", content=b"1").status_code == 404
        assert asked(first, "POST", "/v1/first", content=b"1").content == b"1"
    finally:
        first.close()
    with pytest.raises(httpx2.ConnectError):
        asked(first, "GET", "/v2")


def test_an_address_that_is_not_free_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConnectorError, match=f'listen "{listen}": .* choose another address or port'):
            Serving(echo, listen=listen)


def test_only_those_with_the_token_are_answered_and_probes_need_none() -> None:
    with serving(token="secret") as each:
        assert asked(each, "GET", "/v2/health/live").status_code == 200
        assert asked(each, "GET", "/v2/health/ready").status_code == 200
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}):
            for method, path in (("POST", "/v1/digits"), ("GET", "/v2/models"), ("GET", "/v2/models/digits/ready")):
                answer = asked(each, method, path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        right = {"authorization": "Bearer secret", "host": "evil.example.com"}
        assert asked(each, "POST", "/v1/digits", content=b"1", headers=right).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example.com", 403),
        ("evil.example.com:8000", 403),
        ("model.example.com", 200),
        ("model.example.com:8000", 200),
        ("localhost:8000", 200),
        ("[::1]:8000", 200),
        ("streamer", 200),
        ("a b", 403),
    ],
)
def test_a_page_of_somebody_else_cannot_ask_by_a_name_of_its_own(host: str, status: int) -> None:
    with serving(hosts=("model.example.com",)) as each, each.connected() as connection:
        request = f"POST /v1/digits HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1\r\nConnection: close\r\n\r\n7"
        connection.sendall(request.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 %d" % status)


def test_a_service_that_is_not_ready_says_so_and_one_that_is_stuck_is_not_live() -> None:
    with serving(trouble="starting") as each:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/digits/ready"):
            assert asked(each, "GET", path).status_code == 503
        assert asked(each, "POST", "/v2/repository/index").json()[0]["reason"] == "starting"


def test_one_request_more_than_may_wait_is_refused_and_told_when_to_come_again() -> None:
    with serving(max_waiting=2) as each:
        each.pause()
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(asked(each, "POST", "/v1/digits", content=b"1").status_code))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        assert until(lambda: each.inbox.waiting == 2)
        refused = asked(each, "POST", "/v1/digits", content=b"1")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        # Probes and metadata do not wait in that queue.
        assert asked(each, "GET", "/v2/health/live").status_code == 200
        each.paused.clear()
        for thread in threads:
            thread.join()
        assert answers == [200, 200]
        assert each.model.counts.answered == {("http", 503): 1, ("http", 200): 2}


def test_a_request_that_waits_too_long_is_not_run() -> None:
    ran: list[bytes] = []

    def work(request: Request) -> Answer:
        ran.append(request.body)
        return echo(request)

    with serving(work, timeout="200ms") as each:
        each.pause()
        answer = asked(each, "POST", "/v1/digits", content=b"1")
        assert (answer.status_code, "was not run" in answer.text) == (504, True)
        each.paused.clear()
        assert asked(each, "POST", "/v1/digits", content=b"2").status_code == 200
        assert (ran, each.inbox.late) == ([b"2"], 1)


def test_a_request_that_runs_too_long_is_answered_and_its_result_has_no_receiver() -> None:
    def work(request: Request) -> Answer:
        time.sleep(0.6)
        return echo(request)

    with serving(work, timeout="200ms") as each:
        answer = asked(each, "POST", "/v1/digits", content=b"1")
        assert (answer.status_code, "runs on" in answer.text) == (504, True)
        assert until(lambda: each.inbox.running == 0)


def test_a_client_that_goes_takes_its_waiting_request_along() -> None:
    with serving() as each:
        each.pause()
        with each.connected() as connection:
            connection.sendall(b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n7")
            assert until(lambda: each.inbox.waiting == 1)
        assert until(lambda: each.inbox.waiting == 0)
        assert until(lambda: each.model.counts.cancelled == 1)
        each.paused.clear()
        assert asked(each, "POST", "/v1/digits", content=b"1").status_code == 200


def test_a_client_that_goes_in_the_middle_of_its_body_harms_nobody() -> None:
    with serving() as each:
        with each.connected() as connection:
            connection.sendall(b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n7")
            time.sleep(0.05)
        assert asked(each, "POST", "/v1/digits", content=b"1").status_code == 200
        assert each.inbox.waiting == each.inbox.running == 0


def test_heads_that_are_late_or_too_long_and_bytes_that_are_no_http_end_their_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "PATIENCE", 0.2)
    with serving() as each:
        for slow in (b"", b"POST /v1/digits HT", b"POST /v1/digits HTTP/1.1\r\nHost: a\r\n"):
            with each.connected() as connection:
                connection.sendall(slow)
                try:
                    assert connection.recv(100) == b""
                except ConnectionResetError:
                    pass
        with each.connected() as connection:
            connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000)
            assert b" 431 " in connection.recv(100)
        with each.connected() as connection:
            connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 3)
            received = connection.recv(1000)
            assert b" 400 " in received
            assert b'{"error"' in received
        # A connection that has been answered may be silent for longer.
        with httpx2.Client(base_url=each.url) as client:
            assert client.get("/v2").status_code == 200
            time.sleep(0.4)
            assert client.get("/v2").status_code == 200


def test_one_connection_more_than_allowed_is_closed_and_the_others_go_on() -> None:
    with serving(connections=3) as each:
        held = [each.connected() for _ in range(3)]
        try:
            time.sleep(0.05)
            with each.connected() as more:
                try:
                    assert more.recv(1) == b""
                except ConnectionResetError:
                    pass
            held[0].sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b" 200 " in held[0].recv(100)
        finally:
            for connection in held:
                connection.close()
        assert until(lambda: asked(each, "GET", "/v2").status_code == 200)


def test_a_listener_that_ends_answers_those_that_wait() -> None:
    each = Serving(echo)
    each.pause()
    answers: list[int] = []
    thread = threading.Thread(
        target=lambda: answers.append(asked(each, "POST", "/v1/digits", content=b"1").status_code)
    )
    thread.start()
    assert until(lambda: each.inbox.waiting == 1)
    each.close()
    thread.join()
    assert answers == [503]


def test_over_tls_with_a_certificate_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PATIENCE", 1.0)
    with serving(tls={}) as each, each.connected() as silent:
        assert each.url.startswith("https://")
        answer = httpx2.post(each.url + "/v1/digits", content=b"1", verify=False)
        assert answer.status_code == 200
        with pytest.raises(httpx2.HTTPError):
            httpx2.post(each.url.replace("https", "http") + "/v1/digits", content=b"1")
        # One that begins no handshake holds no connection for long.
        assert received(silent, b"never") == b""


def received(connection: socket.socket, until: bytes) -> bytes:
    """What comes, up to these bytes or the end of the connection."""
    data = b""
    try:
        while not data.endswith(until) and (piece := connection.recv(1 << 20)):
            data += piece
    except ConnectionResetError:
        pass
    return data


def test_a_body_that_does_not_come_ends_its_request_in_time() -> None:
    with serving(timeout="200ms") as each:
        for part in (b"", b"7"):
            with each.connected() as connection:
                connection.sendall(b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n" + part)
                assert b" 408 " in received(connection, b"}")
                assert connection.recv(1) == b""


def test_a_request_that_also_asks_for_another_protocol_is_answered_as_any_other(plain: Serving) -> None:
    head = b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    with plain.connected() as connection:
        for body in (b"Content-Length: 3\r\n\r\n[7]", b"Transfer-Encoding: chunked\r\n\r\n3\r\n[8]\r\n0\r\n\r\n"):
            # As the client of Java does it, which goes on with HTTP/1.1; in one piece, and byte by byte.
            connection.sendall(head + body)
            assert b"[7]" in received(connection, b"]") or b"[8]" in body
            for at in range(len(head + body)):
                connection.sendall((head + body)[at : at + 1])
            assert received(connection, b"]").count(b" 200 ") == 1
        connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 200 " in received(connection, b"}")


def test_a_client_that_asks_before_it_sends_learns_first_whether_it_may(plain: Serving) -> None:
    ask = b" HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with plain.connected() as connection:
        connection.sendall(b"POST /v1/digits" + ask % 1)
        assert received(connection, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"7")
        assert b" 200 " in received(connection, b"7")
    for path, length, status in ((b"/v1/other", 5, b" 404 "), (b"/v1/digits", 1 << 40, b" 413 ")):
        with plain.connected() as connection:
            connection.sendall(b"POST " + path + ask % length)
            assert status in received(connection, b"}")
            assert connection.recv(1) == b""


def test_the_connection_of_a_refused_request_can_be_used_again(plain: Serving) -> None:
    with plain.connected() as connection:
        for _ in range(3):
            connection.sendall(b"POST /v1/other HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12")
            connection.sendall(b"345")
            assert b" 404 " in received(connection, b"}")


def test_a_client_that_does_not_read_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PATIENCE", 0.2)
    with serving(lambda request: echo(request)._replace(body=bytes(32 << 20))) as each:
        with each.connected() as connection:
            connection.sendall(b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n7")
            time.sleep(0.8)
            assert len(received(connection, b"end")) < 16 << 20
        # One that reads slowly gets all of it.
        with each.connected() as connection:
            connection.sendall(b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n7")
            size = 0
            while size < 32 << 20:
                size += len(connection.recv(2 << 20))
                time.sleep(0.02)


def test_what_follows_a_chunked_body_is_bounded_too(plain: Serving) -> None:
    with plain.connected() as connection:
        connection.sendall(
            b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n7\r\n0\r\nX: "
        )
        time.sleep(0.05)
        connection.sendall(b"x" * 70_000)
        assert b" 431 " in received(connection, b"}")


def test_bodies_that_arrive_take_a_bounded_amount_of_memory() -> None:
    head = b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n"
    with serving(max_held="1MiB") as each, each.connected() as first, each.connected() as second:
        first.sendall(head + b"0" * 800_000)
        time.sleep(0.1)
        second.sendall(head + b"0" * 800_000)
        assert b" 503 " in received(second, b"}")
        first.sendall(b"0" * 100_000)
        assert b" 200 " in received(first, b"0" * 900_000)


def test_clients_that_go_and_bytes_that_are_no_http_leave_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as each:
        each.pause()
        for data in (b"POST /v1/digits HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n", b"\x00\x01\r\n\r\n"):
            for rest in (b"", b"7"):
                with each.connected() as connection:
                    connection.sendall(data + rest)
                    time.sleep(0.05)
        assert until(lambda: each.model.counts.cancelled == 1)
    assert not caplog.records


def test_requests_to_a_service_that_is_not_ready_are_refused_until_it_is() -> None:
    with serving() as each:
        trouble: list[str] = ["sink results: no broker"]
        each.model.served = Served("digits", Ports(), True, lambda: trouble[0] if trouble else None)
        assert until(lambda: each.model.trouble is not None)
        answer = asked(each, "POST", "/v1/digits", content=b"1")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "sink results: no broker" in answer.json()["error"]
        trouble.clear()
        assert asked(each, "POST", "/v1/digits", content=b"1").status_code == 200


def test_the_document_says_which_tensors_a_model_takes() -> None:
    with serving(codec="inference") as each:
        ports = Ports((Port("x", np.dtype(np.float32), (None, 64)),), (Port("n", np.dtype(np.int64), (1,)),), ())
        each.model.served = Served("digits", ports, True)
        document = asked(each, "GET", "/openapi.json").json()
    body = document["paths"]["/v2/models/digits/infer"]["post"]["requestBody"]["content"]["application/json"]
    first, second = body["schema"]["properties"]["inputs"]["items"]["anyOf"]
    assert (first["properties"]["name"]["enum"], first["properties"]["datatype"]["enum"]) == (["x"], ["FP32"])
    assert first["properties"]["shape"]["example"] == [1, 64]
    assert second["properties"]["datatype"]["enum"] == ["INT64"]


def test_an_error_of_a_service_ends_neither_the_listener_nor_its_json(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str | None:
        raise ValueError("no such intake")

    with serving() as each:
        each.model.served = Served("digits", Ports(), True, broken, broken)
        assert until(lambda: each.model.trouble is not None)
        answer = asked(each, "GET", "/v2/health/ready")
        assert (answer.status_code, list(answer.json())) == (500, ["error"])
        assert "ValueError: no such intake" in caplog.text
        assert asked(each, "POST", "/v1/digits", content=b"1").status_code == 503
        assert asked(each, "GET", "/v2").status_code == 200
