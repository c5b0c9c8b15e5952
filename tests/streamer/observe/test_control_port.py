"""The control port answers probes and scrapes, whatever other clients do to it."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from observed import Quiet
from prometheus_client import Metric
from prometheus_client.registry import Collector
from pydantic import SecretStr
from waiting import until

from connectors.http import bounds, port
from connectors.http.listening import url_of
from pipelines.errors import StreamerError
from streamer.definition.loading import loads
from streamer.observe.endpoint import Endpoint

TOKEN = "a-long-töken"


class Meters(Collector):
    """One metric, with as much help as a test wants."""

    def __init__(self, help_bytes: int = 10) -> None:
        self.help = "x" * help_bytes

    def collect(self) -> Iterator[Metric]:
        """What Prometheus gets."""
        yield Metric("mine", self.help, "gauge")


class Service(Quiet):
    """What the port serves."""

    def __init__(self, help_bytes: int = 10) -> None:
        self.meters = Meters(help_bytes)
        self.trouble: str | None = None
        self.told: Mapping[str, Mapping[str, Callable[[], Any]]] = {}
        self.waits: str | None = None
        self.commands: list[str] = []

    def note(self) -> str | None:
        """What it waits for."""
        return self.waits

    def live(self) -> str | None:
        """Its trouble."""
        return self.trouble

    def pages(self) -> Mapping[str, Mapping[str, Callable[[], Any]]]:
        """What its sources tell."""
        return self.told

    def configuration(self) -> Mapping[str, Any]:
        """Its definition."""
        return {"name": "one"}

    def pause(self, source: str) -> None:
        """Pauses `in`."""
        if source != "in":
            raise StreamerError(f'there is no source "{source}"; there are in')
        self.commands.append("pause")

    def resume(self, source: str) -> None:
        """Begins again."""
        self.commands.append("resume")

    def weigh(self, variant: str, weight: float) -> None:
        """Notes the weight."""
        self.commands.append(f"{variant} {weight}")

    def reload(self) -> None:
        """Notes that."""
        self.commands.append("reload")


@pytest.fixture
def served() -> Iterator[Callable[..., Endpoint]]:
    """Opens a port for a service; closed at the end."""
    with ExitStack() as stack:

        def serve(service: Service | None = None, token: str | None = None, listen: str = "127.0.0.1:0") -> Endpoint:
            secret = None if token is None else SecretStr(token)
            endpoint = Endpoint.join(listen, "one", service or Service(), secret)
            stack.callback(endpoint.leave, "one")
            return endpoint

        yield serve


def connected(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection(endpoint.address, timeout=60)


def asked(endpoint: Endpoint, request: bytes) -> bytes:
    """All that comes back until the server closes."""
    with connected(endpoint) as client:
        client.sendall(request)
        return everything(client)


def everything(client: socket.socket) -> bytes:
    found = bytearray()
    while True:
        try:
            block = client.recv(1 << 20)
        except ConnectionResetError:
            return bytes(found)
        if not block:
            return bytes(found)
        found += block


def get(endpoint: Endpoint, path: str, *headers: str) -> tuple[int, str]:
    lines = [f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]
    head, _, body = asked(endpoint, "\r\n".join(lines).encode()).decode().partition("\r\n\r\n")
    assert f"content-length: {len(body)}" in head
    assert "connection: close" in head
    return int(head.split()[1]), body


@pytest.mark.slow
def test_probes_are_answered_while_many_idle_clients_hold_connections(served: Any) -> None:
    endpoint = served()
    threads, process = threading.active_count(), psutil.Process()
    files = process.num_fds()
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(endpoint)) for _ in range(400)]
        for client in idle[::2]:
            client.sendall(b"GET /live HTT")
        for path in ("/live", "/ready", "/metrics"):
            assert get(endpoint, path)[0] == 200
        assert threading.active_count() == threads
        # The clients' ends are in this process, too.
        assert process.num_fds() - files < 400 + port.CONNECTIONS + 20
        assert everything(idle[0]) == b""


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /live HTTP/1.1\r\n", b"GET /live HTTP/1.1\r\nA: b\r\n"])
def test_a_client_that_does_not_go_on_is_let_go(served: Any, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(bounds, "PATIENCE", 0.3)
    assert asked(served(), sent) == b""


def test_a_client_that_drips_is_let_go(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PATIENCE", 0.5)
    with connected(served()) as client:
        client.sendall(b"GET /live HTTP/1.1\r\nA: ")
        deadline = time.monotonic() + 60
        try:
            while time.monotonic() < deadline:
                client.sendall(b"x")
                time.sleep(0.02)
        except OSError:
            return
        raise AssertionError("it may drip for ever")


def test_a_client_that_never_reads_is_let_go(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The half of a second that is usual here is too short for 20 MB and another request on a busy machine.
    monkeypatch.setattr(bounds, "PATIENCE", 2.0)
    endpoint = served(Service(help_bytes=20_000_000))
    with connected(endpoint) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert get(endpoint, "/live")[0] == 200
        here = client.getsockname()
        until(lambda: here not in [one.raddr for one in psutil.Process().net_connections("tcp")], "the end")
        assert 0 < len(everything(client)) < 20_000_000


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /live HTTP/1.1\r\n" + b"A: b\r\n" * 10_000 + b"\r\n", 431),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /live HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 200),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /live HTTP/3.0\r\n\r\n", 400),
        (b"POST /live HTTP/1.1\r\n\r\n", 405),
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"GET /live?x=1 HTTP/1.0\r\n\r\n", 200),
    ],
)
def test_unknown_requests_get_a_short_answer(served: Any, request_: bytes, status: int) -> None:
    answer = asked(served(), request_)
    assert int(answer.split()[1]) == status
    assert len(answer) < 1000


def test_a_head_is_answered_without_a_body(served: Any) -> None:
    head, _, body = asked(served(), b"HEAD /metrics HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert body == b""


def test_metrics_are_for_who_has_the_token_and_probes_need_none(served: Any) -> None:
    service = Service()
    endpoint = served(service, TOKEN)
    assert get(endpoint, "/metrics")[0] == 401
    for wrong in ("", "Bearer", "Bearer x", f"Bearer {TOKEN}x", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", TOKEN):
        assert get(endpoint, "/metrics", f"Authorization: {wrong}")[0] == 401
    assert get(endpoint, f"/metrics?token={quote(TOKEN)}")[0] == 401
    status, text = get(endpoint, "/metrics", f"Authorization: Bearer {TOKEN}")
    assert (status, "mine" in text) == (200, True)

    assert get(endpoint, "/live") == get(endpoint, "/ready") == (200, '{"ok": true}')
    service.trouble = "broker b:1 away"
    assert get(endpoint, "/live") == get(endpoint, "/ready") == (503, '{"ok": false}')
    status, text = get(endpoint, "/ready", f"authorization: bearer {TOKEN}")
    assert (status, json.loads(text)) == (503, {"one": "broker b:1 away"})


def test_pages_of_sources_are_for_who_has_the_token(served: Any) -> None:
    service = Service()
    url = "rtsp://admin:s3cret@10.0.0.7/live"
    service.told = {"cameras": {"yard": lambda: {"gate": {"url": url, "fps": 1.5}}, "broken": lambda: 1 / 0}}
    endpoint = served(service, token=TOKEN)
    assert get(endpoint, "/cameras")[0] == 401
    status, body = get(endpoint, "/cameras", f"Authorization: Bearer {TOKEN}")
    assert status == 200
    found = json.loads(body)["one"]
    assert found["yard"]["gate"]["fps"] == 1.5
    assert found["broken"] == {"error": "division by zero"}
    assert "s3cret" not in body
    status, body = get(endpoint, "/camera")
    assert status == 404
    assert "there are /metrics, /, /config, /events, /state, /letters, /cameras, /live" in body


def test_secrets_in_reasons_are_masked(served: Any) -> None:
    service = Service()
    service.trouble = "http://me:hunter2@host is away"
    assert "hunter2" not in get(served(service), "/live")[1]


def test_services_that_share_a_port_have_one_token(served: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listen = f"127.0.0.1:{port}"
    served(token=TOKEN, listen=listen)
    for other in (None, SecretStr("other")):
        with pytest.raises(StreamerError, match="with another token"):
            Endpoint.join(listen, "two", Service(), other)
    Endpoint.join(listen, "two", Service(), SecretStr(TOKEN)).leave("two")


def test_a_port_that_was_closed_is_free_again(served: Any) -> None:
    endpoint = served()
    listen = "{}:{}".format(*endpoint.address)
    with connected(endpoint) as idle:
        endpoint.leave("one")
        assert everything(idle) == b""
        assert get(served(listen=listen), "/live")[0] == 200


def test_the_port_of_another_program_is_an_error(served: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(StreamerError, match="choose another address"):
        served(listen=f"127.0.0.1:{taken.getsockname()[1]}")


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_it_listens_on_ipv6_too(served: Any) -> None:
    endpoint = served(listen="[::1]:0")
    assert get(endpoint, "/live")[0] == 200
    with urllib.request.urlopen(f"{url_of(endpoint.address)}/live", timeout=60) as answer:
        assert answer.status == 200


def test_a_token_is_masked_and_an_empty_one_is_an_error(tmp_path: Path, cli: Any) -> None:
    text = "source: {type: memory, topic: a}\npipeline: []\nsink: {type: memory, topic: b}\n"
    control = 'control: {listen: "127.0.0.1:0", token: "${PORT_TOKEN}"}\n'
    service = loads(text + control, environment={"PORT_TOKEN": TOKEN})
    assert TOKEN not in repr(service) + str(service.model_dump())
    with pytest.raises(StreamerError, match=r"control\.token"):
        loads(text + control, environment={"PORT_TOKEN": ""})
    file = tmp_path / "a.yaml"
    file.write_text(text + control.replace("${PORT_TOKEN}", TOKEN))
    ended = cli("check", file)
    assert ended.code == 0
    assert "metrics only with the token" in ended.out
    assert TOKEN not in ended.out


EXHAUSTED = """
import os, resource, sys, threading, time
from prometheus_client import CollectorRegistry
from streamer.observe.endpoint import Endpoint
from streamer.observe.logs import configure
from streamer.observe.metrics import ServiceMeters

class Service:
    meters = ServiceMeters("one", ["s"])
    def live(self): return None
    ready = live
    def pages(self): return {}

configure("info", as_json=True)
endpoint = Endpoint.join("127.0.0.1:0", "one", Service())
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
print(endpoint.address[1], flush=True)
sys.stdin.readline()
before = time.process_time()
time.sleep(3)
print(time.process_time() - before, flush=True)
for one in held:
    os.close(one)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_without_descriptors_it_waits_rather_than_spins_and_answers_when_there_are_some() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", EXHAUSTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = ("127.0.0.1", int(process.stdout.readline()))
        with ExitStack() as stack:
            for _ in range(30):
                client = stack.enter_context(socket.create_connection(address, timeout=60))
                client.sendall(b"GET /live HTTP/1.1\r\n\r\n")
            print(file=process.stdin, flush=True)
            # Spinning would be three seconds of it, or nearly.
            assert float(process.stdout.readline()) < 1.0
            assert everything(client).startswith(b"HTTP/1.1 200 OK")
        print(file=process.stdin, flush=True)
        _, err = process.communicate(timeout=60)
        events = [json.loads(line) for line in err.splitlines()]
        assert [one["event"].partition(" 127.")[0] for one in events] == ["no connection to the control port"]
        assert "Too many open files" in events[0]["event"]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9464", 200),
        ("10.1.2.3:9464", 200),
        ("digits:9464", 200),
        ("digits.ml.svc:9464", 200),
        ("evil.example", 403),
        ("localhost:80@evil.example", 403),
    ],
)
def test_a_page_of_a_stranger_reads_nothing_where_there_is_no_token(host: str, status: int) -> None:
    endpoint = Endpoint.join("127.0.0.1:0", "one", Service(), hosts=["digits.ml.svc"])
    try:
        found = {}
        for path in ("/metrics", "/live"):
            connection = http.client.HTTPConnection(*endpoint.address, timeout=30)
            connection.request("GET", path, headers={"Host": host})
            found[path] = connection.getresponse()
            body = found[path].read()
            connection.close()
        assert found["/metrics"].status == status
        # Probes get their status by any name.
        assert (found["/live"].status, b"one" in body) == (200, status == 200)
        assert found["/metrics"].headers["X-Content-Type-Options"] == "nosniff"
        assert found["/metrics"].headers["Cache-Control"] == "no-store"
    finally:
        endpoint.leave("one")


def test_ready_tells_what_a_service_waits_for_though_it_is_ready(served: Any) -> None:
    service = Service()
    service.waits = "source a: t[0]: a producer's transaction is open"
    endpoint = served(service)
    assert get(endpoint, "/ready") == (200, json.dumps({"one": f"ok; {service.waits}"}))
    assert get(endpoint, "/live") == (200, '{"one": "ok"}')
    service.trouble = "sink b: full"
    assert get(endpoint, "/ready") == (503, '{"one": "sink b: full"}')
