"""`Origins`: lets web pages of other origins ask, which a browser allows only where the server says so (CORS)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

ANY: Final = "*"
"""Stands for the pages of all origins."""
_ORIGIN: Final = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::([0-9]{1,5}))?")
_PORTS: Final = {"http": "80", "https": "443"}

_VARY: Final = (b"vary", b"origin")
_EXPOSED: Final = (b"access-control-expose-headers", b"inference-header-content-length, retry-after")
"""What pages may read besides what a browser shows them of any answer."""
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, HEAD, POST"),
    (b"access-control-allow-headers", b"content-type, authorization, inference-header-content-length"),
    (b"access-control-max-age", b"600"),
    (b"content-length", b"0"),
)


class Origins:
    """Answers the question that a browser sends before a request of a page (OPTIONS), and adds to each answer, errors
    too, that the page may read it: for the pages of the origins that are listed, and no others."""

    def __init__(self, application: Application, listed: Collection[str]) -> None:
        """`application` answers; `listed` are origins as `origin_of` gives them, or `ANY` alone."""
        self._application = application
        self._any = ANY in listed
        self._listed = {origin.encode() for origin in listed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""
        names = {name: value for name, value in scope["headers"] if name in _OF_PREFLIGHT}
        origin = names.get(b"origin")
        added = self._added(origin)
        asks = scope["method"] == "OPTIONS" and b"access-control-request-method" in names
        # It has no token and no body, and names a method that is not its own.
        if asks and len(added) > 1:
            await send({"type": "http.response.start", "status": 204, "headers": [*added, *_PREFLIGHT]})
            await send({"type": "http.response.body", "body": b""})
            return

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *added]
                if len(added) > 1:
                    message["headers"].append(_EXPOSED)
            await send(message)

        await self._application(scope, receive, sent)

    def _added(self, origin: bytes | None) -> tuple[tuple[bytes, bytes], ...]:
        """The headers of an answer to a page of this origin; only `Vary`, where it may not read it."""
        if origin is None or not (self._any or origin in self._listed):
            return (_VARY,)
        return (b"access-control-allow-origin", ANY.encode() if self._any else origin), _VARY


_OF_PREFLIGHT: Final = frozenset({b"origin", b"access-control-request-method"})


def origin_of(text: str) -> str:
    """An origin as browsers send it: in lower case, and without the port that its scheme has anyway.

    Raises `ValueError` if it is none.
    """
    lowered = text.strip().lower()
    if lowered == ANY:
        return ANY
    match = _ORIGIN.fullmatch(lowered)
    if match is None:
        begun = _ORIGIN.match(lowered)
        nearest = f"{begun[0]}, without a path" if begun else "https://app.example or http://localhost:3000"
        raise ValueError(f'an origin is scheme, host and port, such as {nearest}; "{text}" is none')
    scheme, host, port = match.groups()
    return f"{scheme}://{host}" if port in (None, _PORTS[scheme]) else f"{scheme}://{host}:{port}"
