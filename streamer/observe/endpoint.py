"""The control port: metrics and health over plain HTTP. It listens on localhost unless told otherwise."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from pipelines.errors import StreamerError


class Observed(Protocol):
    """A running service as the endpoint sees it."""

    @property
    def meters(self) -> Collector:
        """Its metrics."""

    def live(self) -> str | None:
        """Why it should be restarted; `None` while it makes progress."""

    def ready(self) -> str | None:
        """Why it is not doing its work at present; `None` while it is."""


class Endpoint:
    """Serves `/metrics`, `/live` and `/ready` for the services of this process that name the same address.

    `/health`, the path of Konduit Serving's own server, is another name of `/live`.
    """

    _open: dict[str, Endpoint] = {}  # noqa: RUF012 - one listener an address, whatever the number of services
    _guard = threading.Lock()

    def __init__(self, listen: str) -> None:
        host, _, port = listen.rpartition(":")
        self._observed: dict[str, Observed] = {}
        self._registry = CollectorRegistry()
        self.listen = listen
        try:
            self._server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), self._handler())
        except (OSError, ValueError) as error:
            raise StreamerError(f'control.listen "{listen}": {error}; choose another address or port') from error
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name=f"control {listen}", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port it really listens on (port 0 means any free one)."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    @classmethod
    def join(cls, listen: str, name: str, observed: Observed) -> Endpoint:
        """The endpoint at this address, opened if there is none yet, now also serving this service."""
        with cls._guard:
            endpoint = cls._open.get(listen)
            if endpoint is None:
                endpoint = cls(listen)
                # Port 0 is a new port each time, so it cannot be shared.
                if not listen.endswith(":0"):
                    cls._open[listen] = endpoint
            endpoint._observed[name] = observed
            endpoint._registry.register(observed.meters)
            return endpoint

    def leave(self, name: str) -> None:
        """This service is over; the last one closes the port."""
        with self._guard:
            observed = self._observed.pop(name, None)
            if observed is not None:
                self._registry.unregister(observed.meters)
            if not self._observed:
                self._open.pop(self.listen, None)
                self._server.shutdown()
                self._server.server_close()

    def _health(self, ask: Callable[[Observed], str | None]) -> tuple[int, bytes]:
        troubles = {name: ask(observed) for name, observed in list(self._observed.items())}
        bad = any(trouble is not None for trouble in troubles.values())
        return (503 if bad else 200), json.dumps({name: text or "ok" for name, text in troubles.items()}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                kind = "application/json"
                if path == "/metrics":
                    status, body, kind = 200, generate_latest(endpoint._registry), CONTENT_TYPE_LATEST
                elif path in ("/live", "/health"):
                    status, body = endpoint._health(lambda one: one.live())
                elif path == "/ready":
                    status, body = endpoint._health(lambda one: one.ready())
                else:
                    status, body = 404, b'{"error": "there are /metrics, /live (also /health) and /ready"}'
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Scrapes are not worth a log line each."""

        return Handler
