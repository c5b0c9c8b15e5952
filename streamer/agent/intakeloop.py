"""`IntakeLoop`: polls one source, decodes, hands batches to the run thread, acknowledges.

Its thread alone touches the source. The run thread sends it messages through `IntakeState`; it sends the run thread
batches and messages through `RunInbox`.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from connectors.records import Lane
from pipelines.errors import ConnectorError
from streamer.agent.batchqueue import RunInbox
from streamer.agent.blockdecoder import BlockDecoder
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.messages import Ended, Finished, Forgettable, IntakeState, RevokeRequest, Rewind, Stage
from streamer.agent.sourcewatch import SIGN_OF_LIFE, SourceWatch
from streamer.batching.batcher import Batcher, Closed
from streamer.delivery.guarantee import Guarantee
from streamer.observe.metrics import SourceMeters

WAIT = 0.05
"""Seconds of one wait for bytes of the budget."""


class IntakeLoop:
    """What the thread of one source runs, from opening the source to closing it."""

    def __init__(
        self,
        watch: SourceWatch,
        decoder: BlockDecoder,
        batcher: Batcher,
        inbox: RunInbox,
        guarantee: Guarantee,
        meters: SourceMeters,
        log: Any,
        parallel: int = 1,
        on_acknowledged: Callable[[Mapping[Lane, int]], None] | None = None,
        *,
        commits: bool = True,
        catches_up: bool = False,
    ) -> None:
        """`parallel`: how many batches of the source may be run at the same time. `on_acknowledged` is called with
        positions that were acknowledged. `commits`: whether the source commits them itself; if not, transactions do,
        with its tokens. `catches_up`: whether the run thread is to know when all records had come that were handed
        over."""
        self.source = watch.source
        self.watch = watch
        self.state = IntakeState()
        self.opened: Future[None] = Future()
        """Done when the source is open; holds the error if that failed."""
        self._decoder = decoder
        self._batcher = batcher
        batcher.lanes = watch.lanes
        batcher.is_busy = lambda: not self.state.all_processed
        self._inbox = inbox
        self._guarantee = guarantee
        self._meters = meters
        self._log = log
        self._parallel = parallel
        self._on_acknowledged = on_acknowledged
        self._commits = commits
        self._catches_up = catches_up
        self._down_until = self._emptied_at = -math.inf
        """`_emptied_at`: when the last poll began, with a connection, that gave all that was there."""
        self._left: list[Lane] = []
        self._rewound = 0

    def run(self) -> None:
        """Run until the stage is `LEAVE`. Errors go to the run thread, which decides whether the service stops."""
        try:
            self._open()
            self.state.wait_for(Stage.READ)
            while self.state.stage < Stage.LEAVE:
                self._read()
                if self.watch.has_ended:
                    self._catch_up(math.inf)
                self._inbox.tell(Finished(self.state, self._rewound))
                self._rest()
        except BaseException as error:  # noqa: BLE001 - the run thread decides whether the service stops
            self._fail(error)
        try:
            while self.state.stage < Stage.LEAVE:
                self._serve_messages(SIGN_OF_LIFE)
        except BaseException as error:  # noqa: BLE001 - as above
            self._fail(error)
        try:
            self.source.close()
        except Exception as error:  # noqa: BLE001 - too late to do anything but log it
            self._log.error("the source could not be closed properly", source=self.source.name, error=str(error))

    def _open(self) -> None:
        try:
            if self._commits:
                self.source.open(self._positions_before_revoke)
            else:
                self.source.open(self._positions_before_revoke, commits=False)
        except BaseException as error:
            self.opened.set_exception(error)
            raise
        if self.source.await_records(0.0) is not None:
            # Its records come from clients of this process: there is no bus of which to hear first.
            self.watch.is_asked = True
            self._look_around()
        self.opened.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if self.state.stage is Stage.LEAVE:
            self._log.error("the last positions may not be acknowledged", source=self.source.name, error=str(error))
            return
        self.watch.fault = str(error)
        self._inbox.tell(Finished(self.state, self._rewound, error))

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
        while self.source.finish() and self.state.stage < Stage.DISCARD:
            self._gather()
            self._hand_over_what_is_ready()
        self._hand_over_the_rest()

    def _poll(self) -> None:
        while self._may_poll:
            self._serve_messages()
            if self.state.paused and not self.watch.is_asked:
                self._stay_paused()
                continue
            if not self._is_time_to_poll():
                self._stand_still()
                continue
            self.watch.polls()
            was_down = self.watch.down is not None
            self._gather()
            # Before the batch is closed: records of a lane that has ended do not count.
            self._look_around()
            self._hand_over_what_is_ready()
            if self._catches_up:
                self._look_how_far(was_down)
            if self._left and not self._batcher.holds_any:
                self._inbox.tell(Forgettable(self.state, self._left, self.state.handed_over))
                self._left = []

    @property
    def _may_poll(self) -> bool:
        return self.state.stage < Stage.FINISH and not self.watch.has_ended

    # Separate methods, so that no local variable keeps records alive that were handed over: camera frames are large.

    def _gather(self) -> None:
        for records in self._batcher.gather(self.source):
            self.watch.delivered(records)
        self.state.starved = self._batcher.starved

    def _hand_over_what_is_ready(self) -> None:
        closed = self._batcher.ready()
        if closed is not None:
            self._hand_over(closed)

    def _look_how_far(self, was_down: bool) -> None:
        """Tell by when all records had come that were handed over. `was_down`: the last polls began so."""
        if was_down or self.watch.down is not None:
            # They say nothing of what waits behind the connection.
            self._down_until = time.monotonic()
            return
        if self._batcher.emptied_at > self._down_until:
            self._emptied_at = self._batcher.emptied_at
        if self._may_poll and not self._batcher.holds_any:
            self._catch_up(self.source.caught_up(self._emptied_at))

    def _catch_up(self, moment: float) -> None:
        """All records that had come by `moment`, on `time.monotonic`, were handed over."""
        if self._catches_up:
            self.state.caught_up[self.state.handed_over] = moment

    def _stay_paused(self) -> None:
        """Do for up to `WAIT` all but poll. A batch that is not full waits as long as it would without a pause."""
        self._hand_over_what_is_ready()
        self._stand_still()
        self._serve_messages(WAIT)

    def _is_time_to_poll(self) -> bool:
        """Whether records would be run at once: only then are perishable ones polled. Waits for that up to `WAIT`."""
        if not self.source.perishable or self._batcher.holds_any:
            return True
        wanted = self._inbox.batches.wanted(WAIT) and self.state.under_way < self._parallel
        return wanted and self.state.stage is Stage.READ

    def _hand_over_the_rest(self) -> None:
        while (rest := self._batcher.flush()) is not None:
            if self.state.stage < Stage.DISCARD:
                self._hand_over(rest)

    def _rest(self) -> None:
        """Wait, while the last batches are confirmed, until the source is rewound or is to close.

        Meanwhile it still serves rebalances.
        """
        rewound = self._rewound
        while self.state.stage < Stage.LEAVE and self._rewound == rewound and not self._may_poll:
            self._stand_still()
            self._serve_messages(SIGN_OF_LIFE)

    def _serve_messages(self, timeout: float = 0.0) -> None:
        """Carry out the run thread's messages, in order, waiting up to `timeout` seconds for the first."""
        self.watch.progress_at = time.monotonic()
        messages = self.state.messages
        marks: dict[Lane, int] = {}
        last = False
        waiting: list[threading.Event] = []
        while timeout or not messages.empty():
            try:
                message = messages.get(timeout=timeout)
            except queue.Empty:
                return
            timeout = 0.0
            if isinstance(message, Rewind):
                self._acknowledge(marks)
                marks = {}
                self._log.warning("delivering again", source=self.source.name, lanes=len(message.lanes))
                # Also of a source that had ended.
                self._catch_up(-math.inf)
                self.source.rewind(message.lanes)
                self._look_around()
                self._rewound += 1
                continue
            marks.update(message.marks)
            last = last or message.last
            if message.done is not None:
                waiting.append(message.done)
        if last:
            self.state.rise(Stage.LEAVE)
        if waiting:
            self._acknowledge_for(waiting, marks)
        elif marks or last:
            self._acknowledge(marks, wait=last)

    def _acknowledge_for(self, waiting: Sequence[threading.Event], marks: Mapping[Lane, int]) -> None:
        """Acknowledge these positions, wait until the bus has them, and set the events of those that wait for that."""
        try:
            self._acknowledge(marks, wait=True)
        except ConnectorError as error:
            if not error.retriable:
                raise
            self._log.warning("positions are not acknowledged yet", source=self.source.name, error=str(error))
        finally:
            for event in waiting:
                event.set()

    def _acknowledge(self, marks: Mapping[Lane, int], *, wait: bool = False) -> None:
        self.source.acknowledge(marks, wait=wait)
        if self._on_acknowledged is not None:
            self._on_acknowledged(marks)
        self.state.acknowledged.update((lane, position) for lane, position in marks.items() if lane in self.watch.lanes)

    def _look_around(self) -> None:
        """Handle the source's events, and check whether the source is stuck."""
        gone, left = self.watch.ended_lanes()
        for lane in gone + left:
            self.state.acknowledged.pop(lane, None)
        if gone:
            self._batcher.forget(gone)
            self._inbox.tell(Ended(gone))
        if left:
            self._inbox.tell(Ended(left, finish=True))
            self._left = self._left + left
        if not self._commits:
            self.state.token = self.source.transaction_token()
        self.watch.look(starved=self.state.starved)

    def _positions_before_revoke(self, lanes: Iterable[Lane], deadline: float) -> Mapping[Lane, int]:
        if not self._commits:
            self.state.token = self.source.transaction_token()
        now = time.monotonic()
        request = RevokeRequest(self.state, list(lanes), now + (deadline - now) / 2, deadline)
        self._inbox.tell(request)
        while (left := deadline - time.monotonic()) > 0:
            self.watch.progress_at = time.monotonic()
            if request.done.wait(min(left, WAIT)):
                return request.marks
        self._log.warning("lanes were taken away before all their records were done", lanes=len(request.lanes))
        return {}

    def _hand_over(self, closed: Closed) -> None:
        began = time.perf_counter()
        parts = self._decoder.decoded(closed, self._wait_for_codec)
        if parts is None:
            return
        self.watch.codec_waits = None
        self._decoder.publish_requests(self.source)
        count = len(closed.records)
        self._meters.stage("poll", began - closed.seconds, closed.seconds, count)
        self._meters.stage("decode", began, time.perf_counter() - began, count)
        self._meters.batches(count, self._batcher.max_records, closed.reason)
        first = self._guarantee.on_arrival(closed.records)
        if first and not self._acknowledged(first):
            return
        while parts:
            # No local variable keeps a batch that was handed over alive: its images are freed once it was run.
            self._put(parts.popleft())

    def _wait_for_codec(self, seconds: float, reason: str) -> bool:
        """Pause polling for `seconds`, as the codec cannot decode; `False` if the service stops meanwhile."""
        self.watch.codec_waits = reason
        again = time.monotonic() + seconds
        while time.monotonic() < again:
            if self.state.wait_for(Stage.FINISH, SIGN_OF_LIFE):
                return False
            self._serve_messages()
            self._stand_still()
        return True

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
                if self.state.wait_for(Stage.FINISH, SIGN_OF_LIFE):
                    return False
                self._stand_still()

    def _put(self, decoded: DecodedBatch) -> None:
        """Put a batch into the queue, waiting for bytes of the budget and a free place. It does not poll meanwhile."""
        reserved = False
        while self.state.stage < Stage.DISCARD:
            reserved = reserved or self._inbox.budget.reserve(decoded.records.byte_count, WAIT)
            if reserved and self._inbox.batches.put(decoded, WAIT):
                self.state.handed_over += 1
                return
            self._serve_messages()
            self._stand_still()

    def _stand_still(self) -> None:
        """Called repeatedly while polling has stopped."""
        if self.watch.stands_still():
            self._look_around()
