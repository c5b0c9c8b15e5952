"""Delivery: from a batch's result to confirmed messages and positions that may be acknowledged.

Owned by the run thread, as are the sinks and the ledger. Nothing here waits in the steady state but for a
full sink.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from connectors.records import Ints, Lane, Messages
from connectors.sink import Lost
from connectors.source import Replays
from pipelines.data.membership import among
from pipelines.data.result import Result
from pipelines.data.rowrange import RowNumbers, as_array
from pipelines.errors import ConnectorError, StepError
from pipelines.executors.accounting import NO_ROWS, accounted
from streamer.agent.work import SOURCE_BITS, Work
from streamer.delivery.deadletter import Letter, dead_letters
from streamer.delivery.failures import FailureWatch, ServiceStopped, let_go
from streamer.delivery.guarantee import Guarantee
from streamer.delivery.ledger import Confirmed, Ledger
from streamer.delivery.letterlog import LetterLog
from streamer.delivery.sending import send_all
from streamer.observe.metrics import RunMeters
from streamer.routing.selection import select_all
from streamer.routing.sinkroute import Failed, SinkRoute, in_row_order, without

HOLD = 5.0
"""Seconds that dead letters are held back while it is not known whether everything fails."""


class Delivery:
    """Sends results and dead letters, keeps the ledger, and says what may be acknowledged."""

    def __init__(
        self,
        service: str,
        routes: list[SinkRoute],
        dead: SinkRoute | None,
        *,
        drop_failed: bool,
        tombstones: Mapping[str, str],
        watch: FailureWatch,
        guarantee: Guarantee,
        replays: Mapping[str, Replays],
        rewind: Callable[[Iterable[Lane], Mapping[Lane, int]], None],
        freed: Callable[[int], None],
        meters: RunMeters,
        patience: Callable[[], float],
        log: Any,
    ) -> None:
        """`replays` names the sources in the order of their numbers; `freed` is told the bytes that are done with.

        `rewind` has lanes delivered again, from the positions given with them, which are done with. `patience` gives
        the seconds that a sink which takes nothing may be waited for.
        """
        self.ledger = Ledger(freed)
        self._service = service
        self._routes = routes
        self._dead = dead
        self._sinks = routes if dead is None else [*routes, dead]
        self._drop_failed = drop_failed
        self._tombstones = tombstones
        self._watch = watch
        self._replays = {name: guarantee.on_loss(source) for name, source in replays.items()}
        self._sources = list(replays)
        self._rewind = rewind
        self._meters = meters
        self._patience = patience
        self._log = log
        self._letters = LetterLog(log, "dead letter")
        self._shortened = LetterLog(log, "shortened dead letter")
        self._held_back: Failed = {}
        self._held_back_since = 0.0
        self._lost: list[tuple[SinkRoute, Lost]] = []
        self._unconfirmed = False

    @property
    def unconfirmed(self) -> bool:
        """Whether something was sent since the last `wait_for_confirmations` that ended well."""
        return self._unconfirmed

    def take(self, work: Work) -> None:
        """Enter a batch into the ledger. Rows of lanes that have ended leave the batch: another consumer has them."""
        block = self.ledger.take(work.records, work.first, work)
        if not block.all_undecided:
            work.keep(as_array(work.rows)[block.undecided])

    def look_again(self, work: Work) -> None:
        """Before the next part of a batch is run: rows of lanes that have ended since it was entered leave it."""
        left = [rows for _, rows in self.ledger.open_among(work.rows)]
        if sum(map(len, left)) < len(work.rows):
            work.keep(np.concatenate([np.zeros(0, np.int64), *left]))

    def deliver(self, work: Work, result: Result) -> None:
        """Send what the pipeline made of a batch.

        Raises `ServiceStopped` when the failures rules say so, `ConnectorError` when a sink is broken for good.
        """
        failed: Failed = {**work.failed, **result.failed}
        skipped = self._sort_out_tombstones(work, failed)
        began = time.perf_counter()
        blocks = self._encode(result, failed, work)
        encoded = time.perf_counter()
        self._publish(blocks, result, failed, work, skipped)
        self._meters.stage("encode", began, encoded - began, result.batch.size)
        self._meters.stage("send", encoded, time.perf_counter() - encoded, result.batch.size)
        # The ledger keeps the work until it is confirmed; of that only the records may still be needed.
        work.batch = NO_ROWS

    def emit(self, result: Result) -> None:
        """Send what a stateful step gave without new input: its rows are in the ledger already, held.

        Raises as `deliver` does.
        """
        if not (result.batch.size or result.failed or result.dropped):
            return
        failed: Failed = dict(result.failed)
        self._publish(self._encode(result, failed), result, failed)

    def collect(self) -> None:
        """Take in what the sinks have confirmed by themselves."""
        for route in self._sinks:
            for rows in route.sink.confirmed():
                self._confirmed(self.ledger.confirm(rows))

    def push(self) -> None:
        """Nothing more is sent for now: have the sinks send messages that they hold back to send several at once."""
        if self._unconfirmed:
            for route in self._sinks:
                route.sink.push()

    def wait_for_confirmations(self, deadline: float) -> None:
        """Wait until everything sent is confirmed or known to be lost.

        Raises `ConnectorError` if that is not known at `deadline` (seconds on `time.monotonic`).
        """
        if not self._unconfirmed:
            return
        trouble: ConnectorError | None = None
        for route in self._sinks:
            try:
                lost = route.sink.barrier(deadline)
            except ConnectorError as error:
                # The other sinks are asked all the same: what they confirm or lost they say only once.
                if trouble is None or not error.retriable:
                    trouble = error
                continue
            if lost:
                self._lost.append((route, lost))
        self.collect()
        if trouble is not None:
            raise trouble
        self._unconfirmed = False
        losses, self._lost = self._lost, []
        for route, lost in losses:
            self._make_good(route, lost)

    def behind(self) -> float:
        """Seconds that the sink furthest behind has waited for a confirmation; infinite where unknown."""
        return max(route.sink.behind() for route in self._sinks)

    def release(self, *, now: bool = False) -> None:
        """Send dead letters that were held back, once it is clear that not everything fails. `now`: at the end."""
        for told in (self._letters, self._shortened):
            if told.untold:
                told.tell(now=now)
        if not self._held_back:
            return
        if not now and self._watch.suspect is not None and time.monotonic() - self._held_back_since < HOLD:
            return
        self._send_held_back()

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

    def _encode(self, result: Result, failed: Failed, work: Work | None = None) -> list[Messages]:
        """The messages of each route; a record that fails for one has failed, and none of them has it."""
        blocks: list[Messages] = []
        wrong: Failed = {}
        selected, unselected = select_all([route.selection for route in self._routes], result.batch)
        wrong.update(unselected)
        for route, rows in zip(self._routes, selected, strict=True):
            messages, unwritten = route.messages(rows)
            wrong.update(unwritten)
            if work is not None and work.tombstones:
                empty, unplaced = route.tombstones(work)
                messages = in_row_order(messages, empty)
                wrong.update(unplaced)
            blocks.append(messages)
        if not wrong:
            return blocks
        # Records that share all their results with one that fails, in windows, fail with it.
        failed.update(accounted(Result(result.batch, wrong), "sink").failed)
        return [without(messages, wrong) for messages in blocks]

    def _publish(
        self,
        blocks: list[Messages],
        result: Result,
        failed: Failed,
        work: Work | None = None,
        skipped: Iterable[int] = (),
    ) -> None:
        """Send the messages and dead letters. What is expected is in the ledger before anything is sent.

        So whatever is raised halfway, no row counts as complete that is not.
        """
        self._check(failed, rows=0 if work is None else len(work.rows))
        for messages in blocks:
            self.ledger.expect(messages.rows if messages.row_range is None else messages.row_range)
        self._expect_letters(failed)
        decided, own = _decided(result, failed, work)
        self.ledger.decide(decided)
        for route, messages in zip(self._routes, blocks, strict=True):
            refused = self._send(route, messages)
            if refused:
                self._give_up(route, messages, refused, failed)
        self._bury(failed)
        self._count(decided, failed, [*result.dropped, *skipped], work if own else None)
        let_go(failed.values())

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

    def _expect_letters(self, failed: Failed) -> None:
        if failed and not self._drop_failed:
            self.ledger.expect(_numbers(failed))

    def _send(self, route: SinkRoute, messages: Messages) -> dict[int, ConnectorError]:
        self._unconfirmed = self._unconfirmed or len(messages) > 0
        return send_all(route, messages, self._patience, self._log)

    def _give_up(
        self, route: SinkRoute, messages: Messages, refused: Mapping[int, ConnectorError], failed: Failed
    ) -> None:
        """These messages are refused for good: their records have failed, whatever other sinks have of them."""
        new: Failed = {}
        for at, error in refused.items():
            wrapped = StepError.of(f"sink {route.name}", error)
            new.update((row, wrapped) for row in messages.parents(at).tolist() if row not in failed)
        self._check(new)
        self._expect_letters(new)
        self.ledger.forgo(np.concatenate([messages.parents(at) for at in refused]))
        failed.update(new)

    def _bury(self, failed: Failed) -> None:
        """Send dead letters, or hold them back while everything seems to fail. The ledger expects them already."""
        if not failed or self._drop_failed:
            return
        if self._watch.suspect is not None:
            if not self._held_back:
                self._held_back_since = time.monotonic()
            self._held_back.update(failed)
            return
        self._send_held_back()
        self._send_letters(failed)

    def _send_held_back(self) -> None:
        if self._held_back:
            held_back, self._held_back = self._held_back, {}
            self._send_letters(held_back)

    def _send_letters(self, failed: Failed) -> None:
        if self._dead is None:
            raise ServiceStopped("records failed and there is no dead_letter")
        # A row that is complete by now was in a lane that has ended: another consumer has its record.
        for block, rows in self.ledger.open_among(_numbers(failed)):
            work: Work = block.note
            own = {row: failed[row] for row in rows.tolist()}
            self._letters.add(own, self._place)
            self._post(self._dead, work, {row: Letter.of(error) for row, error in own.items()})

    def _post(self, route: SinkRoute, work: Work, letters: Mapping[int, Letter]) -> None:
        """Send these letters, by row number; what their sink refuses goes again, shorter, until it takes it."""
        while letters:
            work.letters.update(letters)
            messages = dead_letters(work.records, work.first, letters, self._service)
            refused = self._send(route, messages)
            letters = self._shorter(work, {int(messages.rows[at]): error for at, error in refused.items()})

    def _shorter(self, work: Work, refused: Mapping[int, ConnectorError]) -> dict[int, Letter]:
        """The letters to send instead of those that were refused. Raises `ServiceStopped` if one cannot be shorter."""
        letters: dict[int, Letter] = {}
        for row, refusal in refused.items():
            letter = work.letters[row].shorter(str(refusal))
            if letter is None:
                raise ServiceStopped(
                    f"the dead letter sink refused the record at {self._place(row)}, even without its payload, key and "
                    f"headers: {refusal}"
                )
            letters[row] = letter
        self._shortened.add(refused, self._place)
        return letters

    def _confirmed(self, found: list[Confirmed]) -> None:
        for block, rows in found:
            work: Work = block.note
            if work.stamps is None:
                continue
            stamps = work.stamps if rows is None else work.stamps[rows]
            late = time.time() - stamps[stamps >= 0] / 1000.0
            if len(late):
                self._meters.latency.add(np.maximum(late, 0.0))

    def _make_good(self, route: SinkRoute, lost: Lost) -> None:
        """Messages that the sink had taken are lost: their records come again, or become dead letters.

        Everything else that was sent is confirmed: what these rows still wait for is what was lost.
        """
        again: list[int] = []
        failed: Failed = {}
        letters: dict[int, ConnectorError] = {}
        for row, error in lost.items():
            work = self._work_of(row)
            if work is None:
                continue
            replays = self._replays[work.source]
            if replays is not Replays.NONE and self.ledger.is_left(work.records.lane_of(row - work.first)):
                replays = Replays.NONE
            if error.retriable and replays is not Replays.NONE:
                again.append(row)
            elif error.retriable and self._dead is None:
                self._log.warning("a result is lost", at=self._place(row), sink=route.name, error=str(error))
                self.ledger.wait_for(row, 0)
                self._tally("dropped", np.array([row], np.int64))
            elif route is self._dead:
                letters[row] = error
            else:
                failed[row] = StepError.of(f"sink {route.name}", error)
        if again:
            self._log.warning("messages were lost, their records come again", sink=route.name, rows=len(again))
            lanes = self.ledger.lanes_of(again)
            self._rewind(lanes, self.ledger.all_marks(lanes))
            for lane in lanes:
                self.ledger.end(lane)
        self._post_again(route, letters)
        if failed:
            self._check(failed)
            for row in failed:
                self.ledger.wait_for(row, 0 if self._drop_failed else 1)
            self._bury(failed)
            self._tally("dropped" if self._drop_failed else "dead", _numbers(failed))

    def _post_again(self, route: SinkRoute, lost: Mapping[int, ConnectorError]) -> None:
        """Send these lost letters again: as they were where that may help, else shorter."""
        # A row that is complete by now was in a lane that has just ended.
        for block, rows in self.ledger.open_among(_numbers(lost)):
            work: Work = block.note
            own = {row: lost[row] for row in rows.tolist()}
            same = {row: work.letters[row] for row, error in own.items() if error.retriable}
            refused = {row: error for row, error in own.items() if not error.retriable}
            self._post(route, work, {**same, **self._shorter(work, refused)})

    def _count(self, decided: RowNumbers, failed: Failed, dropped: list[int], work: Work | None) -> None:
        """Count outcomes; `work` is given where all of this is about its rows, and none of them is in two places."""
        if work is not None:
            outcomes, source = self._meters.outcomes, work.source
            outcomes[source, "ok"] += len(decided) - len(failed) - len(dropped)
            if failed:
                outcomes[source, "dropped" if self._drop_failed else "dead"] += len(failed)
            if dropped:
                outcomes[source, "dropped"] += len(dropped)
            return
        lost = _numbers(failed)
        gone = np.array(dropped, np.int64)
        self._tally("dropped" if self._drop_failed else "dead", lost)
        self._tally("dropped", gone)
        rows = as_array(decided)
        self._tally("ok", rows[~among(rows, np.concatenate([lost, gone]))])

    def _tally(self, outcome: str, rows: Ints) -> None:
        if not len(rows):
            return
        sources = rows >> SOURCE_BITS
        if (sources == sources[0]).all():
            self._meters.outcomes[self._sources[int(sources[0])], outcome] += len(rows)
            return
        numbers, counts = np.unique(sources, return_counts=True)
        for source, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._meters.outcomes[self._sources[source], outcome] += count

    def _work_of(self, row: int) -> Work | None:
        block = self.ledger.open_block(row)
        return None if block is None else block.note

    def _place(self, row: int) -> str:
        work = self._work_of(row)
        if work is None:
            return "a record that another consumer has now"
        index = row - work.first
        span = work.records.span_of(index)
        return f"{work.records.topic_of(index)}[{work.records.partitions[span]}]@{int(work.records.positions[index])}"


def _decided(result: Result, failed: Failed, work: Work | None) -> tuple[RowNumbers, bool]:
    """The rows that the pipeline is done with, and whether these are the rows of this batch and no others.

    Rows that a step holds are not among them; earlier rows that it names at last, without holding them again, are.
    """
    if work is not None and not (failed or result.dropped or len(result.held)):
        emitted = result.batch.row_range
        if isinstance(work.rows, range) and emitted == work.rows:
            return emitted, True
    named = np.concatenate([result.batch.rows, _numbers(failed), np.fromiter(result.dropped, np.int64)])
    if work is None:
        decided, own = np.unique(named), False
    else:
        rows = work.rows
        # Also of an earlier part of the same batch.
        earlier = named if not len(rows) else named[(named < rows[0]) | (named > rows[-1])]
        own = not len(earlier) and not len(result.held)
        if own:
            return rows, True
        decided = np.concatenate([np.unique(earlier), as_array(rows)])
    return (decided[~among(decided, result.held)] if len(result.held) else decided), own


def _numbers(rows: Iterable[int]) -> Ints:
    return np.array(sorted(rows), np.int64)
