"""What `batch.target_latency` gives: a service on a simulated clock, with the real batcher, sizer and wait rule.

A batch of n records takes `a + b * n` seconds, for each call of `max_records` of them. The source gives what has come;
batches wait in a queue of two places, from which the pipeline takes what is there together, as in a service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from connectors.records import Lane, Records, Span
from connectors.source import Replays, Settle, Source
from streamer.batching.batcher import Closed, SoftBatcher
from streamer.batching.sizer import BatchSizer
from streamer.batching.waiting import WaitRule

Floats = npt.NDArray[np.float64]

MAX_RECORDS = 512
MAX_BYTES = 16 << 20
MAX_WAIT = 0.005
"""`batch.max_wait` where there is no target."""
PLACES = 2
"""`limits.batches`."""
A, B = 0.002, 0.00005
"""Seconds of a call, and of each record in it."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulated service did."""

    residence: Floats
    """Seconds from the arrival of each record until it was handed over, in the order of arrival."""
    busy: float
    """Seconds that the pipeline ran."""
    batches: int
    ended: float
    """When the last record was handed over."""

    def late(self, target: float) -> float:
        """The share of the records that took longer than `target` seconds."""
        return float((self.residence > target).mean())


def capacity(a: float = A, b: float = B) -> float:
    """The records a second of a pipeline that always has more waiting than a call takes."""
    return MAX_RECORDS / (a + b * MAX_RECORDS)


def arrivals(rates: Iterable[tuple[float, float]], seed: int = 0) -> Floats:
    """When records come that arrive independently of each other: at so many a second for so many seconds, and so on."""
    rng = np.random.default_rng(seed)
    start, parts = 0.0, []
    for rate, seconds in rates:
        parts.append(np.sort(rng.uniform(start, start + seconds, rng.poisson(rate * seconds))))
        start += seconds
    return np.concatenate(parts)


def simulated(times: Floats, target: float | None, *, a: float = A, b: float = B) -> Simulated:
    """A service whose records arrive at `times`, which rise, with this `batch.target_latency` or none."""
    return _Service(times, target, a, b).run()


def compared(load: float = 0.3, target: float = 0.02, seconds: float = 60.0) -> tuple[float, float]:
    """The share of late records with a target, and busy time with it over that without, at this part of the
    capacity."""
    times = arrivals([(load * capacity(), seconds)])
    aimed, plain = simulated(times, target), simulated(times, None)
    return aimed.late(target), aimed.busy / plain.busy


class _Service:
    def __init__(self, times: Floats, target: float | None, a: float, b: float) -> None:
        self.now = 0.0
        self._source = _Bus(times, self)
        self._sizer = BatchSizer(MAX_RECORDS)
        self._rule = None if target is None else WaitRule(target)
        self._batcher = SoftBatcher(MAX_RECORDS, MAX_BYTES, MAX_WAIT)
        self._batcher.clock = self._clock
        self._batcher.wait_rule = self._rule
        self._batcher.sizer = self._sizer
        self._a, self._b = a, b
        self._queue: list[tuple[float, npt.NDArray[np.int64]]] = []
        """Batches that wait for the pipeline: since when, and the places of their records in `times`."""
        self._free_at = 0.0
        """When the pipeline has run all that it has taken."""
        self._running: tuple[float, int] | None = None
        """The batch that is run: when it was taken from the queue, and how many records it has."""
        self._busy = 0.0
        self._batches = 0
        self._ended = np.zeros(len(times))

    def run(self) -> Simulated:
        while not self._source.is_at_end or self._batcher.holds_any:
            self._batcher.gather(self._source)
            closed = self._batcher.ready()
            if closed is not None:
                self._hand_over(closed)
        while self._queue or self._running:
            self.now = max(self._free_at, self.now)
            self._advance()
        return Simulated(self._ended - self._source.times, self._busy, self._batches, float(self._ended.max()))

    def _hand_over(self, closed: Closed) -> None:
        self._advance()
        if len(self._queue) == PLACES:
            self.now = self._free_at
            self._advance()
        self._queue.append((self.now, closed.records.positions))
        self._advance()

    def _clock(self) -> float:
        self._advance()
        return self.now

    def _advance(self) -> None:
        """Let the pipeline end and begin batches up to now."""
        while True:
            if self._running is not None:
                if self._free_at > self.now:
                    return
                begun, rows = self._running
                self._running = None
                self._sizer.ran(rows, self._free_at - begun, last=True)
                if self._rule is not None:
                    self._rule.handed_over(begun, self._free_at)
            if not self._queue:
                return
            self._begin()

    def _begin(self) -> None:
        """Run what waits, together if that is not too much."""
        begun, places = self._queue.pop(0)
        begun = max(begun, self._free_at)
        most = self._sizer.to_gather(1.0)
        while self._queue and self._queue[0][0] <= begun and len(places) + len(self._queue[0][1]) <= most:
            places = np.concatenate([places, self._queue.pop(0)[1]])
        rows = len(places)
        calls = -(-rows // self._sizer.in_one_call(MAX_RECORDS))
        seconds = calls * self._a + rows * self._b
        self._free_at = begun + seconds
        self._running = (begun, rows)
        self._busy += seconds
        self._batches += 1
        self._ended[places] = self._free_at


class _Bus(Source):
    """Gives records that have arrived; a poll moves the clock to when it has as many as it may give, or is over."""

    name, replays = "bus", Replays.OFFSET

    def __init__(self, times: Floats, service: _Service) -> None:
        self.times = times
        self._service = service
        self._next = 0

    @property
    def is_at_end(self) -> bool:
        return self._next == len(self.times)

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        service, first = self._service, self._next
        until = service.now + timeout
        last = first + max_records - 1
        if timeout:
            service.now = max(service.now, min(until, self.times[last] if last < len(self.times) else until))
        stop = min(int(np.searchsorted(self.times, service.now, side="right")), first + max_records)
        self._next = stop
        count = stop - first
        if not count:
            return Records.empty(self.name)
        lane = Lane(self.name, "0", 0)
        positions = np.arange(first, stop)
        return Records(self.name, [None] * count, None, positions, [Span(lane, 0, count)], ["t"], [0], count)

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None: ...
    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None: ...
    def rewind(self, lanes: Iterable[Lane]) -> None: ...
    def close(self) -> None: ...
    def events(self) -> Any:
        """None: the partition stays with it."""
        return []


if __name__ == "__main__":
    for load in (0.02, 0.1, 0.3, 0.6, 0.9):
        late, busy = compared(load)
        print(f"load {load:.2f}: {late:.3%} late, busy time {busy:.2f} of that without a target")
