"""The control port: metrics and health over plain HTTP, by default on localhost only."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import SecretStr

from connectors.http.exchange import Answer, HttpRequest
from pipelines.errors import StreamerError
from streamer.observe import commands, letters
from streamer.observe.admission import admitted, refusal
from streamer.observe.dashboard import dashboard
from streamer.observe.events import Events, encoded
from streamer.observe.scrape import Measurable, ScrapeCollector
from streamer.observe.shown import masked
from streamer.observe.turns import Turns

_METHODS: Final = ("GET", "HEAD", "POST")
_OWN: Final = ("/metrics", "/", "/config", "/events", "/state", "/letters")
"""The paths besides health and pages."""
_SAFE: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Observed(Measurable, commands.Commanded, letters.Lettered, Protocol):
    """A running service as the endpoint sees it."""

    def state(self) -> Mapping[str, Any]:
        """Its counters as they are and the state of its parts, as plain data."""

    def configuration(self) -> Mapping[str, Any]:
        """The fields of its definition as plain data, without secrets."""

    def note(self) -> str | None:
        """What a service that is ready waits for; `None`: nothing."""

    def pages(self) -> Mapping[str, Mapping[str, Callable[[], Any]]]:
        """The pages of the service's sources, by name of the page and of the source (`Source.pages`)."""


class Endpoint:
    """Serves `/metrics`, `/live`, `/ready`, `/config`, the dashboard (`/`) and what it shows (`/events`, once `/state`)
    for the services of this process that name the same address, pages of their sources, such as `/cameras` (a JSON
    object by service and source), their dead letters (`/letters`), and takes their commands.

    `/health`, the path of Konduit Serving's own server, is another name of `/live`. With a `token`, metrics are only
    for clients that send it (`Authorization: Bearer TOKEN`); others get health without reasons and names, so that
    probes need no token.
    """

    _open: dict[str, Endpoint] = {}  # noqa: RUF012 - one listener an address, whatever the number of services
    _guard = threading.Lock()

    def __init__(self, listen: str, token: SecretStr | None = None) -> None:
        host, _, port = listen.rpartition(":")
        self._hosts: dict[str, frozenset[str]] = {}
        self._observed: dict[str, Observed] = {}
        self._metrics = ScrapeCollector(self._observed)
        self._events = Events(self._report)
        self._turns = Turns("letters of the control port", letters.PATIENCE)
        self._token = token
        self.listen = listen
        from connectors.http.port import HttpPort

        try:
            self._port = HttpPort(host.strip("[]") or "127.0.0.1", int(port), self._answer, methods=_METHODS)
        except (OSError, ValueError, OverflowError) as error:
            raise StreamerError(f'control.listen "{listen}": {error}; choose another address or port') from error

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it really listens on (port 0 means any free one)."""
        return self._port.address

    @classmethod
    def join(
        cls, listen: str, name: str, observed: Observed, token: SecretStr | None = None, hosts: Iterable[str] = ()
    ) -> Endpoint:
        """The endpoint at this address, opened if there is none yet, now also serving this service, also to requests
        that name one of these `hosts`.

        Raises `StreamerError` for an address that cannot be had, one that is open with another token, and one where a
        service of this name is.
        """
        with cls._guard:
            endpoint = cls._open.get(listen)
            if endpoint is None:
                endpoint = cls(listen, token)
                # Port 0 is a new port each time, so it cannot be shared.
                if not listen.endswith(":0"):
                    cls._open[listen] = endpoint
            if endpoint._token != token:
                raise StreamerError(
                    f'control.listen "{listen}": another service of this process has it with another token; '
                    "give both the same, or another port"
                )
            if name in endpoint._observed:
                raise StreamerError(
                    f'control.listen "{listen}": a service "{name}" of this process is there already, and their '
                    "metrics could not be told apart; give each a name of its own"
                )
            endpoint._observed[name] = observed
            endpoint._hosts[name] = frozenset(hosts)
            return endpoint

    def leave(self, name: str) -> None:
        """Remove a service that has ended; when the last one leaves, the port is closed."""
        with self._guard:
            self._observed.pop(name, None)
            self._hosts.pop(name, None)
            if not self._observed:
                self._open.pop(self.listen, None)
                self._port.close()
                self._turns.close()

    def _answer(self, request: HttpRequest) -> Answer | Awaitable[Answer]:
        if letters.is_of_letters(request.path):
            return self._answer_letters(request)
        return _safe(self._route(request))

    async def _answer_letters(self, request: HttpRequest) -> Answer:
        if (no := letters.forbidden(request, self._secret, self._listed)) is not None:
            return _safe(no)
        meant = self._meant(request)
        if isinstance(meant, Answer):
            return _safe(meant)
        name, observed = meant
        return _safe(
            await self._turns.answer(
                lambda until: letters.answered(request, name, observed, until), letters.advice(request.method)
            )
        )

    def _route(self, request: HttpRequest) -> Answer:
        if commands.is_command(request.path):
            return self._command(request)
        if request.method == "POST":
            return Answer(405, commands.NO_COMMAND.body, headers={"Allow": "GET, HEAD"})
        trusted = self._is_trusted(request)
        if request.path in ("/live", "/health"):
            return self._health(lambda service: service.live(), trusted)
        if request.path == "/ready":
            return self._health(lambda service: service.ready(), trusted, lambda service: service.note())
        pages = self._pages()
        if request.path not in _OWN and request.path not in pages:
            there = ", ".join([*_OWN, *sorted(pages)])
            return Answer(404, json.dumps({"error": f"there are {there}, /live (also /health) and /ready"}).encode())
        # The page has no data, and a browser that opens it has no token to send yet.
        if not trusted and (request.path != "/" or self._token is None):
            return refusal(self._secret)
        if request.path == "/":
            return dashboard(with_token=self._token is not None)
        if request.path == "/events":
            return self._events.answer()
        if request.path == "/state":
            return Answer(200, encoded(self._states()))
        if request.path == "/config":
            shown = {name: observed.configuration() for name, observed in list(self._observed.items())}
            return Answer(200, json.dumps(shown, default=str).encode())
        if request.path != "/metrics":
            return Answer(200, masked(json.dumps(_documents(pages[request.path]), default=str)).encode())
        return Answer(200, generate_latest(self._metrics), CONTENT_TYPE_LATEST)

    def _states(self) -> dict[str, Any]:
        return {name: {"service": name, **observed.state()} for name, observed in list(self._observed.items())}

    async def _report(self) -> Mapping[str, Any]:
        return self._states()

    def _command(self, request: HttpRequest) -> Answer:
        if (no := commands.forbidden(request, self._secret, self._listed)) is not None:
            return no
        meant = self._meant(request)
        return meant if isinstance(meant, Answer) else commands.carried_out(request, *meant)

    def _meant(self, request: HttpRequest) -> tuple[str, Observed] | Answer:
        """The name and the service that a request is about, or the answer where there is no such service."""
        name = commands.service_of(request, list(self._observed))
        if isinstance(name, Answer):
            return name
        observed = self._observed.get(name)
        if observed is None:
            return commands.answered(404, error=f'the service "{name}" has ended')
        return name, observed

    def _pages(self) -> dict[str, dict[str, Mapping[str, Callable[[], Any]]]]:
        """The pages of all services: by path, service and source."""
        pages: dict[str, dict[str, Mapping[str, Callable[[], Any]]]] = {}
        for name, observed in list(self._observed.items()):
            for page, sources in observed.pages().items():
                pages.setdefault(f"/{page}", {})[name] = sources
        return pages

    @property
    def _secret(self) -> str | None:
        return None if self._token is None else self._token.get_secret_value()

    def _is_trusted(self, request: HttpRequest) -> bool:
        return admitted(request, self._secret, self._listed)

    @property
    def _listed(self) -> set[str]:
        return {host for hosts in list(self._hosts.values()) for host in hosts}

    def _health(
        self,
        ask: Callable[[Observed], str | None],
        trusted: bool,
        note: Callable[[Observed], str | None] = lambda service: None,
    ) -> Answer:
        observed = dict(self._observed)
        troubles = {name: ask(service) for name, service in observed.items()}
        bad = any(trouble is not None for trouble in troubles.values())
        notes = {name: f"ok; {said}" if (said := note(service)) else "ok" for name, service in observed.items()}
        body = {name: masked(text or notes[name]) for name, text in troubles.items()} if trusted else {"ok": not bad}
        return Answer(503 if bad else 200, json.dumps(body).encode())


def _safe(answer: Answer) -> Answer:
    return Answer(answer.status, answer.body, answer.kind, {**_SAFE, **answer.headers}, answer.stream)


def _documents(services: Mapping[str, Mapping[str, Callable[[], Any]]]) -> dict[str, dict[str, Any]]:
    documents: dict[str, dict[str, Any]] = {}
    for service, sources in services.items():
        for source, page in sources.items():
            try:
                document = page()
            except Exception as error:  # noqa: BLE001 - a plug-in may fail in any way
                document = {"error": str(error)}
            documents.setdefault(service, {})[source] = document
    return documents
