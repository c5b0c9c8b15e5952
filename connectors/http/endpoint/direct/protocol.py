"""`DirectProtocol`: connections whose usual requests for models need no ASGI task."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from connectors.http.bounds import Bounds
from connectors.http.endpoint.app import App
from connectors.http.endpoint.bodies import LATE
from connectors.http.endpoint.direct.exchange import Exchange
from connectors.http.endpoint.encodings import wanted
from connectors.http.longbody import LONG, LongBodies

_UNUSUAL: Final = frozenset({b"expect", b"transfer-encoding", b"content-encoding", b"upgrade"})
"""Headers of requests that the application answers."""


class DirectProtocol(LongBodies):
    """Puts a request for a model into its inbox if it is not long, and there is nothing unusual about it. All
    others go to the application, by uvicorn, which also bounds what the long bodies of all clients take up.

    A task of asyncio and the messages of ASGI cost twice as much as all else that is done for such a request here.
    """

    def __init__(self, app: App, bounds: Bounds, *arguments: Any, **named: Any) -> None:
        """`app` answers the others; `bounds` as for `BoundedProtocol`, and all else is uvicorn's."""
        super().__init__(bounds, *arguments, **named)
        self._app = app
        self._client = ""
        self._exchange: Exchange | None = None
        """The request whose body arrives."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """See `Connection`."""
        return self.server_state.default_headers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._client = f"{self.client[0]}:{self.client[1]}" if self.client else ""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        exchange = self._exchange
        if exchange is None or self.transport.is_closing():
            return
        # The rest of the body is yet to come.
        if self._timer is None:
            self._timer = self.loop.call_later(exchange.patience, self._body_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._exchange = None
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        exchange = self._usual()
        if exchange is None:
            super().on_headers_complete()
            return
        self._stop_timer()
        self._idle = 0
        self._exchange = exchange
        self.cycle = exchange  # type: ignore[assignment]

    def on_body(self, body: bytes | memoryview) -> None:
        if self._exchange is None:
            super().on_body(body)
            return
        self._idle = 0
        self._exchange.parts.append(bytes(body))

    def on_message_complete(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            super().on_message_complete()
            return
        self._stop_timer()
        exchange.begin(self.headers, self.url.decode("latin-1"), self._client)

    def write(self, data: bytes, *, last: bool) -> None:
        """See `Connection`."""
        self.transport.write(data)
        if last:
            self.transport.close()

    def _usual(self) -> Exchange | None:
        """The request whose head has arrived, if it may take the short way."""
        waits = self.cycle is not None and not self.cycle.response_complete
        if waits or self.flow.write_paused or self.parser.is_left or self._idle > self._bounds.longest_head:
            return None
        headers = dict(self.headers)
        if not _UNUSUAL.isdisjoint(headers) or wanted(headers.get(b"accept-encoding", b"")) is not None:
            return None
        model = self._app.direct(self.url, headers)
        if model is None or self.parser.get_method() != b"POST" or self.parser.get_http_version() != "1.1":
            return None
        if int(headers.get(b"content-length", b"0")[:19]) > min(LONG, model.config.max_body):
            return None
        return Exchange(self, model, keep_alive=self.parser.should_keep_alive())

    def _body_is_late(self) -> None:
        exchange, self._exchange, self._timer = self._exchange, None, None
        if exchange is not None and not self.transport.is_closing():
            exchange.set_result(LATE)
