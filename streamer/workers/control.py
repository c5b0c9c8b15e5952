"""`ControlPort`: the control port of a service that workers run, served by their parent for all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from typing import Any, Final, NamedTuple, Protocol

from connectors.http.exchange import Answer, HttpRequest
from pipelines.errors import StreamerError
from streamer.observe import commands, letters
from streamer.observe.admission import admitted, refusal
from streamer.observe.dashboard import dashboard
from streamer.observe.events import Events, encoded
from streamer.observe.shown import masked
from streamer.observe.turns import Turns
from streamer.workers.addresses import Address
from streamer.workers.exposition import merged, of_parent
from streamer.workers.plan import PlannedService

_LIVE: Final = ("/live", "/health")
_SAFE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_PATIENCE: Final = 2.0
"""Seconds to wait for a worker's answer: one that hangs gives none."""
_PATIENCE_WITH_LETTERS: Final = letters.PATIENCE + 0.5
_AT_ONCE: Final = 8
_ANSWERED_AT_ONCE: Final = 4
"""How many requests are answered at a time by asking workers."""
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"


class Supervised(Protocol):
    """What the parent knows of its workers (`Supervisor`)."""

    gave_up: str | None
    restarts: Counter[tuple[int, str]]
    poison: Counter[str]


class _Reply(NamedTuple):
    """What the control port of a service in a worker has answered."""

    worker: int
    service: str
    status: int
    """0: nothing came."""
    text: str


class ControlPort:
    """Serves `/metrics` with a label `worker`, `/live`, `/ready` and pages by worker, and a dashboard. Commands are
    passed on to all workers; dead letters are the same for all, so one of them shows and replays them.

    `/live` is 503 only when no worker is started again any more: until then the parent does what a restart would do.
    `/ready` is 200 if all workers are ready.
    """

    def __init__(
        self,
        services: Sequence[PlannedService],
        supervised: Supervised,
        workers: int,
        addresses: Callable[[int], Mapping[str, Address]],
    ) -> None:
        """`services` name the same address; `addresses` are the control ports of a worker's services.

        Raises `StreamerError` for an address that cannot be had.
        """
        first = services[0]
        listen = first.listen or ""
        if any(service.token != first.token for service in services):
            raise StreamerError(
                f'control.listen "{listen}": another service has it with another token; give both the same, or another '
                "port"
            )
        self._services = [service.name for service in services]
        self._token = first.token
        self._hosts = frozenset(host for service in services for host in service.hosts)
        self._supervised = supervised
        self._workers = workers
        self._addresses = addresses
        self._pool = ThreadPoolExecutor(_AT_ONCE, "ask workers")
        self._answering = ThreadPoolExecutor(_ANSWERED_AT_ONCE, "answers of workers")
        self._events = Events(self._report)
        self._turns = Turns("letters of the control port", _PATIENCE_WITH_LETTERS + 0.5)
        host, _, port = listen.rpartition(":")
        from connectors.http.port import HttpPort

        try:
            self._port = HttpPort(
                host.strip("[]") or "127.0.0.1", int(port), self._answer, methods=("GET", "HEAD", "POST")
            )
        except (OSError, ValueError, OverflowError) as error:
            raise StreamerError(f'control.listen "{listen}": {error}; choose another address or port') from error

    @property
    def address(self) -> Address:
        """Host and port it really listens on."""
        return self._port.address

    def close(self) -> None:
        """Stop listening."""
        self._port.close()
        self._turns.close()
        self._answering.shutdown(wait=False, cancel_futures=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, request: HttpRequest) -> Answer | Awaitable[Answer]:
        # A worker that hangs holds up no question about life, which needs no worker.
        if request.path in _LIVE:
            return self._safe(request)
        if request.path == "/events" and request.method != "POST" and self._is_trusted(request):
            answer = self._events.answer()
            return Answer(answer.status, answer.body, answer.kind, {**_SAFE, **answer.headers}, answer.stream)
        if letters.is_of_letters(request.path):
            return self._answer_letters(request)
        return asyncio.get_running_loop().run_in_executor(self._answering, self._safe, request)

    async def _answer_letters(self, request: HttpRequest) -> Answer:
        if (answer := letters.forbidden(request, self._token, self._hosts)) is None:
            name = commands.service_of(request, self._services)
            if isinstance(name, Answer):
                answer = name
            else:
                answer = await self._turns.answer(
                    lambda until: self._letters(request, name, until), letters.advice(request.method)
                )
        return _safe(answer)

    def _letters(self, request: HttpRequest, name: str, until: float) -> Answer:
        """The answer of the first worker that gives one; a letter is sent by one of them, whatever it answers."""
        asked = f"{request.path}?{request.query}" if request.query else request.path
        method = "POST" if request.method == "POST" else "GET"
        answer = commands.answered(503, error="no worker has started yet; try again")
        for worker in range(self._workers):
            address = self._addresses(worker).get(name)
            patience = min(_PATIENCE_WITH_LETTERS, until - time.monotonic())
            if address is None or patience < _PATIENCE:
                continue
            reply = _reply((worker, name, address), method, asked, request.body, self._token, patience)
            if reply.status:
                return Answer(reply.status, reply.text.encode())
            answer = commands.answered(503, error=f"worker {worker}: {reply.text}; {letters.advice(request.method)}")
            if method == "POST":
                break
        return answer

    def _safe(self, request: HttpRequest) -> Answer:
        return _safe(self._route(request))

    def _route(self, request: HttpRequest) -> Answer:
        if commands.is_command(request.path):
            return self._command(request)
        if request.method == "POST":
            return Answer(405, commands.NO_COMMAND.body, headers={"Allow": "GET, HEAD"})
        trusted = self._is_trusted(request)
        if request.path in _LIVE:
            return self._live(trusted)
        if request.path == "/ready":
            return self._ready(trusted)
        if not trusted and (request.path != "/" or self._token is None):
            return refusal(self._token)
        if request.path == "/":
            return dashboard(with_token=self._token is not None)
        if request.path == "/state":
            return Answer(200, encoded(self._states()))
        replies = list(self._ask(request.path))
        if request.path == "/metrics":
            text = merged((reply.worker, reply.text) for reply in replies if reply.status == 200)
            supervised = self._supervised
            text += of_parent(dict(supervised.restarts), dict(supervised.poison), self._services)
            return Answer(200, text.encode(), _METRICS)
        pages: dict[str, dict[str, Any]] = {}
        for reply in replies:
            if reply.status == 200:
                pages.setdefault(str(reply.worker), {}).update(json.loads(reply.text))
        if not pages:
            there = "/metrics, /, /config, /events, /state, /letters, pages of sources, /live (also /health) and /ready"
            return Answer(404, json.dumps({"error": f"there are {there}"}).encode())
        return Answer(200, masked(json.dumps(pages)).encode())

    def _is_trusted(self, request: HttpRequest) -> bool:
        return admitted(request, self._token, self._hosts)

    def _states(self) -> dict[str, Any]:
        """The states of the services in all workers, each by the names of both."""
        return {
            f"{name}, worker {reply.worker}": {**state, "worker": reply.worker}
            for reply in self._ask("/state")
            if reply.status == 200
            for name, state in json.loads(reply.text)["services"].items()
        }

    async def _report(self) -> Mapping[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._answering, self._states)

    def _command(self, request: HttpRequest) -> Answer:
        """Has all workers carry out a command. If one cannot, its answer comes with those of the others."""
        if (no := commands.forbidden(request, self._token, self._hosts)) is not None:
            return no
        name = commands.service_of(request, self._services)
        if isinstance(name, Answer):
            return name
        replies = list(self._ask(request.path, "POST", request.body, [name]))
        answers: dict[str, Any] = {str(worker): {"error": "starting"} for worker in range(self._workers)}
        for reply in replies:
            answers[str(reply.worker)] = json.loads(reply.text) if reply.status else {"error": reply.text}
        # Of the refusals the highest, as it is the one that may pass.
        status = max([reply.status or 503 for reply in replies], default=503)
        return commands.answered(503 if len(replies) < self._workers else status, service=name, workers=answers)

    def _live(self, trusted: bool) -> Answer:
        reason = self._supervised.gave_up
        body = {"workers": reason or "ok"} if trusted else {"ok": reason is None}
        return Answer(200 if reason is None else 503, masked(json.dumps(body)).encode())

    def _ready(self, trusted: bool) -> Answer:
        whys: dict[str, dict[str, str]] = {
            str(worker): dict.fromkeys(self._services, "starting") for worker in range(self._workers)
        }
        ready = {(reply.worker, reply.service) for reply in self._readiness(whys) if reply.status == 200}
        all_ready = len(ready) == self._workers * len(self._services)
        body: Mapping[str, object] = whys if trusted else {"ok": all_ready}
        return Answer(200 if all_ready else 503, masked(json.dumps(body)).encode())

    def _readiness(self, whys: Mapping[str, dict[str, str]]) -> Iterator[_Reply]:
        """The answers about readiness, whose reasons are put into `whys`."""
        for reply in self._ask("/ready"):
            if reply.status == 0:
                whys[str(reply.worker)][reply.service] = reply.text
            else:
                whys[str(reply.worker)].update(json.loads(reply.text))
            yield reply

    def _ask(
        self, path: str, method: str = "GET", body: bytes | None = None, services: Collection[str] | None = None
    ) -> Iterator[_Reply]:
        """The answers of all workers that have opened their control ports, in the order of workers; those of all
        `services`, or of some."""
        asked = [
            (worker, service, address)
            for worker in range(self._workers)
            for service, address in self._addresses(worker).items()
            if service in (self._services if services is None else services)
        ]
        return self._pool.map(lambda each: _reply(each, method, path, body, self._token), asked)


def _safe(answer: Answer) -> Answer:
    return Answer(answer.status, answer.body, answer.kind, {**_SAFE, **answer.headers})


def _reply(
    asked: tuple[int, str, Address],
    method: str,
    path: str,
    body: bytes | None,
    token: str | None,
    patience: float = _PATIENCE,
) -> _Reply:
    worker, service, address = asked
    # As clients send it that know no better encoding for headers.
    headers = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
    connection = HTTPConnection(*address, timeout=patience)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return _Reply(worker, service, response.status, response.read().decode())
    except (OSError, HTTPException) as error:
        return _Reply(worker, service, 0, f"no answer: {error}")
    finally:
        connection.close()


def control_ports(
    services: Collection[PlannedService],
    supervised: Supervised,
    workers: int,
    addresses: Callable[[int], Mapping[str, Address]],
) -> list[ControlPort]:
    """The control ports of these services, one for each address. Raises `StreamerError` if one cannot be had."""
    by_address: dict[str, list[PlannedService]] = {}
    for number, service in enumerate(services):
        if service.listen is not None:
            # Port 0 is a new port each time, so it cannot be shared.
            key = f"{service.listen} {number}" if service.listen.endswith(":0") else service.listen
            by_address.setdefault(key, []).append(service)
    ports: list[ControlPort] = []
    try:
        for shared in by_address.values():
            ports.append(ControlPort(shared, supervised, workers, addresses))
    except StreamerError:
        for port in ports:
            port.close()
        raise
    return ports
