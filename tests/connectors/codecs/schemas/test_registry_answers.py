"""What else may answer at a schema registry's address: a proxy, a web page, another server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from codecsupport import block

from connectors.codecs.registry import codec_of
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.errors import ConnectorError

Answering = Callable[[int, str], str]
"""Answers all requests with this status and body from now on; returns the URL."""


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """A server in the place of a registry."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    given: list[tuple[int, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = given[-1]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()

    def answer(status: int, body: str) -> str:
        given.append((status, body))
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield answer
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, "<html>404 page not found</html>"),
        (404, '{"timestamp": 1, "status": 404, "error": "Not Found"}'),
        (404, '{"errors": ["Not found."]}'),
        (200, "<html>please log in</html>"),
        (200, ""),
        (200, "[]"),
        (200, "5"),
    ],
)
def test_another_server_in_its_place_is_waited_for_and_no_record_is_blamed(
    answering: Answering, status: int, body: str
) -> None:
    url = answering(status, body)
    codec = codec_of({"type": "avro", "registry": {"url": url}}, topic="results")
    told = f"{url}, asked for .*: another server seems to answer, or a proxy; is this the registry's address"
    with pytest.raises(ConnectorError, match=told) as reading:
        codec.decode(block([b"\0\0\0\0\1abc"]), None)
    with pytest.raises(ConnectorError, match=told) as writing:
        codec.encode(Batch.of([Data({"x": 1})]))
    assert reading.value.retriable
    assert writing.value.retriable


def test_an_id_that_the_registry_itself_does_not_know_is_the_failure_of_its_record(answering: Answering) -> None:
    url = answering(404, '{"error_code": 40403, "message": "Schema not found"}')
    decoded = codec_of({"type": "avro", "registry": {"url": url}}).decode(block([b"\0\0\0\0\1abc"]), None)
    assert "has no schema 1" in str(decoded.failed[0])
