"""`Turns`: calls of a control port that take their time: one after the other, with limits of time and number."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Final

from connectors.daemonpool import DaemonPool
from connectors.http.exchange import Answer

_MOST: Final = 8
"""The most calls that wait at a time."""


class Turns:
    """Makes calls in a thread of its own, so that the port goes on answering others meanwhile."""

    def __init__(self, name: str, patience: float) -> None:
        """`patience`: the seconds within which there is an answer, waiting for others included."""
        self._name = name
        self._patience = patience
        self._waiting = 0
        self._pool: DaemonPool | None = None

    async def answer(self, call: Callable[[float], Answer], unknown: str) -> Answer:
        """What `call` answers, whose argument is the time (on `time.monotonic`) at which it should have; else 503.

        `unknown` says what is to be done where there is no answer in time, as the call may still have an effect.
        """
        if self._waiting >= _MOST:
            return _later("others wait for such answers; try again")
        if self._pool is None:
            self._pool = DaemonPool(1, self._name)
        self._waiting += 1
        try:
            future = self._pool.submit(call, time.monotonic() + self._patience)
            async with asyncio.timeout(self._patience):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            return _later(f"no answer within {self._patience:g} s; {unknown}")
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Take no more calls; one that runs is left alone."""
        if self._pool is not None:
            self._pool.shutdown()


def _later(why: str) -> Answer:
    return Answer(503, json.dumps({"error": why}).encode(), headers={"Retry-After": "5"})
