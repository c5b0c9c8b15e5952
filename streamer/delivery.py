"""Delivery: from a batch's result to confirmed messages and positions that may be acknowledged.

Owned by the run thread, as are the sinks and the ledger. Nothing here waits in the steady state but for a
full sink.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from connectors.records import Lane, Messages
from connectors.sink import Lost
from connectors.source import Replays
from pipelines.errors import ConnectorError, StepError, StreamerError
from pipelines.result import Result
from streamer.deadletter import dead_letters
from streamer.failures import FailureWatch
from streamer.ledger import Confirmed, Counts, Ledger
from streamer.observe.metrics import RunMeters
from streamer.outlet import Failed, Outlet, chosen, in_row_order, without
from streamer.selection import select_all
from streamer.work import Work

SEND_TRY = 5.0
"""Seconds of one attempt to hand messages to a full sink, or of one barrier."""
HOLD = 5.0
"""Seconds that dead letters are held back while it is not known whether everything fails."""


class ServiceStopped(StreamerError):
    """The service must not go on: what failed stays unacknowledged."""


class Delivery:
    """Sends results and dead letters, keeps the ledger, and says what may be acknowledged."""

    def __init__(
        self,
        service: str,
        outlets: list[Outlet],
        dead: Outlet | None,
        *,
        drop_failed: bool,
        tombstones: Mapping[str, str],
        watch: FailureWatch,
        replays: Mapping[str, Replays],
        rewind: Callable[[Iterable[Lane]], None],
        meters: RunMeters,
        keep_going: Callable[[], bool],
        log: Any,
    ) -> None:
        self.ledger = Ledger()
        self._service = service
        self._outlets = outlets
        self._dead = dead
        self._drop_failed = drop_failed
        self._tombstones = tombstones
        self._watch = watch
        self._replays = replays
        self._rewind = rewind
        self._meters = meters
        self._keep_going = keep_going
        self._log = log
        self._held: Failed = {}
        self._held_since = 0.0
        self._unconfirmed = False

    @property
    def unsettled(self) -> bool:
        """Whether something was sent since the last `settle` that ended well."""
        return self._unconfirmed

    def take(self, work: Work) -> None:
        """Enter a batch into the ledger; rows of lanes that have ended leave the batch: they are someone else's."""
        block = self.ledger.take(work.records, work.first, work)
        if block.open_rows == len(work.records):
            return
        gone = block.pending == 0
        alive = ~gone[work.batch.rows - work.first]
        work.batch = work.batch.take(alive)
        work.failed = {row: error for row, error in work.failed.items() if not gone[row - work.first]}
        work.tombstones = [row for row in work.tombstones if not gone[row - work.first]]

    def deliver(self, work: Work, result: Result) -> None:
        """Send what the pipeline made of a batch.

        Raises `ServiceStopped` when the failures rules say so, `ConnectorError` when a sink is broken for good.
        """
        failed: Failed = {**work.failed, **result.failed}
        skipped = self._sort_out_tombstones(work, failed)
        began = time.perf_counter()
        blocks = self._encode(result, failed, work)
        encoded = time.perf_counter()
        self._check(failed, rows=len(work.records))
        self._expect_of_held(blocks, work.first, len(work.records))
        outputs = np.zeros(len(work.records), np.int32)
        refused: Failed = {}
        for outlet, messages in zip(self._outlets, blocks, strict=True):
            self._send_results(outlet, messages, work, outputs, refused)
        if refused:
            self._check(refused)
            failed.update(refused)
        self._meters.stages["encode"].add_one(encoded - began)
        self._meters.stages["send"].add_one(time.perf_counter() - encoded)
        if failed and not self._drop_failed:
            outputs[[row - work.first for row in failed if self._is_of(work, row)]] += 1
        if len(result.held):
            own = result.held[(result.held >= work.first) & (result.held < work.first + len(work.records))]
            outputs[own - work.first] += 1
        self._expect(work, outputs)
        self._settle_held(result, failed, work)
        self._bury(failed)
        self._count(work, result, failed, len(result.dropped) + len(skipped))

    def emit(self, result: Result) -> None:
        """Send what a stateful step gave without new input: its rows are in the ledger already, held.

        Raises `ServiceStopped` when the failures rules say so.
        """
        if not (result.batch.size or result.failed or result.dropped):
            return
        failed: Failed = dict(result.failed)
        blocks = self._encode(result, failed)
        self._check(failed)
        self._expect_of_held(blocks)
        for outlet, messages in zip(self._outlets, blocks, strict=True):
            refused = self._send(outlet, messages)
            for at, error in refused.items():
                # What one sink refuses of a window, others may have: its records wait for their dead letters alone.
                rows = messages.parents(at).tolist()
                failed.update(dict.fromkeys(rows, StepError.of(f"sink {outlet.name}", error)))
            self._check({row: failed[row] for at in refused for row in messages.parents(at).tolist()})
        self._settle_held(result, failed)
        self._bury(failed)

    def collect(self) -> None:
        """Take in what the sinks have confirmed by themselves."""
        for outlet in self._sinks():
            for rows in outlet.sink.confirmed():
                self._confirmed(self.ledger.confirm(rows))

    def settle(self, deadline: float) -> None:
        """Wait until everything sent is confirmed or known to be lost.

        Raises `ConnectorError` if that is not known at `deadline` (seconds on `time.monotonic`).
        """
        if not self._unconfirmed:
            return
        lost = [(outlet, outlet.sink.barrier(deadline)) for outlet in self._sinks()]
        self._unconfirmed = False
        self.collect()
        for outlet, rows in lost:
            if rows:
                self._lost(outlet, rows)

    def release(self, *, now: bool = False) -> None:
        """Send dead letters that were held back, once it is clear that not everything fails."""
        if not self._held:
            return
        if not now and self._watch.suspect is not None and time.monotonic() - self._held_since < HOLD:
            return
        held, self._held = self._held, {}
        self._send_dead(held)

    def _sort_out_tombstones(self, work: Work, failed: Failed) -> list[int]:
        policy = self._tombstones[work.source]
        if not work.tombstones or policy == "forward":
            return []
        rows, work.tombstones = work.tombstones, []
        if policy == "skip":
            return rows
        error = StepError("a record without a payload, and the source says tombstones: dead_letter", step="decode")
        failed.update(dict.fromkeys(rows, error))
        return []

    def _check(self, failed: Failed, rows: int = 0) -> None:
        """Stop the service if these failures, among `rows` new rows, mean that it must not go on."""
        self._watch.add(rows, failed)
        if not failed:
            return
        row = min(failed)
        if not self._drop_failed and self._dead is None:
            raise ServiceStopped(
                f"{self._place(row)}: {failed[row]}; give the service a dead_letter to go on without such records, "
                f"or write down on_error: drop"
            )
        if self._watch.broken is not None:
            raise ServiceStopped(
                f"{self._watch.text()}, so it is not the records: {failed[row]} (at {self._place(row)}); "
                f"nothing of this batch was acknowledged. Mend it and start again, or raise errors.stop_ratio"
            )

    def _encode(self, result: Result, failed: Failed, work: Work | None = None) -> list[Messages]:
        """The messages of each outlet; a record that fails for one has failed, and none of them has it."""
        blocks: list[Messages] = []
        wrong: Failed = {}
        selected, unselected = select_all([outlet.selection for outlet in self._outlets], result.batch)
        wrong.update(unselected)
        for outlet, rows in zip(self._outlets, selected, strict=True):
            messages, unwritten = outlet.messages(rows)
            wrong.update(unwritten)
            if work is not None and work.tombstones:
                empty, unplaced = outlet.tombstones(work)
                messages = in_row_order(messages, empty)
                wrong.update(unplaced)
            blocks.append(messages)
        if not wrong:
            return blocks
        failed.update(wrong)
        return [without(messages, wrong) for messages in blocks]

    def _send_results(self, outlet: Outlet, messages: Messages, work: Work, outputs: Counts, refused: Failed) -> None:
        index = messages.rows - work.first
        index = index[(index >= 0) & (index < len(outputs))]
        outputs += np.bincount(index, minlength=len(outputs)).astype(np.int32)
        for at, error in self._send(outlet, messages).items():
            wrapped = StepError.of(f"sink {outlet.name}", error)
            for row in messages.parents(at).tolist():
                refused[row] = wrapped
                if self._is_of(work, row):
                    outputs[row - work.first] -= 1

    def _expect_of_held(self, blocks: list[Messages], first: int = 0, count: int = 0) -> None:
        """Rows of earlier batches wait for one output while a step holds them; from now on for all of these."""
        rows = np.concatenate([messages.rows for messages in blocks])
        earlier = rows[(rows < first) | (rows >= first + count)]
        if len(earlier):
            held, times = np.unique(earlier, return_counts=True)
            self.ledger.add(held, (times - 1).astype(np.int32))

    def _send(self, outlet: Outlet, messages: Messages) -> dict[int, ConnectorError]:
        """Hand over all messages, waiting as long as the sink is full; returns what it refuses for good, by index."""
        final: dict[int, ConnectorError] = {}
        if not len(messages):
            return final
        self._unconfirmed = True
        index = np.arange(len(messages))
        tries = 0
        while True:
            refused = outlet.sink.send(messages, time.monotonic() + SEND_TRY)
            if not refused:
                return final
            final.update((int(index[at]), error) for at, error in refused.items() if not error.retriable)
            again = np.array(sorted(at for at, error in refused.items() if error.retriable), np.int64)
            if not len(again):
                return final
            if not self._keep_going():
                raise ServiceStopped(f"the sink {outlet.name} takes nothing: {next(iter(refused.values()))}")
            if tries == 0:
                self._log.warning("the sink is full, waiting", sink=outlet.name, messages=len(again))
            tries += 1
            time.sleep(random.uniform(0.5, 1.0) * min(0.1 * 2.0**tries, 5.0))  # noqa: S311 - jitter
            messages, index = chosen(messages, again), index[again]

    def _expect(self, work: Work, outputs: Counts) -> None:
        if (outputs == 1).all():
            return
        block = self.ledger.block_of(work.first)
        if block is not None:
            self.ledger.expect(block, outputs)

    def _settle_held(self, result: Result, failed: Failed, work: Work | None = None) -> None:
        """Rows of earlier batches that a step dropped at last, or that failed where failures are dropped, are done."""
        gone = [*result.dropped, *(failed if self._drop_failed else ())]
        for row in gone:
            if work is None or not self._is_of(work, row):
                self.ledger.wait_for(row, 0)

    def _bury(self, failed: Failed) -> None:
        if not failed or self._drop_failed:
            return
        if self._watch.suspect is not None:
            if not self._held:
                self._held_since = time.monotonic()
            self._held.update(failed)
            return
        self.release(now=True)
        self._send_dead(failed)

    def _send_dead(self, failed: Failed) -> None:
        if self._dead is None:
            raise ServiceStopped("records failed and there is no dead_letter")
        by_batch: dict[int, tuple[Work, Failed]] = {}
        for row in sorted(failed):
            work = self._work_of(row)
            # A row that nobody waits for any more was in a lane that has ended: it is someone else's.
            if work is not None:
                by_batch.setdefault(work.first, (work, {}))[1][row] = failed[row]
        for work, own in by_batch.values():
            for row, error in own.items():
                self._log.warning("dead letter", at=self._place(row), error=str(error)[:300])
            letters = dead_letters(work.records, work.first, own, self._service)
            for at, refusal in self._send(self._dead, letters).items():
                place = self._place(int(letters.rows[at]))
                raise ServiceStopped(f"the dead letter sink refused the record at {place}: {refusal}")

    def _count(self, work: Work, result: Result, failed: Failed, dropped: int) -> None:
        outcomes, source = self._meters.outcomes, work.source
        lost = len(failed) if self._drop_failed else 0
        outcomes[source, "dead"] += len(failed) - lost
        outcomes[source, "dropped"] += dropped + lost
        given = work.batch.size + len(work.tombstones)
        failed_here = len(failed) - len(work.failed)
        outcomes[source, "ok"] += max(given - failed_here - len(result.dropped) - len(result.held), 0)

    def _confirmed(self, found: list[Confirmed]) -> None:
        for block, rows in found:
            work: Work = block.note
            if work.stamps is None:
                continue
            stamps = work.stamps[rows]
            late = time.time() - stamps[stamps >= 0] / 1000.0
            if len(late):
                self._meters.latency.add(np.maximum(late, 0.0))

    def _lost(self, outlet: Outlet, lost: Lost) -> None:
        """Messages that the sink had taken are lost: their records come again, or become dead letters."""
        again: list[int] = []
        for row, error in lost.items():
            block = self.ledger.block_of(row)
            if block is None:
                continue
            work: Work = block.note
            if error.retriable and self._replays[work.source] is Replays.OFFSET:
                again.append(row)
                continue
            if outlet is self._dead:
                raise ServiceStopped(f"the dead letter of {self._place(row)} was lost: {error}")
            failed: Failed = {row: StepError.of(f"sink {outlet.name}", error)}
            self._check(failed)
            # Whatever else the row waited for is settled by now: what is left is its dead letter, if any.
            self.ledger.wait_for(row, 0 if self._drop_failed else 1)
            if not self._drop_failed:
                self._send_dead(failed)
        if again:
            lanes = self.ledger.lanes_of(again)
            self._log.warning("messages were lost, their records come again", sink=outlet.name, rows=len(again))
            for lane in lanes:
                self.ledger.end(lane)
            self._rewind(lanes)

    def _sinks(self) -> list[Outlet]:
        return self._outlets if self._dead is None else [*self._outlets, self._dead]

    def _work_of(self, row: int) -> Work | None:
        block = self.ledger.block_of(row)
        return None if block is None else block.note

    @staticmethod
    def _is_of(work: Work, row: int) -> bool:
        return work.first <= row < work.first + len(work.records)

    def _place(self, row: int) -> str:
        work = self._work_of(row)
        if work is None:
            return "a record that is someone else's now"
        index = row - work.first
        span = work.records.span_of(index)
        return f"{work.records.topics[span]}[{work.records.partitions[span]}]@{int(work.records.positions[index])}"
