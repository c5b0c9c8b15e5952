"""The intake thread: polls one source, decodes, hands batches to the run thread, acknowledges.

It alone touches the source. What the run thread has for it comes through a mailbox (a deque); what it has for
the run thread goes through the bounded queue of batches and, out of band, through `control`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from connectors.codec import Codec
from connectors.records import Lane, Records
from connectors.source import LaneEnded, Source, SourceDown, SourceEnded
from pipelines.batch import Batch
from pipelines.errors import StepError
from streamer.batcher import Batcher, Closed
from streamer.observe.metrics import SourceMeters
from streamer.work import SOURCE_BITS, Work

STANDING_STILL = 1.0
"""Seconds without a poll after which the source is told, so that it can give signs of life."""
LATENCY_SAMPLE = 8
"""Of full-sized batches every eighth has its latency measured: reading timestamps costs 0.1 us a record."""


@dataclass(slots=True)
class Settlement:
    """The source is about to lose these lanes: the run thread is to say how far they may be acknowledged."""

    lanes: list[Lane]
    deadline: float
    marks: Mapping[Lane, int] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Ended:
    """These lanes are over."""

    lanes: list[Lane]


@dataclass(frozen=True, slots=True)
class Finished:
    """The intake will hand over nothing more; `error` if that is because it failed."""

    intake: Intake
    error: Exception | None


Control = Settlement | Ended | Finished


class Intake:
    """One source and its thread."""

    def __init__(
        self,
        source: Source,
        codec: Codec,
        batcher: Batcher,
        *,
        index: int,
        wanted: frozenset[str] | None,
        enrich: Callable[[Batch, Records, int], Batch] | None,
        batches: queue.Queue[Work | None],
        control: deque[Control],
        has_room: Callable[[int], bool],
        meters: SourceMeters,
        acknowledge_first: bool,
        log: Any,
    ) -> None:
        self.source = source
        self.meters = meters
        self.ended = False
        self.down: str | None = None
        self.handed_bytes = 0
        self.acknowledged: dict[Lane, int] = {}
        self._codec = codec
        self._batcher = batcher
        self._next_row = index << SOURCE_BITS
        self._wanted = wanted
        self._enrich = enrich
        self._batches = batches
        self._control = control
        self._has_room = has_room
        self._acknowledge_first = acknowledge_first
        self._log = log
        self._mail: deque[tuple[str, Any]] = deque()
        self._stop = threading.Event()
        self._discard = threading.Event()
        self._abandoned = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"intake {source.name}", daemon=True)
        self._batch_count = 0

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def stop(self) -> None:
        """Poll no more; what was polled is still handed over. From any thread."""
        self._stop.set()
        self.source.wake()

    def discard(self) -> None:
        """Poll no more, and hand over nothing more: the service has failed. From any thread."""
        self._discard.set()
        self.stop()

    def abandon(self) -> None:
        """The run thread is gone: wait for it no longer. From any thread."""
        self._abandoned.set()
        self.stop()

    def acknowledge(self, marks: Mapping[Lane, int]) -> None:
        """These positions are done with. From the run thread."""
        self._mail.append(("acknowledge", marks))

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """These lanes are to be delivered again. From the run thread."""
        self._mail.append(("rewind", list(lanes)))

    def close(self, marks: Mapping[Lane, int]) -> None:
        """Acknowledge these last positions, wait until the bus has them, and leave. From the run thread."""
        self._mail.append(("close", marks))

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end; whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        error: Exception | None = None
        try:
            self.source.open(self._settle)
            while not (self._stop.is_set() or self.ended):
                self._serve_mail()
                began = time.perf_counter()
                closed = self._batcher.next(self.source)
                self._forward_events()
                if closed is not None:
                    self.meters.poll.add_one(time.perf_counter() - began)
                    self._hand_over(closed)
            rest = self._batcher.flush()
            if rest is not None:
                self._hand_over(rest)
        except Exception as found:  # noqa: BLE001 - the run thread decides what becomes of the service
            error = found
        self._control.append(Finished(self, error))
        self._wake_run_thread()
        try:
            self._leave()
        except Exception as found:  # noqa: BLE001 - too late to do anything but say so
            self._log.error("the source could not be closed properly", source=self.source.name, error=str(found))

    def _leave(self) -> None:
        try:
            while not self._abandoned.is_set():
                if self._serve_mail():
                    return
                # Rebalances still have to be served while the last batches are confirmed.
                self.source.standing_still(True)
                self._forward_events()
                time.sleep(0.02)
            self._serve_mail()
        finally:
            self.source.close()

    def _serve_mail(self) -> bool:
        """Do what the run thread asked for; whether it asked to leave."""
        marks: dict[Lane, int] = {}
        leave = False
        while self._mail:
            kind, what = self._mail.popleft()
            if kind == "rewind":
                self._log.warning("delivering again", source=self.source.name, lanes=len(what))
                self.source.rewind(what)
                self._forward_events()
                continue
            marks.update(what)
            leave = leave or kind == "close"
        if marks:
            self.source.acknowledge(marks, wait=leave)
            self.acknowledged.update(marks)
        return leave

    def _forward_events(self) -> None:
        gone: list[Lane] = []
        for event in self.source.events():
            if isinstance(event, LaneEnded):
                gone.append(event.lane)
                self.acknowledged.pop(event.lane, None)
            elif isinstance(event, SourceEnded):
                self.ended = True
            elif isinstance(event, SourceDown):
                self.down = event.reason if event.down else None
                self._log.warning("source down" if event.down else "source up", reason=event.reason)
        if gone:
            self._control.append(Ended(gone))
            self._wake_run_thread()

    def _settle(self, lanes: Iterable[Lane], deadline: float) -> Mapping[Lane, int]:
        request = Settlement(list(lanes), deadline)
        self._control.append(request)
        self._wake_run_thread()
        while not request.done.wait(0.05):
            if self._abandoned.is_set() or time.monotonic() >= deadline:
                self._log.warning("lanes were taken away before all their records were done", lanes=len(request.lanes))
                return {}
        return request.marks

    def _hand_over(self, closed: Closed) -> None:
        records = closed.records
        count = len(records)
        first = self._next_row
        self._next_row += count
        began = time.perf_counter()
        decoded = self._codec.decode(records, self._wanted, first)
        batch = decoded.batch if self._enrich is None else self._enrich(decoded.batch, records, first)
        failed = {row: _at_decode(error) for row, error in decoded.failed.items()} if decoded.failed else {}
        tombstones: list[int] = []
        if batch.size + len(failed) < count:
            tombstones = [first + row for row, value in enumerate(records.values) if value is None]
        self.meters.decode.add_one(time.perf_counter() - began)
        self.meters.batch_records.add_one(count)
        self.meters.closed[closed.reason] += 1
        self.meters.polled_rows += count
        work = Work(self.source.name, records, first, batch, failed, tombstones, self._stamps(records))
        if self._acknowledge_first:
            # At most once: a record is done with as soon as it is here.
            positions = {lane: int(records.positions[stop - 1]) + 1 for lane, _, stop in records.spans}
            self.source.acknowledge(positions, wait=True)
        self.handed_bytes += records.byte_count
        self._put(work)

    def _stamps(self, records: Records) -> np.ndarray[Any, Any] | None:
        self._batch_count += 1
        if len(records) > 64 and self._batch_count % LATENCY_SAMPLE:
            return None
        return records.timestamp_column()

    def _put(self, work: Work) -> None:
        """Hand over, waiting for room: a full queue means that nobody polls."""
        since = time.monotonic()
        still = False
        while not (self._abandoned.is_set() or self._discard.is_set()):
            if self._has_room(work.records.byte_count):
                try:
                    self._batches.put(work, timeout=0.05)
                    break
                except queue.Full:
                    pass
            else:
                time.sleep(0.002)
            if self._mail:
                self._serve_mail()
            if time.monotonic() - since >= STANDING_STILL:
                still = True
                self.source.standing_still(True)
                self._forward_events()
        if still:
            self.source.standing_still(False)

    def _wake_run_thread(self) -> None:
        try:
            self._batches.put_nowait(None)
        except queue.Full:
            # It is busy, and looks at `control` before it takes the next batch.
            pass


def _at_decode(error: Exception) -> StepError:
    return StepError.of("decode", error)
