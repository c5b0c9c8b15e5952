"""What web pages of other origins get from a service: nothing by default, and answers where their origin is listed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

import pipelines
import streamer
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.source import HttpSource
from pipelines import Data
from streamer.agent.running import agent_of

PAGE = "https://app.example"
ASKING = {"origin": PAGE, "access-control-request-method": "POST"}
# One for all, as each reads the certificates of the system anew.
CLIENT = httpx2.Client(timeout=20, limits=httpx2.Limits(max_keepalive_connections=0))
Serve = Callable[..., tuple[str, list[float]]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(**fields)` gives the URL of a service, and what it has run."""
    with ExitStack() as stack:

        def served(**fields: Any) -> tuple[str, list[float]]:
            ran: list[float] = []

            def halved(data: Data) -> Data:
                ran.append(data["x"])
                if data["x"] < 0:
                    raise ValueError("x is negative")
                return Data({"y": data["x"] / 2})

            service = streamer.Service(
                name="halves",
                source={"type": "http", "listen": "127.0.0.1:0", "codec": "json", **fields},
                sink={"type": "http"},
                pipeline=pipelines.Sequence([halved]),
            )
            stack.enter_context(service)
            agent = agent_of(service)
            assert agent is not None
            (source,) = agent.sources
            assert isinstance(source, HttpSource)
            return f"http://127.0.0.1:{source.address[1]}/v1/halves", ran

        yield served


def of_pages(answer: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


def test_by_default_no_page_gets_a_permission(serve: Serve) -> None:
    url, ran = serve()
    asked = CLIENT.options(url, headers=ASKING)
    assert (asked.status_code, of_pages(asked), ran) == (405, {}, [])
    answer = CLIENT.post(url, content='{"x": 1}', headers={"origin": PAGE})
    assert (answer.status_code, of_pages(answer), "vary" in answer.headers) == (200, {}, False)


def test_pages_of_a_listed_origin_may_read_answers_and_errors(serve: Serve) -> None:
    url, ran = serve(origins=[PAGE], token="secret")
    asked = CLIENT.options(url, headers={**ASKING, "access-control-request-headers": "authorization,content-type"})
    assert (asked.status_code, asked.content, ran) == (204, b"", [])
    allowed = of_pages(asked)
    assert (allowed["access-control-allow-origin"], asked.headers["vary"]) == (PAGE, "origin")
    assert "POST" in allowed["access-control-allow-methods"]
    names = "content-type, authorization, inference-header-content-length"
    assert allowed["access-control-allow-headers"] == names
    token = {"authorization": "Bearer secret"}
    for content, headers, status in (
        ('{"x": 1}', token, 200),
        ('{"x": -1}', token, 500),
        ("{", token, 400),
        ('{"x": 1}', {}, 401),
    ):
        answer = CLIENT.post(url, content=content, headers={"origin": PAGE, **headers})
        assert (answer.status_code, answer.headers["vary"]) == (status, "origin")
        assert of_pages(answer) == {
            "access-control-allow-origin": PAGE,
            "access-control-expose-headers": "inference-header-content-length, retry-after",
        }


def test_pages_of_other_origins_and_programs_get_no_permission(serve: Serve) -> None:
    url, _ = serve(origins=[PAGE])
    other = "https://app.example.evil.example"
    asked = CLIENT.options(url, headers={**ASKING, "origin": other})
    assert (asked.status_code, of_pages(asked)) == (405, {})
    for headers in ({"origin": other}, {"origin": "null"}, {}):
        answer = CLIENT.post(url, content='{"x": 1}', headers=headers)
        # A cache must not give this answer to a page that may read it.
        assert (answer.status_code, of_pages(answer), answer.headers["vary"]) == (200, {}, "origin")


def test_a_star_lets_all_pages_ask_and_the_check_says_so(serve: Serve) -> None:
    url, _ = serve(origins=["*"])
    assert of_pages(CLIENT.post(url, content='{"x": 1}', headers=ASKING))["access-control-allow-origin"] == "*"
    assert "every web page" in HttpSourceConfig(origins=("*",)).notes[-1]
    assert not HttpSourceConfig(origins=(PAGE,)).notes


@pytest.mark.parametrize(
    ("origins", "said"),
    [
        (["https://app.example/page"], 'such as https://app.example, without a path; "https://app.example/page"'),
        (["app.example"], "http://localhost:3000"),
        (["*", PAGE], "leave out the others"),
    ],
)
def test_what_is_no_origin_is_refused_with_what_is_meant(origins: list[str], said: str) -> None:
    with pytest.raises(ValidationError, match="origin") as error:
        HttpSourceConfig(origins=origins)
    assert said in str(error.value)


def test_origins_are_compared_as_browsers_send_them() -> None:
    given = ("HTTPS://App.Example:443", "http://localhost:3000")
    assert HttpSourceConfig(origins=given).origins == (PAGE, "http://localhost:3000")


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


FETCHED = """async ([url, x]) => {
    try {
        const answer = await fetch(url, {
            method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify({x}),
        });
        return [answer.status, await answer.json()];
    } catch (error) {
        return String(error);
    }
}"""


def test_a_browser_asks_for_a_page_of_a_listed_origin_only(serve: Serve, chromium_browser: Any) -> None:
    with HTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://localhost:{server.server_port}"
        page = chromium_browser.new_page()
        page.set_default_timeout(60_000)
        try:
            page.goto(origin)
            closed, ran = serve()
            assert (page.evaluate(FETCHED, [closed, 3]), ran) == ("TypeError: Failed to fetch", [])
            opened, _ = serve(origins=[origin])
            assert page.evaluate(FETCHED, [opened, 3]) == [200, {"y": 1.5}]
            status, error = page.evaluate(FETCHED, [opened, -3])
            assert (status, "x is negative" in error["error"]) == (500, True)
        finally:
            page.close()
            server.shutdown()
