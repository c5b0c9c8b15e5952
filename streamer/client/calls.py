"""`Calls`: the calls over topics that wait for their answers, by the ids that answers repeat."""

from __future__ import annotations

import secrets
import threading
from concurrent.futures import Future
from typing import Final

from pipelines import Data

ID_BYTES: Final = 16
"""Bytes of an id: random, so that nobody else's is the same."""


class Calls:
    """The futures of calls that wait. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[bytes, tuple[Future[Data], float]] = {}
        self._closed: Exception | None = None
        self.strangers = 0
        """Answers to no call that waits: late ones, and those to other clients."""

    def begin(self, future: Future[Data], deadline: float) -> bytes:
        """The id of a new call. Raises the error of `close` after it."""
        number = secrets.token_bytes(ID_BYTES)
        with self._lock:
            if self._closed is not None:
                raise self._closed
            future.set_running_or_notify_cancel()
            self._waiting[number] = future, deadline
        return number

    def end(self, number: bytes | None) -> Future[Data] | None:
        """The future of this call, which does not wait any more; `None`, and counted, if no call with this id waits."""
        with self._lock:
            waiting = None if number is None else self._waiting.pop(number, None)
            self.strangers += waiting is None
        return None if waiting is None else waiting[0]

    def waits(self, number: bytes) -> bool:
        """Whether this call still waits."""
        return number in self._waiting

    def fail(self, number: bytes, error: Exception) -> None:
        """This call, if it still waits, ends with an error."""
        with self._lock:
            waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting[0].set_exception(error)

    def expired(self, now: float) -> list[Future[Data]]:
        """The futures of calls whose deadline is over; they do not wait any more."""
        with self._lock:
            over = [number for number, (_, deadline) in self._waiting.items() if deadline <= now]
            return [self._waiting.pop(number)[0] for number in over]

    def fail_all(self, error: Exception, *, close: bool = False) -> None:
        """All calls that wait end with this error; `close`: later ones, too."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            if close:
                self._closed = self._closed or error
        for future, _ in waiting.values():
            future.set_exception(error)
