"""`HttpRequest` and `Answer`: what a port of this program is asked, and what it says; and `Handler`, which answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from email.message import Message
from urllib.parse import unquote

Stream = Callable[[], AsyncGenerator[bytes, None]]
"""Makes the generator of a body's pieces, which is closed when the client has gone."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A client's request."""

    path: str
    """The path without the query, as it was sent."""
    headers: Message
    query: str = ""
    """The query: the part after the `?`."""
    method: str = "GET"
    body: bytes = b""

    @property
    def parts(self) -> list[str]:
        """The path's parts between slashes, percent-decoded."""
        return [unquote(part) for part in self.path.strip("/").split("/")]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stream: Stream | None = None
    """Yields the body's pieces, in the port's thread, for as long as the client reads; `body` is not sent then."""


Handler = Callable[[HttpRequest], Answer | Awaitable[Answer]]
"""Answers a request, in the port's thread: at once, or by an awaitable if that takes time."""
