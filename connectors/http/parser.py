"""`RequestParser`: the parser of httptools for clients that also ask for another protocol, as with `Upgrade: h2c`."""

from __future__ import annotations

from typing import Any, Final

import httptools

_FRAMING: Final = (b"content-length", b"transfer-encoding")


class RequestParser:
    """Reads requests, and those that ask for an upgrade like all others, body included: a server may ignore that.

    The HTTP client of Java asks so with its first request. The parser of httptools takes the bytes behind such a head
    for another protocol, so another one reads them, behind a head of the same length of body.
    """

    def __init__(self, protocol: Any) -> None:
        """`protocol` is told of all parts, as by httptools; its `headers` are those of the message."""
        self._protocol = protocol
        self._parser = httptools.HttpRequestParser(protocol)
        self.get_method = self._parser.get_method
        self.get_http_version = self._parser.get_http_version
        self.should_keep_alive = self._parser.should_keep_alive

    @property
    def is_left(self) -> bool:
        """Whether the message that ends now ends only for this parser, as its body is read by another."""
        return self._parser.should_upgrade()

    def should_upgrade(self) -> bool:
        """Never."""
        return False

    def feed_data(self, data: bytes) -> None:
        """Read on. Raises `httptools.HttpParserError`."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = memoryview(data)[upgrade.args[0] :]
            self._go_on()
            if rest:
                self.feed_data(bytes(rest))

    def _go_on(self) -> None:
        method = self._parser.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserError("there is no proxy here")
        framing = [(name, value) for name, value in self._protocol.headers if name in _FRAMING]
        closing = [] if self._parser.should_keep_alive() else [(b"connection", b"close")]
        lines = [method + b" / HTTP/1.1", *(name + b": " + value for name, value in (*framing, *closing)), b"", b""]
        resumed = _Resumed(self._protocol)
        self._parser = httptools.HttpRequestParser(resumed)
        self.get_method = self._parser.get_method
        self.get_http_version = self._parser.get_http_version
        self.should_keep_alive = self._parser.should_keep_alive
        self._parser.feed_data(b"\r\n".join(lines))


class _Resumed:
    """Passes on what a parser reports, but for the head of the first message, which is known already."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._known = True
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if not self._known:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._known:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._known:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._known:
            self._known = False
            return
        self._protocol.on_headers_complete()
