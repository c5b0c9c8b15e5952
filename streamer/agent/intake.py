"""The intake thread: polls one source, decodes, hands batches to the run thread, acknowledges.

It alone touches the source. The run thread sends it messages through a queue of its own; it sends the run thread
batches through the bounded queue, and messages through `control`.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from connectors.codec import Request
from connectors.records import Lane
from connectors.source import LaneBegan, LaneEnded, Replays, Source, SourceDown, SourceEnded, TransactionToken
from pipelines.errors import ConnectorError
from streamer.agent.batchqueue import RunInbox
from streamer.agent.blockdecoder import BlockDecoder
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.messages import (
    Acknowledge,
    Ended,
    Finished,
    Forgettable,
    RevokeRequest,
    Rewind,
    ToIntake,
)
from streamer.agent.stalls import StallWatch
from streamer.batching.batcher import Batcher, Closed
from streamer.delivery.guarantee import Guarantee
from streamer.observe.metrics import SourceMeters

STANDING_STILL = 1.0
"""Seconds without a poll after which `Source.standing_still` is called."""
SIGN_OF_LIFE = 0.1
"""Seconds between two of these calls."""
WAIT = 0.05
"""Seconds of one wait for bytes of the budget."""
LANES_TOLD = 60.0
"""Seconds between two lines of the log about lanes that ended."""
LOOK_AFTER = 0.5
"""Seconds between two calls of `Source.lag`."""


class Intake:
    """One source and its thread."""

    def __init__(
        self,
        source: Source,
        decoder: BlockDecoder,
        batcher: Batcher,
        inbox: RunInbox,
        guarantee: Guarantee,
        meters: SourceMeters,
        stuck_after: float,
        log: Any,
    ) -> None:
        """`stuck_after`: seconds after which a source that has records and delivers none counts as stuck."""
        self.source = source
        self.meters = meters
        self.down: str | None = None
        """Why the source's peer cannot be reached; `None` while it can."""
        self.lag: Mapping[tuple[str, int], int] = {}
        """Records behind the end, by (topic, partition), at most about a second old."""
        self.acknowledged: dict[Lane, int] = {}
        """The positions acknowledged last, of lanes that have not ended."""
        self.handed_over = 0
        """Batches that were put into the queue so far."""
        self.processed = 0
        """Batches of this source that the run thread has run. Written by the run thread."""
        self.starved = False
        """Whether the source gives no more records until some are acknowledged. Written by the intake thread."""
        self.processed_at_commit = -1
        """`processed` at the last commit for which all sent messages were confirmed. Used by the run thread alone."""
        self.rewinds = 0
        """How often the run thread has asked for a rewind."""
        self.progress_at = time.monotonic()
        """When its thread last served its messages, on `time.monotonic`."""
        self.marked_at = -math.inf
        """When it was last told positions to acknowledge, on `time.monotonic`. Used by the run thread alone."""
        self.token: TransactionToken | None = None
        """Commits positions of its present lanes in transactions. Written by the intake thread, after it has reported
        the lanes that ended before."""
        self._decoder = decoder
        self._codec_waits = False
        self._batcher = batcher
        self._inbox = inbox
        self._guarantee = guarantee
        self._stuck_after = stuck_after
        self._told_stuck = False
        self._told_silent = False
        self._log = log
        self._messages: queue.SimpleQueue[ToIntake] = queue.SimpleQueue()
        self._lanes: set[Lane] = set()
        batcher.lanes = self._lanes
        self._left: list[Lane] = []
        self._source_ended = False
        self._rewound = 0
        self._leaving = False
        self._stop = threading.Event()
        self._discard = threading.Event()
        self._opened = threading.Event()
        self._begun = threading.Event()
        self._open_error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"intake {source.name}", daemon=True)
        self._stalls = StallWatch()
        self._still = False
        self._sign_at = 0.0
        self._look_at = 0.0
        self._lanes_untold = 0
        self._tell_lanes_at = 0.0

    def start(self) -> None:
        """Open the source."""
        self._thread.start()

    def wait_until_open(self) -> None:
        """Return when the source is open. Raises the error of opening it."""
        self._opened.wait()
        if self._open_error is not None:
            raise self._open_error

    def begin(self) -> None:
        """Begin to poll. Called once all sources are open: with `at_most_once` a record that is polled is acknowledged,
        and would be lost if another source could not be opened.
        """
        self._begun.set()

    def stop(self) -> None:
        """Poll no more; records that were polled are still handed over. From any thread."""
        self._stop.set()
        self._begun.set()
        self.source.wake()

    def discard(self) -> None:
        """Stop polling and hand over no more batches, as no more are run. From any thread."""
        self._discard.set()
        self.stop()

    def acknowledge(self, marks: Mapping[Lane, int]) -> None:
        """Have the source acknowledge these positions. From the run thread."""
        self.marked_at = time.monotonic()
        self._messages.put(Acknowledge(marks))
        if self.starved or self.source.replays is Replays.SESSION:
            # It may be in the middle of a poll that ends only when this is acknowledged.
            self.source.wake()

    def own(self, marks: Mapping[Lane, int]) -> dict[Lane, int]:
        """Those of these positions that are of its source's lanes."""
        return {lane: position for lane, position in marks.items() if lane.source == self.source.name}

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """Have the source deliver these lanes again, even if it is at its end. From the run thread."""
        self.rewinds += 1
        self._messages.put(Rewind(list(lanes)))

    def close(self, marks: Mapping[Lane, int]) -> None:
        """Acknowledge these last positions, wait until the bus has them, and close the source. From the run thread."""
        if marks:
            self.marked_at = time.monotonic()
        self._messages.put(Acknowledge(marks, last=True))
        self.stop()

    def stuck(self) -> str | None:
        """Why the process should be restarted: no record has come for long, though there are some; `None` while that is
        not so. From any thread.
        """
        now = time.monotonic()
        if not self._begun.is_set() or not self._thread.is_alive():
            return None
        if now - self.progress_at > self._stuck_after:
            return f"source {self.source.name}: its thread has made no progress for {now - self.progress_at:.0f} s"
        stalled = self._stalls.stalled(now, self._stuck_after)
        return None if stalled is None else f"source {self.source.name}: {stalled}"

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end; whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._open()
            self._begun.wait()
            while not self._leaving:
                self._read()
                self._inbox.tell(Finished(self, self._rewound))
                self._rest()
        except BaseException as error:  # noqa: BLE001 - the run thread decides whether the service stops
            self._fail(error)
        try:
            while not self._leaving:
                self._serve_messages(SIGN_OF_LIFE)
        except BaseException as error:  # noqa: BLE001 - as above
            self._fail(error)
        try:
            self.source.close()
        except Exception as error:  # noqa: BLE001 - too late to do anything but log it
            self._log.error("the source could not be closed properly", source=self.source.name, error=str(error))

    def _open(self) -> None:
        try:
            if self._guarantee.transactional:
                self.source.open(self._positions_before_revoke, commits=False)
            else:
                self.source.open(self._positions_before_revoke)
        except BaseException as error:
            self._open_error = error
            raise
        finally:
            self._opened.set()

    def _fail(self, error: BaseException) -> None:
        if self._leaving:
            self._log.error("the last positions may not be acknowledged", source=self.source.name, error=str(error))
            return
        self.down = str(error)
        self._inbox.tell(Finished(self, self._rewound, error))

    def _read(self) -> None:
        """Poll until the source has ended or is to stop. If it fails, earlier records are handed over first."""
        try:
            self._poll()
        except BaseException:
            try:
                self._look_around()
                self._hand_over_the_rest()
            except Exception as second:  # noqa: BLE001 - the first error is the one to report
                self._log.warning("not all could be handed over", source=self.source.name, error=str(second))
            raise
        self._hand_over_the_rest()

    def _poll(self) -> None:
        while not (self._stop.is_set() or self._source_ended):
            self._serve_messages()
            if not self._is_time_to_poll():
                self._stand_still()
                continue
            self._go_on()
            self._gather()
            # Before the batch is closed: records of a lane that has ended do not count.
            self._look_around()
            self._hand_over_what_is_ready()
            if self._left and not self._batcher.holds_any:
                self._inbox.tell(Forgettable(self, self._left, self.handed_over))
                self._left = []

    # Methods of their own, so that no variable refers to records that are handed over: frames of cameras are large.

    def _gather(self) -> None:
        for records in self._batcher.gather(self.source):
            self._stalls.delivered(records)
        self.starved = self._batcher.starved

    def _hand_over_what_is_ready(self) -> None:
        closed = self._batcher.ready()
        if closed is not None:
            self._hand_over(closed)

    def _is_time_to_poll(self) -> bool:
        """Perishable records are polled when they can be run at once: the last batch is done, and the run thread waits.

        Waits for that a little while.
        """
        if not self.source.perishable or self._batcher.holds_any:
            return True
        wanted = self._inbox.batches.wanted(WAIT) and self.processed >= self.handed_over
        return wanted and not self._stop.is_set()

    def _hand_over_the_rest(self) -> None:
        while (rest := self._batcher.flush()) is not None:
            if not self._discard.is_set():
                self._hand_over(rest)

    def _rest(self) -> None:
        """Wait, while the last batches are confirmed, until the source is rewound or is to close.

        Meanwhile it still serves rebalances.
        """
        rewound = self._rewound
        while not self._leaving and self._rewound == rewound and (self._source_ended or self._stop.is_set()):
            self._stand_still()
            self._serve_messages(SIGN_OF_LIFE)

    def _serve_messages(self, timeout: float = 0.0) -> None:
        """Carry out the run thread's messages, in order, waiting up to `timeout` seconds for the first."""
        self.progress_at = time.monotonic()
        marks: dict[Lane, int] = {}
        last = False
        while timeout or not self._messages.empty():
            try:
                message = self._messages.get(timeout=timeout)
            except queue.Empty:
                return
            timeout = 0.0
            if isinstance(message, Rewind):
                self._acknowledge(marks)
                marks = {}
                self._log.warning("delivering again", source=self.source.name, lanes=len(message.lanes))
                self.source.rewind(message.lanes)
                self._look_around()
                self._rewound += 1
                continue
            marks.update(message.marks)
            last = last or message.last
        self._leaving = self._leaving or last
        if marks or last:
            self._acknowledge(marks, wait=last)

    def _acknowledge(self, marks: Mapping[Lane, int], *, wait: bool = False) -> None:
        self.source.acknowledge(marks, wait=wait)
        self.acknowledged.update((lane, position) for lane, position in marks.items() if lane in self._lanes)

    def _look_around(self) -> None:
        """Handle the source's events, and look whether it is stuck."""
        gone: list[Lane] = []
        left: list[Lane] = []
        for event in self.source.events():
            if isinstance(event, LaneBegan):
                self._lanes.add(event.lane)
                self._source_ended = False
            elif isinstance(event, LaneEnded):
                (left if event.finish else gone).append(event.lane)
                self._lanes.discard(event.lane)
                self.acknowledged.pop(event.lane, None)
            elif isinstance(event, SourceEnded):
                self._source_ended = True
            elif isinstance(event, SourceDown):
                self.down = event.reason if event.down else None
                self._log.warning("source down" if event.down else "source up", reason=event.reason)
        if gone:
            self._batcher.forget(gone)
            self._inbox.tell(Ended(gone))
        if left:
            self._lanes_untold += len(left)
            self._inbox.tell(Ended(left, finish=True))
            self._left = self._left + left
        if self._guarantee.transactional:
            self.token = self.source.transaction_token()
        now = time.monotonic()
        if self._lanes_untold and now >= self._tell_lanes_at:
            # Usual for sources that never deliver again: a film begins anew, a camera is connected to again. Once a
            # minute at most, as clients of an endpoint may connect thousands of times.
            tell = self._log.debug if self.source.replays is Replays.NONE else self._log.warning
            tell(
                "lanes ended for good, records already polled are finished",
                source=self.source.name,
                lanes=self._lanes_untold,
            )
            self._lanes_untold, self._tell_lanes_at = 0, now + LANES_TOLD
        if now >= self._look_at:
            self._look_at = now + LOOK_AFTER
            self.lag = self.source.lag()
            if self._still or self.starved or self.down is not None:
                self._stalls.reset()
            else:
                self._stalls.look(self.lag, now)
            reason = self.stuck()
            if reason is not None and not self._told_stuck:
                self._log.error("the source is stuck, /live fails", reason=reason)
            self._told_stuck = reason is not None

    def _positions_before_revoke(self, lanes: Iterable[Lane], deadline: float) -> Mapping[Lane, int]:
        if self._guarantee.transactional:
            self.token = self.source.transaction_token()
        now = time.monotonic()
        request = RevokeRequest(self, list(lanes), now + (deadline - now) / 2, deadline)
        self._inbox.tell(request)
        while (left := deadline - time.monotonic()) > 0:
            self.progress_at = time.monotonic()
            if request.done.wait(min(left, WAIT)):
                return request.marks
        self._log.warning("lanes were taken away before all their records were done", lanes=len(request.lanes))
        return {}

    def _hand_over(self, closed: Closed) -> None:
        began = time.perf_counter()
        parts = self._decoder.decoded(closed, self._wait_for_codec)
        if parts is None:
            return
        if self._codec_waits:
            self._codec_waits, self.down = False, None
        for request in self._decoder.codec.requests():
            self._publish(request)
        count = len(closed.records)
        self.meters.stage("poll", began - closed.seconds, closed.seconds, count)
        self.meters.stage("decode", began, time.perf_counter() - began, count)
        self.meters.batches(count, self._batcher.max_records, closed.reason)
        first = self._guarantee.on_arrival(closed.records)
        if first and not self._acknowledged(first):
            return
        while parts:
            # No variable here refers to a batch that was handed over, so that its images are freed once it was run.
            self._put(parts.popleft())

    def _wait_for_codec(self, seconds: float, reason: str) -> bool:
        """Do not poll for so long, as the codec cannot decode any record; `False` if the service stops meanwhile."""
        self.down, self._codec_waits = reason, True
        again = time.monotonic() + seconds
        while time.monotonic() < again:
            if self._stop.wait(SIGN_OF_LIFE) or self._discard.is_set():
                return False
            self._serve_messages()
            self._stand_still()
        return True

    def _publish(self, request: Request) -> None:
        if self.source.publish(request.topic, request.payload) or self._told_silent:
            return
        self._told_silent = True
        self._log.warning(
            "the codec's request is not published: the source cannot publish, or not now",
            source=self.source.name,
            topic=request.topic,
        )

    def _acknowledged(self, positions: Mapping[Lane, int]) -> bool:
        """Acknowledge these positions before their records are run; `False` if the service stops before it could."""
        while True:
            try:
                self._acknowledge(positions, wait=True)
                return True
            except ConnectorError as error:
                if not error.retriable:
                    raise
                self._log.warning("records wait to be acknowledged", source=self.source.name, error=str(error))
                if self._stop.wait(SIGN_OF_LIFE):
                    return False
                self._stand_still()

    def _put(self, decoded: DecodedBatch) -> None:
        """Put a batch into the queue, waiting for bytes of the budget and a free place. It does not poll meanwhile."""
        reserved = False
        while not self._discard.is_set():
            reserved = reserved or self._inbox.budget.reserve(decoded.records.byte_count, WAIT)
            if reserved and self._inbox.batches.put(decoded, WAIT):
                self.handed_over += 1
                return
            self._serve_messages()
            self._stand_still()

    def _stand_still(self) -> None:
        """Called repeatedly while polling has stopped, so that the source can serve its bus."""
        now = time.monotonic()
        if now < self._sign_at:
            return
        self._sign_at = now + SIGN_OF_LIFE
        self._still = True
        self.source.standing_still(True)
        self._look_around()

    def _go_on(self) -> None:
        """Called before each poll."""
        self._sign_at = time.monotonic() + STANDING_STILL
        if self._still:
            self._still = False
            self.source.standing_still(False)
