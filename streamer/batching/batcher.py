"""Batchers: gather records until a batch is full or old enough to run."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

from connectors.records import Lane, Records
from connectors.source import Source
from streamer.batching.sizer import BatchSizer
from streamer.batching.waiting import WaitRule
from streamer.definition.settings import BatcherSettings, BatchSettings

Reason = Literal["records", "bytes", "wait", "window", "drain", "target", "round"]

IDLE_WAIT = 0.1
"""Seconds of one wait for records; bounds how late acknowledgements and stops are noticed."""
NEXT_REQUEST = 0.0005
"""Seconds in which another request comes where many clients send: a server of gRPC takes them one after the other."""
SELDOM = 128
"""Requests of one client alone: of so many batches one waits for more."""


class Closed(NamedTuple):
    """A batch that is ready to be decoded and run."""

    records: Records
    """More than `max_records` if several batches were gathered together."""
    reason: Reason
    """Why the batch was closed."""
    seconds: float
    """Seconds from the arrival of its first record until it was closed."""
    arrivals: Sequence[tuple[float, int]] = ()
    """When its records came (seconds on `time.monotonic`) and how many came then, in their order."""


class Batcher(ABC):
    """Gathers records of one source into batches. Used by the source's intake thread only.

    A batch is closed when it is full, as the subclass defines that, or `max_wait` seconds after its first record came
    (`None`: not before it is full).

    Plug-ins bring subclasses by the entry-point group `streamer.batchers`; `BATCHERS` lists all.
    """

    type_name: ClassVar[str] = ""
    """The `batch.type` of a batcher of ours; one of a plug-in has the name of its entry point."""
    settings: ClassVar[type[BatcherSettings]] = BatchSettings
    """The model of the `batch` field of services that use it."""

    def __init__(self, max_records: int, max_bytes: int, max_wait: float | None = None) -> None:
        self.max_records = max_records
        self.max_bytes = max_bytes
        self.max_wait = max_wait
        self.starved = False
        """Whether the source reported after its last poll that no record comes until some are acknowledged."""
        self.emptied_at = -math.inf
        """When the last poll began that gave fewer records than it might, so that no more were there: in seconds of
        `clock`."""
        self.sizer: BatchSizer | None = None
        """Decides how many records may be gathered together; `None`: `max_records`."""
        self.clock: Callable[[], float] = time.monotonic
        """Gives the present time; simulations replace it."""
        self.is_busy: Callable[[], bool] = lambda: False
        """Says whether earlier batches of the source are still being run; the intake thread sets it."""
        self.lanes: Collection[Lane] = ()
        """The lanes that the source delivers at present; the intake thread keeps them up to date."""
        self._blocks: list[Records] = []
        self._count = 0
        self._bytes = 0
        self._since = 0.0
        self._mean_size = 1.0

    @classmethod
    def of(cls, settings: Any) -> Self:
        """The batcher for one source of a service whose `batch` field is this, a `cls.settings`."""
        return cls(settings.max_records, settings.max_bytes)

    def gather(self, source: Source) -> list[Records]:
        """Wait for records, a tenth of a second at most, and add them to the batch. Returns the new ones.

        Call it repeatedly, until a batch is `ready`.
        """
        before = len(self._blocks)
        has_all = False
        if not self._count and source.await_records(IDLE_WAIT) is not False:
            # Records that are there already come as one block: half the cost of polling one record and then the rest.
            self._poll(source, self._to_gather(), self.max_bytes, 0.0)
            has_all = self._count > 0
            if not has_all:
                self._poll(source, 1, self.max_bytes, IDLE_WAIT)
        if self._count and not self.starved and self.full() is None:
            wait = min(max(self.deadline() - self.clock(), 0.0), IDLE_WAIT)
            if wait or not has_all:
                self._poll(source, self._wanted() - self._count, self._bytes_left(), wait)
        return self._blocks[before:]

    def ready(self) -> Closed | None:
        """The batch, if it is full or old enough."""
        if not self._count:
            return None
        reason = self.full()
        if reason is None and self.starved:
            reason = "window"
        if reason is None and self.clock() >= self.deadline():
            reason = "wait"
        return None if reason is None else self._close(reason)

    def flush(self) -> Closed | None:
        """The records gathered so far, when no more come."""
        return self._close("drain") if self._count else None

    def forget(self, lanes: Collection[Lane]) -> None:
        """Remove the records of these lanes, which have ended."""
        if not any(span.lane in lanes for block in self._blocks for span in block.spans):
            return
        kept = (without_lanes(block, lanes) for block in self._blocks)
        self._blocks = [block for block in kept if len(block)]
        self._count = sum(map(len, self._blocks))
        self._bytes = sum(block.byte_count for block in self._blocks)

    @property
    def holds_any(self) -> bool:
        """Whether gathered records wait to be given out."""
        return self._count > 0

    @property
    def count(self) -> int:
        """How many records the batch has."""
        return self._count

    @property
    def byte_count(self) -> int:
        """The size of their payloads and keys."""
        return self._bytes

    @property
    def last_arrival(self) -> float:
        """When the last of its records came, in seconds of `clock`; 0 without records."""
        received = self._blocks[-1].received if self._blocks else None
        return 0.0 if received is None else received

    @abstractmethod
    def full(self) -> Reason | None:
        """Why no more records are to be gathered for the batch; `None`: more are."""

    def deadline(self) -> float:
        """When a batch that is not full is closed, in seconds of `clock`."""
        return float("inf") if self.max_wait is None else self._since + self.max_wait

    def _wanted(self) -> int:
        """How many records a batch waits for."""
        return self.max_records

    def _to_gather(self) -> int:
        return self.max_records if self.sizer is None else self.sizer.to_gather(self._mean_size)

    def _bytes_left(self) -> int:
        return self.max_bytes - self._bytes

    def _poll(self, source: Source, max_records: int, max_bytes: int, wait: float) -> None:
        began = self.clock()
        records = source.poll(max_records, max_bytes, wait)
        self.starved = source.starved()
        is_short = len(records) < max_records and records.byte_count < max_bytes and not self.starved
        # Records that are replaced by newer ones do not pile up.
        if is_short or source.perishable:
            self.emptied_at = began
        self._add(records)

    def _add(self, records: Records) -> None:
        if not len(records):
            return
        if records.received is None:
            records.received = self.clock()
        if not self._count:
            self._since = records.received
        self._blocks.append(records)
        self._count += len(records)
        self._bytes += records.byte_count

    def _close(self, reason: Reason) -> Closed:
        records = Records.concat(self._blocks)
        self._mean_size = max(self._bytes / self._count, 1.0)
        arrivals = [(self._since if block.received is None else block.received, len(block)) for block in self._blocks]
        self._blocks, self._count, self._bytes = [], 0, 0
        return Closed(records, reason, self.clock() - self._since, arrivals)


class SoftBatcher(Batcher):
    """Full at `max_records`, and at `max_bytes`.

    Requests wait only for as many others as there were last: a client that was answered soon sends its next request.
    They wait for half as many more while others are being run, and now and then when none are, as long as the next one
    comes within `NEXT_REQUEST`. So one client alone hardly ever waits, and with many the batches become larger, until
    those that are expected do not come in `max_wait`.
    """

    type_name = "soft"
    wait_rule: WaitRule | None = None
    """Says how long records wait for others, in place of `max_wait`."""
    of_requests = False
    """Whether the records are requests, which wait as said above."""
    _last = 1
    """The number of records in the last batch."""
    _batches = 1
    """The number of this batch."""
    _every = SELDOM
    """Batches whose number this divides wait for more than the last one had, though nothing is being run."""

    @classmethod
    def of(cls, settings: BatchSettings) -> Self:
        """The batcher for one source of a service with these settings."""
        batcher = cls(settings.max_records, settings.max_bytes, settings.max_wait)
        batcher.of_requests = settings.of_requests
        return batcher

    def deadline(self) -> float:
        """When the oldest record has waited long enough, by `wait_rule` if there is one."""
        if self.of_requests:
            if self._count >= self._wanted():
                return self._since
            if self._count >= self._last and not self.is_busy():
                # All that were expected are there.
                return min(self.last_arrival + NEXT_REQUEST, super().deadline())
        return super().deadline() if self.wait_rule is None else self._since + self.wait_rule.max_wait

    def full(self) -> Reason | None:
        """At `max_records` and `max_bytes`."""
        if self._count >= self.max_records:
            return "records"
        return "bytes" if self._bytes >= self.max_bytes else None

    def _wanted(self) -> int:
        if not self.of_requests:
            return self.max_records
        more = 1 + self._last // 2 if self._batches % self._every == 0 or self.is_busy() else 0
        return min(self._last + more, self.max_records)

    def _close(self, reason: Reason) -> Closed:
        if self._count != self._last:
            # The load has changed: more may come, too.
            self._every = 1
        elif self._batches % self._every == 0:
            self._every = min(2 * self._every, SELDOM)
        self._batches += 1
        self._last = self._count
        return super()._close(reason)


class HardBatcher(Batcher):
    """Full only at `max_records`, for models that accept one batch size.

    It gives fewer records at the end, and if the source is starved, as no more records would come.

    A batch never holds more than `max_records`; records whose lane ends meanwhile do not count.
    """

    type_name = "hard"

    @classmethod
    def of(cls, settings: BatchSettings) -> Self:
        """The batcher for one source of a service with these settings."""
        return cls(settings.max_records, settings.max_bytes, settings.max_age)

    def full(self) -> Reason | None:
        """At `max_records`."""
        return "records" if self._count >= self.max_records else None

    def _bytes_left(self) -> int:
        return self.max_bytes


def without_lanes(records: Records, lanes: Collection[Lane]) -> Records:
    """The records that are not of these lanes."""
    return records.of_spans([number for number, span in enumerate(records.spans) if span.lane not in lanes])
