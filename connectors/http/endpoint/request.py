"""`Request`: a client's request on its way through the service. `Answer`: what its client gets."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

JSON: Final = (b"content-type", b"application/json")


class Answer(NamedTuple):
    """An answer: over HTTP as it is; over gRPC `body` is the message if `status` is 200, else `error` the details."""

    status: int
    """The status of HTTP; `connectors.http.rpc.service` has the codes of gRPC for them."""
    headers: Sequence[tuple[bytes, bytes]]
    """Names in lower case. Without the length of the body."""
    body: bytes
    error: str | None = None
    """What was wrong, as in the body; `None`: nothing."""

    @classmethod
    def refusal(cls, status: int, error: str, *headers: tuple[bytes, bytes]) -> Answer:
        """The answer that says what was wrong: `{"error": TEXT}`."""
        return cls(status, (JSON, *headers), json.dumps({"error": error}, ensure_ascii=False).encode(), error)


TRACEPARENT: Final = b"traceparent"
_NO_NAME: Final = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]|^$")
_NO_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What no value of a header holds (RFC 9110, 5.5): a line break would begin another header."""


def sendable(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether these can be headers of an answer."""
    return not any(_NO_NAME.search(name) or _NO_VALUE.search(value) for name, value in headers)


class Reply(Protocol):
    """Receives the answer to a request, in the thread of the endpoint's loop. A future of asyncio is one."""

    def done(self) -> bool:
        """Whether there is an answer, or nobody waits for one any more."""

    def set_result(self, answer: Answer, /) -> None:
        """Take the answer."""


@dataclass(eq=False, slots=True)
class Request:
    """A client's request for one model. Made and answered in the thread of the endpoint's loop.

    `reply` gets the `Answer`; its client may have gone, then it is done and nobody reads the answer.
    """

    body: Any
    """Bytes, or a view of bytes, decompressed; over gRPC the message."""
    headers: Sequence[tuple[bytes, bytes]]
    """Of HTTP, or the metadata of gRPC; names in lower case."""
    reply: Reply
    protocol: Literal["http", "grpc"] = "http"
    path: str = ""
    """The path of HTTP, or the method of gRPC."""
    client: str = ""
    """The client's address, `host:port`."""
    deadline: float = float("inf")
    """Until when it may wait to be polled, in seconds of `time.monotonic`."""
    arrived: float = 0.0
    """When its last byte had come, in seconds of `time.monotonic`."""
    at: int = 0
    """The same in ms since 1970."""
    is_answered: bool = False
    """Whether its answer was handed over."""
    version: str = ""
    """The version of the model that it names, where there are several; empty: any."""
    trace: bytes | None = None
    """The header `traceparent` of its answer, which names the span that it has here."""
    number: int = field(default=-1)
    """Its number among the requests of its model, from 0, as soon as it is in the inbox."""

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return len(self.body) + 500
