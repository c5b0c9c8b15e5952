"""The control port that the parent serves for its workers."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from connectors.http.exchange import Answer, HttpRequest
from connectors.http.port import HttpPort
from pipelines.errors import StreamerError
from streamer.workers import control
from streamer.workers.control import ControlPort, control_ports
from streamer.workers.plan import PlannedService

TOKEN = "a-long-tökén"


class World:
    """Two workers, of which the second may not have opened its port yet, and their parent."""

    def __init__(self, stack: ExitStack) -> None:
        self.gave_up: str | None = None
        self.restarts: Counter[tuple[int, str]] = Counter({(1, "hung"): 1})
        self.poison: Counter[str] = Counter()
        self.answers: dict[str, Answer] = {
            "/ready": Answer(200, b'{"digits": "ok"}'),
            "/metrics": Answer(200, b"# HELP up Up.\n# TYPE up gauge\nup 1.0\n"),
            "/cameras": Answer(200, b'{"digits": {"door": "fine"}}'),
        }
        self.slow: dict[str, Callable[[], Awaitable[Answer]]] = {}
        self.asked: list[HttpRequest] = []
        self._stack = stack
        self._workers = [self._worker()]

    def second_opens(self) -> None:
        self._workers.append(self._worker())

    def port(self, **fields: Any) -> ControlPort:
        service = PlannedService("digits", 120.0, **{"listen": "127.0.0.1:0", **fields})
        (port,) = control_ports([service], self, 2, self._addresses)
        self._stack.callback(port.close)
        return port

    def _addresses(self, worker: int) -> dict[str, tuple[str, int]]:
        return {"digits": self._workers[worker].address} if worker < len(self._workers) else {}

    def _worker(self) -> HttpPort:
        def answer(request: HttpRequest) -> Answer | Awaitable[Answer]:
            self.asked.append(request)
            if request.path in self.slow:
                return self.slow[request.path]()
            return self.answers.get(request.path, Answer(404, b"{}"))

        server = HttpPort("127.0.0.1", 0, answer, methods=("GET", "POST"))
        self._stack.callback(server.close)
        return server


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack)


def get(port: ControlPort, path: str, method: str = "GET", **headers: str) -> tuple[int, Any]:
    host, number = port.address
    request = urllib.request.Request(f"http://{host}:{number}{path}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            text = response.read().decode()
            return response.status, text if path == "/metrics" else json.loads(text)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_service_is_ready_when_all_workers_are(world: World) -> None:
    port = world.port()
    assert get(port, "/ready") == (503, {"0": {"digits": "ok"}, "1": {"digits": "starting"}})
    world.second_opens()
    assert get(port, "/ready") == (200, {"0": {"digits": "ok"}, "1": {"digits": "ok"}})
    world.answers["/ready"] = Answer(503, b'{"digits": "stopping"}')
    assert get(port, "/ready") == (503, {"0": {"digits": "stopping"}, "1": {"digits": "stopping"}})


def test_it_is_live_until_no_worker_is_started_again(world: World) -> None:
    port = world.port()
    assert get(port, "/live") == (200, {"workers": "ok"})
    world.gave_up = "workers died too often"
    assert get(port, "/health") == (503, {"workers": "workers died too often"})


def test_metrics_are_those_of_all_workers_and_of_the_parent(world: World) -> None:
    world.second_opens()
    status, text = get(world.port(), "/metrics")
    assert status == 200
    assert 'up{worker="0"} 1.0\nup{worker="1"} 1.0\n' in text
    assert 'streamer_worker_restarts_total{worker="1",reason="hung"} 1.0\n' in text
    assert 'streamer_poison_records_total{service="digits"} 0.0\n' in text


def test_pages_of_sources_are_told_by_worker(world: World) -> None:
    world.second_opens()
    page = {"digits": {"door": "fine"}}
    assert get(world.port(), "/cameras") == (200, {"0": page, "1": page})
    status, answer = get(world.port(), "/nothing")
    assert status == 404
    assert "/metrics" in answer["error"]


def test_a_letter_is_replayed_by_one_worker_alone(world: World) -> None:
    world.second_opens()
    world.answers["/letters"] = Answer(200, b'{"letters": []}')
    world.answers["/letters/a/replay"] = Answer(409, b'{"error": "it was replayed before"}')
    port = world.port(token=TOKEN)
    bearer = {"Authorization": f"Bearer {TOKEN}".encode().decode("latin-1")}
    assert get(port, "/letters?last=3", **bearer) == (200, {"letters": []})
    assert get(port, "/letters/a/replay", "POST", **bearer) == (409, {"error": "it was replayed before"})
    assert get(port, "/letters")[0] == 401
    assert [(request.method, request.query) for request in world.asked] == [("GET", "last=3"), ("POST", "")]


def test_a_worker_that_does_not_answer_is_not_ready_and_takes_nothing_from_the_others(world: World) -> None:
    world.second_opens()
    world._workers[1].close()
    port = world.port()
    status, whys = get(port, "/ready")
    assert (status, whys["0"]) == (503, {"digits": "ok"})
    assert whys["1"]["digits"].startswith("no answer")
    assert 'up{worker="0"} 1.0\n' in get(port, "/metrics")[1]


def test_with_a_token_strangers_get_health_without_reasons(world: World) -> None:
    port = world.port(token=TOKEN)
    assert get(port, "/ready") == (503, {"ok": False})
    assert get(port, "/live") == (200, {"ok": True})
    assert get(port, "/metrics")[0] == 401
    assert get(port, "/cameras", Authorization="Bearer wrong")[0] == 401


def test_workers_are_asked_with_the_token(world: World) -> None:
    port = world.port(token="a-long-token")
    assert get(port, "/metrics", Authorization="Bearer a-long-token")[0] == 200
    assert world.asked[-1].headers["Authorization"] == "Bearer a-long-token"


def test_the_dashboard_shows_the_services_of_all_workers(world: World) -> None:
    world.second_opens()
    world.answers["/state"] = Answer(200, b'{"services": {"digits": {"service": "digits", "records": {"ok": 3}}}}')
    port = world.port(token="a-long-token")
    token = {"Authorization": "Bearer a-long-token"}
    with urllib.request.urlopen("http://{}:{}/".format(*port.address), timeout=30) as page:
        assert b"<html data-token" in page.read()
    assert get(port, "/events")[0] == 401
    request = urllib.request.Request("http://{}:{}/events".format(*port.address), headers=token)
    with urllib.request.urlopen(request, timeout=30) as events:
        services = json.loads(events.readline().removeprefix(b"data: "))["services"]
    assert {name: state["worker"] for name, state in services.items()} == {"digits, worker 0": 0, "digits, worker 1": 1}
    assert services["digits, worker 1"]["service"] == "digits"
    assert get(port, "/state", **token) == (200, {"services": services})


def test_a_command_reaches_all_workers_or_says_which_it_did_not(world: World) -> None:
    path, token = "/sources/kafka/pause", {"Authorization": "Bearer a-long-token"}
    done = {"service": "digits", "source": "kafka", "state": "paused"}
    world.answers[path] = Answer(200, json.dumps(done).encode())
    port = world.port(token="a-long-token")
    assert get(port, path, "POST")[0] == 401
    assert get(port, path, "POST", **token) == (
        503,
        {"service": "digits", "workers": {"0": done, "1": {"error": "starting"}}},
    )
    world.second_opens()
    assert get(port, path, "POST", **token) == (200, {"service": "digits", "workers": {"0": done, "1": done}})
    assert [request.method for request in world.asked] == ["POST"] * 3
    world.answers[path] = Answer(400, b'{"error": "there is no source"}')
    assert get(port, path, "POST", **token)[0] == 400
    assert get(world.port(), path, "POST")[0] == 403


def test_a_name_that_is_not_listed_gets_no_metrics(world: World) -> None:
    assert get(world.port(), "/metrics", Host="evil.example.com")[0] == 403
    assert get(world.port(hosts=("digits.example.com",)), "/metrics", Host="digits.example.com")[0] == 200


def test_services_of_one_address_have_one_port_and_one_token(world: World) -> None:
    port = world.port()
    listen = f"127.0.0.1:{port.address[1]}"
    with pytest.raises(StreamerError, match="choose another address or port"):
        world.port(listen=listen)
    services = [PlannedService(name, 1.0, listen, token) for name, token in (("a", "x"), ("b", "y"))]
    with pytest.raises(StreamerError, match="with another token"):
        control_ports(services, world, 2, world._addresses)


def test_a_worker_that_hangs_does_not_hold_up_whether_the_service_lives(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_PATIENCE", 60)
    port, asked, goes = world.port(), threading.Event(), threading.Event()

    async def hangs() -> Answer:
        asked.set()
        await asyncio.to_thread(goes.wait, 30)
        return world.answers["/ready"]

    world.slow["/ready"] = hangs
    with ThreadPoolExecutor(1) as thread:
        readiness = thread.submit(get, port, "/ready")
        assert asked.wait(30)
        assert get(port, "/live") == (200, {"workers": "ok"})
        assert not readiness.done()
        goes.set()
        assert readiness.result(30)[0] == 503
