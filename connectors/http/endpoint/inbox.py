"""`Inbox`: the requests for one model, from their arrival until they are answered."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from connectors.http.endpoint.request import TRACEPARENT, Answer, Request

NOT_RUN: Final = Answer.refusal(504, "the request waited too long and was not run; send fewer at a time")
STILL_RUNS: Final = Answer.refusal(504, "there is no answer yet; the request runs on, and its result has no receiver")


class Inbox:
    """Requests that wait to be polled, at most `max_waiting` of them and about `max_bytes`, and those that were polled.

    Three threads use it: that of the endpoint's loop puts requests in and takes back those whose client has gone, the
    source's polls them and lets go of those that are acknowledged, the sink's answers them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_waiting: int, max_bytes: int) -> None:
        self._loop = loop
        self._max_waiting = max_waiting
        self._max_bytes = max_bytes
        self._guard = threading.Lock()
        self._signals: SimpleQueue[None] = SimpleQueue()
        """Wakes the thread that waits. A `threading.Condition`, which is written in Python, costs several times as
        much."""
        self._waiting: deque[Request] = deque()
        self._bytes = 0
        self._wanted = 0
        """The number of requests for which a thread waits; 0: none waits."""
        self._woken = False
        self._tells = False
        """Whether `_tell` is to be called."""
        self._next = 0
        self._polled: dict[int, Request] = {}
        """Requests that were polled and are not acknowledged, by number, in the order of their numbers."""
        self.is_open = True
        """Whether requests are accepted."""
        self.late = 0
        """How many requests were not polled before their deadline."""

    @property
    def waiting(self) -> int:
        """How many requests wait to be polled."""
        return len(self._waiting)

    @property
    def held_bytes(self) -> int:
        """About how many bytes the requests take that wait to be polled."""
        return self._bytes

    @property
    def running(self) -> int:
        """How many requests were polled and are not finished."""
        return len(self._polled)

    def put(self, request: Request) -> bool:
        """Number a request and let it wait; `False` if there is no room, or none are accepted any more.

        Called by the loop's thread.
        """
        with self._guard:
            full = len(self._waiting) >= self._max_waiting or (self._waiting and self._bytes >= self._max_bytes)
            if full or not self.is_open:
                return False
            request.number, self._next = self._next, self._next + 1
            self._waiting.append(request)
            self._bytes += request.size
            if self._wanted and len(self._waiting) >= self._wanted and not self._tells:
                # Once for all requests that the loop has before it at present: they make one batch, and one wake-up.
                self._tells = True
                self._loop.call_soon(self._tell)
        return True

    def withdraw(self, request: Request) -> bool:
        """Take a request out that was not polled yet, as its client has gone; `False` if it was polled."""
        with self._guard:
            try:
                self._waiting.remove(request)
            except ValueError:
                return False
            self._bytes -= request.size
        return True

    def await_requests(self, seconds: float) -> bool:
        """Wait up to `seconds` until there is a request, or it is woken; whether there is one."""
        self._wait(1, 1, seconds)
        self._woken = False
        return bool(self._waiting)

    def take(self, max_records: int, max_bytes: int, seconds: float) -> list[Request]:
        """The next requests, in order; waits up to `seconds` until there are `max_records`, or it is woken.

        Requests whose deadline is over are answered instead.
        """
        self._wait(max_records, max_bytes, seconds)
        requests: list[Request] = []
        late: list[Request] = []
        with self._guard:
            self._woken = False
            now, size = time.monotonic(), 0
            while self._waiting and len(requests) < max_records and (size < max_bytes or not requests):
                request = self._waiting.popleft()
                self._bytes -= request.size
                if request.deadline <= now:
                    late.append(request)
                    continue
                size += request.size
                requests.append(request)
                self._polled[request.number] = request
            self.late += len(late)
        if late:
            self._settle([(request, NOT_RUN) for request in late])
        return requests

    def expire(self, now: float) -> None:
        """Answer the requests whose deadline is over; those that wait still are not run any more."""
        waiting: list[Request] = []
        polled: list[Request] = []
        with self._guard:
            while self._waiting and self._waiting[0].deadline <= now:
                request = self._waiting.popleft()
                self._bytes -= request.size
                waiting.append(request)
            self.late += len(waiting)
            late = (request for request in self._polled.values() if request.deadline <= now)
            polled += (request for request in late if not request.reply.done())
        if waiting:
            self._settle([(request, NOT_RUN) for request in waiting])
        if polled:
            self._settle([(request, STILL_RUNS) for request in polled])

    def wake(self) -> None:
        """Make a running `take`, or the next one, return at once."""
        with self._guard:
            self._woken = True
            if self._wanted:
                self._signals.put(None)

    def answer(self, answers: Iterable[tuple[int, Answer]]) -> None:
        """Answer polled requests, by number; an answer whose client has gone, or that was answered, counts as sent."""
        pairs = [(request, answer) for number, answer in answers if (request := self._polled.get(number)) is not None]
        if pairs:
            for request, _ in pairs:
                request.is_answered = True
            self._settle(pairs)

    def traced(self, spans: Iterable[tuple[int, bytes]]) -> None:
        """Polled requests have these spans, by number; their answers name them."""
        for number, trace in spans:
            if (request := self._polled.get(number)) is not None:
                request.trace = trace

    def awaits(self, below: int) -> bool:
        """Whether nobody has answered one of the requests below this number. From any thread."""
        with self._guard:
            return any(not request.is_answered for number, request in self._polled.items() if number < below)

    def again(self) -> int:
        """Requests that were polled and are not finished come again, before the others; the number of the next."""
        with self._guard:
            requests = list(self._polled.values())
            self._polled.clear()
            self._waiting.extendleft(reversed(requests))
            self._bytes += sum(request.size for request in requests)
            for request in requests:
                request.is_answered = False
            return self._waiting[0].number if self._waiting else self._next

    def refuse(self) -> bool:
        """Accept no more requests; whether some that were accepted wait to be polled."""
        with self._guard:
            self.is_open = False
            return bool(self._waiting)

    def finish(self, below: int, answer: Answer) -> None:
        """The requests below this number are done: those that nobody has answered get this answer."""
        done: list[Request] = []
        with self._guard:
            for number in list(self._polled):
                if number >= below:
                    break
                done.append(self._polled.pop(number))
        # Mostly all were answered: then the loop need not be woken, which costs more than everything here.
        left = [(request, answer) for request in done if not request.is_answered]
        if left:
            self._settle(left)

    def close(self, answer: Answer) -> None:
        """Accept no more requests, and give this answer to all that nobody has answered."""
        with self._guard:
            self.is_open = False
            left = [*self._waiting, *self._polled.values()]
            self._waiting.clear()
            self._polled.clear()
            self._bytes = 0
        self._settle([(request, answer) for request in left])

    def _tell(self) -> None:
        with self._guard:
            self._tells = False
            if self._wanted:
                self._signals.put(None)

    def _wait(self, wanted: int, max_bytes: int, seconds: float) -> None:
        """Wait until so many requests wait, or so many bytes, or it is woken; `seconds` at most."""
        until = time.monotonic() + seconds
        while True:
            with self._guard:
                self._wanted = 0
                if self._woken or len(self._waiting) >= wanted or self._bytes >= max_bytes:
                    return
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._wanted = wanted
            try:
                self._signals.get(timeout=left)
            except Empty:
                pass

    def _settle(self, pairs: Sequence[tuple[Request, Answer]]) -> None:
        """Hand answers to the loop, all at once: a call for each would cost more than the answers."""
        try:
            self._loop.call_soon_threadsafe(_resolve, pairs)
        except RuntimeError:
            # The loop has ended, and all clients with it.
            return


def _resolve(pairs: Sequence[tuple[Request, Answer]]) -> None:
    for request, answer in pairs:
        if not request.reply.done():
            if request.trace is not None:
                answer = answer._replace(headers=(*answer.headers, (TRACEPARENT, request.trace)))
            request.reply.set_result(answer)
