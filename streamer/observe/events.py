"""`Events`: the state of services as a stream of events, once a second for all who read it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final

from connectors.http.exchange import Answer
from streamer.observe.shown import masked

INTERVAL: Final = 1.0
"""Seconds between two events."""
MOST: Final = 16
"""The most streams at a time."""

Report = Callable[[], Awaitable[Mapping[str, Any]]]
"""Gives the states of services by name."""


class Events:
    """Streams of events (`text/event-stream`), each with one JSON object: `{"services": {"digits": {...}}}`.

    All streams get the same bytes, made once. Nothing is kept for a reader that is slow: it gets the newest state when
    it has read the one before, and its connection is closed if it reads nothing for long. To be used in the thread of
    one event loop.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open = 0
        self._tick = -1
        self._event: asyncio.Future[bytes] | None = None

    def answer(self) -> Answer:
        """A new stream, or 503 if there are too many."""
        if self._open >= MOST:
            full = json.dumps({"error": f"{MOST} streams are open, and more are not served; close one"})
            return Answer(503, full.encode(), headers={"Retry-After": "5"})
        return Answer(200, b"", "text/event-stream", stream=self._stream)

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        self._open += 1
        try:
            while True:
                yield await self._newest()
                now = asyncio.get_running_loop().time()
                await asyncio.sleep(INTERVAL - now % INTERVAL)
        finally:
            self._open -= 1

    async def _newest(self) -> bytes:
        tick = int(asyncio.get_running_loop().time() / INTERVAL)
        if self._event is None or tick != self._tick:
            self._tick, self._event = tick, asyncio.ensure_future(self._made())
        # A reader that goes must not take it from the others.
        return await asyncio.shield(self._event)

    async def _made(self) -> bytes:
        return b"data: " + encoded(await self._report()) + b"\n\n"


def encoded(services: Mapping[str, Any]) -> bytes:
    """The states of services as one JSON object, in one line."""
    text = json.dumps({"services": services}, ensure_ascii=False, separators=(",", ":"), default=str)
    return masked(text).encode("utf-8", "replace")
