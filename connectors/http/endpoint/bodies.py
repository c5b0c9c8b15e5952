"""`Bodies`: the bodies of requests, read within limits of size and time, for each and for all that arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.encodings import decompressed
from connectors.http.endpoint.request import Answer
from connectors.http.longbody import LongBody

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

PER_MIB: Final = 1.0
"""Seconds that each MiB of a body may take besides `timeout`."""
RETRY: Final = (b"retry-after", b"1")
_CLOSE: Final = (b"connection", b"close")
LATE: Final = Answer.refusal(408, "the body did not come in time", _CLOSE)
_DISCARDED: Final = 1 << 20
"""Bytes of a body that are read though nobody wants them: many clients read no answer before all is sent."""
_PATIENCE: Final = 1.0
"""Seconds for those bytes."""


class Bodies:
    """Reads bodies. Those that have arrived in part take `max_held` bytes at most."""

    def __init__(self) -> None:
        self._arriving = 0

    async def read(
        self,
        config: HttpSourceConfig,
        headers: Mapping[bytes, bytes],
        receive: Receive,
        long: LongBody | None,
        *,
        is_there: bool,
    ) -> bytes | memoryview | Answer | None:
        """A body, decompressed, the answer to a request whose body cannot be had, or `None` if the client has gone.

        The bytes of a `long` one are there. `is_there` says that it has arrived already.
        """
        most = config.max_body
        length = _length(headers)
        if length > most:
            return await discarded(_too_large(most), headers, receive)
        encoding = headers.get(b"content-encoding")
        body: bytes | memoryview | Answer | None
        if is_there:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body = message.get("body", b"") if long is None else long.joined()
            if len(body) > most:
                return _too_large(most)
        else:
            body = await self._arrived(config, length, receive, long)
        if encoding is None or body is None or isinstance(body, Answer):
            return body
        return await decompressed(bytes(body), encoding, most)

    async def _arrived(
        self, config: HttpSourceConfig, length: int, receive: Receive, long: LongBody | None
    ) -> bytes | memoryview | Answer | None:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(config.timeout + PER_MIB * length / 2**20):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part: bytes = message.get("body", b"")
                    more = len(part) if long is None else long.not_counted()
                    parts.append(part)
                    size += more
                    self._arriving += more
                    if size > config.max_body:
                        answer = _too_large(config.max_body)
                        return answer._replace(headers=(*answer.headers, _CLOSE))
                    if not message.get("more_body", False):
                        return b"".join(parts) if long is None else long.joined()
                    # One alone always finds room.
                    if self._arriving > config.max_held and self._arriving > size:
                        text = "too many bodies arrive; try again later (max_held)"
                        return Answer.refusal(503, text, RETRY, _CLOSE)
        except TimeoutError:
            return LATE
        finally:
            self._arriving -= size


async def discarded(answer: Answer, headers: Mapping[bytes, bytes], receive: Receive) -> Answer:
    """The answer to a request whose body nobody wants, once the body has arrived; the connection is closed if it is
    long, slow, or waits to be asked for."""
    closing = answer._replace(headers=(*answer.headers, _CLOSE))
    if b"expect" in headers or _length(headers) > _DISCARDED:
        return closing
    left = _DISCARDED
    try:
        async with asyncio.timeout(_PATIENCE):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return answer
    except TimeoutError:
        pass
    return closing


def _length(headers: Mapping[bytes, bytes]) -> int:
    # The parser lets only digits through.
    return int(headers.get(b"content-length", b"0")[:19])


def _too_large(most: int) -> Answer:
    return Answer.refusal(413, f"the body is larger than {most} bytes (max_body)")
