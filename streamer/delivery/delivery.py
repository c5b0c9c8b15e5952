"""Delivery: from a batch's result to confirmed messages and positions that may be acknowledged.

Owned by the run thread, as are the sinks and the ledger. In the steady state nothing here waits, except when a sink is
full.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from connectors.records import Ints, Lane, Messages
from connectors.sink import Lost, Voided
from connectors.source import Replays
from pipelines.data.membership import among
from pipelines.data.result import Result
from pipelines.data.rowrange import RowNumbers, as_array
from pipelines.errors import ConnectorError, StepError
from pipelines.executors.accounting import NO_ROWS, accounted
from pipelines.runners.state.timed import FIRST_TIMED
from streamer.agent.decodedbatch import NONE_PASSED, SOURCE_BITS, DecodedBatch
from streamer.batching.residence import FEW
from streamer.definition.service import Service
from streamer.delivery.confirming import Confirming, Upstream
from streamer.delivery.erroranswers import ErrorAnswers
from streamer.delivery.failures import Failures, let_go
from streamer.delivery.guarantee import guarantee
from streamer.delivery.ledger import Confirmed, Ledger, LedgerEntry
from streamer.delivery.letterlog import Logged
from streamer.delivery.letters import DeadLetters, in_order
from streamer.delivery.parts import part_of
from streamer.delivery.sending import Sender
from streamer.delivery.timedrows import TimedRows
from streamer.observe.metrics import RunMeters
from streamer.routing.messageblocks import in_row_order, without
from streamer.routing.sinkroute import Failed, SinkRoute, Sinks, select_all


class Delivery:
    """Sends results and dead letters, keeps the ledger, and gives the positions that may be acknowledged."""

    def __init__(
        self,
        service: Service,
        sinks: Sinks,
        replays: Mapping[str, Replays],
        ledger: Ledger,
        confirming: Confirming,
        upstream: Upstream,
        meters: RunMeters,
        log: Any,
    ) -> None:
        """`replays` names the sources in the order of their numbers, and says how each delivers records again."""
        self.ledger = ledger
        self.confirming = confirming
        self._sinks = sinks
        self._selections = [route.selection for route in sinks.results]
        self._sources = list(replays)
        self._failures = Failures(service, sinks, self._sources, ledger, log)
        self._sender = Sender(ledger, confirming, upstream.patience, meters, log)
        self._letters = DeadLetters(service.name, sinks, ledger, confirming, self._failures, self._sender, log)
        self._errors = ErrorAnswers(sinks.results, ledger, self._sender, self._failures.place, log)
        self._failed_outcomes = [
            "dead" if self._failures.has_letters(source) else "failed" for source in range(len(self._sources))
        ]
        """How records of each source that failed are counted."""
        self._tombstones = {config.label: config.tombstones for config in service.sources}
        promised = guarantee(service.delivery)
        self._transactional = promised.transactional
        self._replays = {name: promised.on_loss(source) for name, source in replays.items()}
        self._rewind = upstream.rewind
        self._meters = meters
        self._log = log
        self._not_replayed = {number for number, name in enumerate(replays) if replays[name] is Replays.NONE}
        self._timed = TimedRows(self._sources)
        self.acknowledgeable: Callable[[Iterable[Lane]], Mapping[Lane, int]] = ledger.all_marks
        """The positions of these lanes that may be acknowledged."""
        self.together: Callable[[Iterable[Lane]], set[Lane]] = set
        """These lanes, and those that have to be delivered again with them."""
        self._kept: list[LedgerEntry] = []
        """Entries of sources that cannot deliver records again, whose payloads are still in memory."""

    def enter(self, decoded: DecodedBatch) -> None:
        """Enter a batch into the ledger. Rows of lanes that have ended leave the batch: another consumer has them."""
        entry = self.ledger.enter(decoded.records, decoded.first, decoded)
        if decoded.first >> SOURCE_BITS in self._not_replayed:
            self._kept.append(entry)
        if not entry.all_undecided:
            decoded.keep(as_array(decoded.rows)[entry.undecided])

    def look_again(self, decoded: DecodedBatch) -> None:
        """Before the next part of a batch is run: rows of lanes that have ended since it was entered leave it."""
        left = [rows for _, rows in self.ledger.open_among(decoded.rows)]
        if sum(map(len, left)) < len(decoded.rows):
            decoded.keep(np.concatenate([np.zeros(0, np.int64), *left]))

    def without_ended(self, decoded: DecodedBatch, result: Result) -> tuple[DecodedBatch, Result]:
        """A batch that was run in another thread, without rows of lanes that have ended meanwhile."""
        left = [rows for _, rows in self.ledger.open_among(decoded.rows)]
        if sum(map(len, left)) == len(decoded.rows):
            return decoded, result
        return part_of(decoded, result, np.concatenate([np.zeros(0, np.int64), *left]))

    def deliver(self, decoded: DecodedBatch, result: Result) -> None:
        """Send the pipeline's results for a batch, and dead letters for the records that failed.

        Raises `ServiceStopped` if failures have to stop the service, `ConnectorError` if a sink is broken for good.
        """
        for part, part_result in self.confirming.admit(decoded, result, self._letters.send_held_back):
            failed: Failed = {**part.failed, **part_result.failed}
            if failed and len(part.passed):
                # A record that was tried alone has failed, whatever it was before.
                part.passed = part.passed[~among(part.passed, in_order(failed))]
            if part.failed:
                self._failures.look(part)
            skipped = self._sort_out_tombstones(part, failed)
            began = time.perf_counter()
            blocks = self._encode(part_result, failed, part)
            encoded = time.perf_counter()
            try:
                self._publish(blocks, part_result, failed, part, skipped)
            except Voided as error:
                self.confirming.voided(error)
            self._meters.stage("encode", began, encoded - began, part_result.batch.size)
            self._meters.stage("send", encoded, time.perf_counter() - encoded, part_result.batch.size)
        # The ledger refers to `decoded` until all rows are confirmed; only the records may still be needed.
        decoded.batch = NO_ROWS

    def keep_gathered(self, batches: Iterable[DecodedBatch], result: Result) -> None:
        """Keep what steps made of these batches and of earlier records until their rows are complete, as no other
        record has it. It counts in `limits.in_flight`.
        """
        for made in result.gathered:
            for decoded in batches:
                if not len(decoded.rows):
                    continue
                rows = made.batch.rows
                share = np.count_nonzero((rows >= decoded.rows[0]) & (rows <= decoded.rows[-1]))
                if share:
                    decoded.gathered.append(made)
                    self.ledger.grow(decoded.rows[0], made.byte_count * int(share) // len(rows))

    def emit(self, result: Result) -> None:
        """Send the results that stateful steps gave without new input.

        Rows that came from records are in the ledger already, held; those that time made are entered. Raises as
        `deliver` does.
        """
        for decoded, part in self._timed.entered(result):
            entry = self.ledger.enter(decoded.records, decoded.first, decoded, counted=False)
            self.keep_gathered([decoded], part)
            if entry.all_undecided:
                self.deliver(decoded, part)
            elif not entry.is_complete:
                decoded.keep(as_array(decoded.rows)[entry.undecided])
                self.deliver(*part_of(decoded, part, as_array(decoded.rows)))
        if result.timed:
            result = _without_timed(result)
        if not (result.batch.size or result.failed or result.dropped):
            return
        failed: Failed = dict(result.failed)
        self._publish(self._encode(result, failed), result, failed)

    @property
    def last_letters(self) -> list[Logged]:
        """The last dead letters, as `DeadLetters.last` gives them. From any thread."""
        return self._letters.last

    def collect(self) -> None:
        """Enter the confirmations of the sinks since the last call into the ledger."""
        for rows in self.confirming.confirmed():
            self._confirmed(self.ledger.confirm(rows))

    def wait_for_confirmations(self, deadline: float, *, answers: bool = False) -> None:
        """Wait until all messages sent are confirmed or known to be lost; answers only if `answers` says so, as clients
        may take any time to acknowledge them.

        Raises `ConnectorError` if the outcome of some is unknown at `deadline` (seconds on `time.monotonic`).
        """
        try:
            losses = self.confirming.wait(deadline, answers=answers)
        finally:
            self.collect()
        for route, lost in losses:
            self._handle_lost(route, lost)

    def make_room(self) -> None:
        """Records in flight have reached their limit: give up answers that clients do not take."""
        for route in self._sinks.all:
            if route.answers:
                route.sink.make_room()

    def look_for_confirmations(self) -> None:
        """As `wait_for_confirmations`, without waiting: messages that are not confirmed yet are looked at by the next
        call.

        Raises `ConnectorError` if a sink is broken for good.
        """
        try:
            self.wait_for_confirmations(time.monotonic())
        except ConnectorError as error:
            if not error.retriable:
                raise

    @property
    def is_settled(self) -> bool:
        """Whether all results and dead letters of the rows that were run are sent and confirmed."""
        waits = self.confirming.unconfirmed or self._letters.held_back or self.ledger.awaits_outputs
        return not (waits or self.withholds)

    def make_way(self, decoded: DecodedBatch | None) -> None:
        """As `Confirming.make_way`."""
        self.confirming.make_way(decoded, self._letters.send_held_back)

    def pass_over(self, decoded: DecodedBatch, places: Ints) -> None:
        """Finish the rows at these places of a batch that was entered, without running them."""
        rows = decoded.first + places
        decoded.keep(as_array(decoded.rows)[~np.isin(as_array(decoded.rows), rows)])
        self.ledger.decide(rows)

    @property
    def withholds(self) -> bool:
        """Whether nothing may be acknowledged, as no record has succeeded since the start: if that is not the records'
        fault, they are to come again. A transaction has committed its positions already.
        """
        return self._failures.none_succeeded and not self._transactional

    def end_lanes(self, lanes: Collection[Lane]) -> None:
        """These lanes have ended: none of their records is sent or acknowledged any more."""
        for lane in lanes:
            self.ledger.end(lane)
        self.confirming.lanes_ended(lanes)

    def end(self, deadline: float) -> None:
        """The service has failed: wait for confirmations, or abort the transaction, by `deadline`. Raises
        `ConnectorError`."""
        try:
            self.confirming.end(deadline)
        finally:
            self.collect()

    def close(self) -> None:
        """Release resources; called last."""
        self._letters.tell(now=True)
        self._failures.lost.tell(now=True)
        self.confirming.close()

    def release(self, *, now: bool = False) -> None:
        """Send the dead letters that were held back, once it is clear that not every record fails, or `now`."""
        if self._failures.lost.untold:
            self._failures.lost.tell(now=now)
        if self._letters.waiting:
            self._letters.release(now=now)

    def _sort_out_tombstones(self, decoded: DecodedBatch, failed: Failed) -> list[int]:
        policy = self._tombstones[decoded.source]
        if not decoded.tombstones or policy == "forward":
            return []
        rows, decoded.tombstones = decoded.tombstones, []
        if policy == "skip":
            return rows
        error = StepError("a record without a payload, and the source says tombstones: dead_letter", step="decode")
        failed.update(dict.fromkeys(rows, error))
        return []

    def _encode(self, result: Result, failed: Failed, decoded: DecodedBatch | None = None) -> list[Messages]:
        """The messages of each route. A record that cannot be encoded for one route fails, and no route gets it."""
        blocks: list[Messages] = []
        wrong: Failed = {}
        selected, unselected = select_all(self._selections, result.batch)
        wrong.update(unselected)
        for route, rows in zip(self._sinks.results, selected, strict=True):
            messages, unwritten = self._sender.written(route, rows)
            wrong.update(unwritten)
            if decoded is not None and decoded.tombstones:
                empty, unplaced = route.tombstones(decoded)
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
        decoded: DecodedBatch | None = None,
        skipped: Iterable[int] = (),
    ) -> None:
        """Send the messages and dead letters. The ledger expects all of them before the first is sent, so that no row
        counts as complete too early, even if an error is raised halfway.
        """
        decided, part_decided = _decided(result, failed, decoded)
        passed = NONE_PASSED if decoded is None else decoded.passed
        self._failures.check(failed, decided, passed)
        for messages in blocks:
            self.ledger.expect(messages.row_numbers)
        if failed:
            self._letters.expect(failed)
            self._errors.expect(failed)
        self.ledger.decide(decided)
        for route, messages in zip(self._sinks.results, blocks, strict=True):
            refused = self._sender.send(route, messages)
            if refused:
                self._fail_refused(route, messages, refused, failed)
        if failed:
            self._errors.send()
            self._letters.add(failed)
        self._count(decided, failed, [*result.dropped, *skipped], passed, decoded if part_decided else None)
        let_go(failed.values())
        if self._kept:
            self._free_payloads()

    def _free_payloads(self) -> None:
        """Free the payloads of records that no bus would deliver again, once all their results are sent: they must not
        take up memory while a sink that is away sends no confirmations.
        """
        if self._letters.held_back:
            return
        for entry in self._kept:
            if entry.is_decided:
                entry.note.let_go()
                self.ledger.let_go(entry)
        self._kept = [entry for entry in self._kept if entry.note.kept]

    def _fail_refused(
        self, route: SinkRoute, messages: Messages, refused: Mapping[int, ConnectorError], failed: Failed
    ) -> None:
        """These messages are refused for good: their records have failed, even if other sinks accepted theirs."""
        new: Failed = {}
        for at, error in refused.items():
            wrapped = StepError.of(f"sink {route.name}", error)
            new.update((row, wrapped) for row in messages.parents(at).tolist() if row not in failed)
        self._failures.check(new)
        if new:
            self._letters.expect(new)
            self._errors.expect(new)
        # Rows no longer wait for an output that was refused.
        self.ledger.confirm(np.concatenate([messages.parents(at) for at in refused]))
        failed.update(new)

    def _confirmed(self, confirmed: list[Confirmed]) -> None:
        for entry, rows in confirmed:
            decoded: DecodedBatch = entry.note
            if decoded.stamps is None:
                continue
            stamps, now = decoded.stamps if rows is None else decoded.stamps[rows], time.time()
            if len(stamps) <= FEW:
                for stamp in stamps.tolist():
                    if stamp >= 0:
                        self._meters.latency.add_one(max(now - stamp / 1000.0, 0.0))
                continue
            late = now - stamps[stamps >= 0] / 1000.0
            if len(late):
                self._meters.latency.add(np.maximum(late, 0.0))

    def _handle_lost(self, route: SinkRoute, lost: Lost) -> None:
        """Messages that the sink had accepted are lost: their records come again, or become dead letters.

        All other messages are confirmed: these rows wait for the lost messages alone.
        """
        again: list[int] = []
        failed: Failed = {}
        letters: dict[int, ConnectorError] = {}
        gone: list[int] = []
        for row, error in lost.items():
            decoded = self.ledger.note_of(row)
            if decoded is None:
                continue
            replays = self._replays[decoded.source]
            if replays is not Replays.NONE and self.ledger.is_left(decoded.records.lane_of(row - decoded.first)):
                replays = Replays.NONE
            if error.retriable and replays is not Replays.NONE:
                again.append(row)
            elif error.retriable and not self._failures.has_letters(row >> SOURCE_BITS):
                if not gone:
                    self._log.warning(
                        "results are lost", first=self._failures.place(row), sink=route.name, error=str(error)
                    )
                gone.append(row)
                self.ledger.wait_for(row, 0)
            elif route in self._sinks.letters:
                letters[row] = error
            else:
                failed[row] = StepError.of(f"sink {route.name}", error)
        self._count_rows("failed", np.array(gone, np.int64))
        if again:
            self._log.warning("messages were lost, their records come again", sink=route.name, rows=len(again))
            lanes = self.together(self.ledger.lanes_of(again))
            self._rewind(lanes, self.acknowledgeable(lanes))
            for lane in lanes:
                self.ledger.end(lane)
        self._letters.send_again(letters)
        if failed:
            self._failures.check(failed)
            for row in failed:
                self.ledger.wait_for(row, 1 if self._failures.has_letters(row >> SOURCE_BITS) else 0)
            self._letters.add(failed)
            self._count_failed(in_order(failed))

    def _count(
        self,
        decided: RowNumbers,
        failed: Failed,
        dropped: list[int],
        passed: Ints,
        decoded: DecodedBatch | None,
    ) -> None:
        """Count outcomes. `decoded` is the batch whose rows these are, each in one place; `None` for other rows."""
        if decoded is not None:
            outcomes, source = self.confirming.outcomes, decoded.source
            if decoded.timed:
                # They are no records; what became of those in a window was counted when it had them.
                outcomes[source, self._failed_outcomes[decoded.first >> SOURCE_BITS]] += len(failed)
                return
            outcomes[source, "ok"] += len(decided) - len(failed) - len(dropped) - len(passed)
            if failed:
                outcomes[source, self._failed_outcomes[decoded.first >> SOURCE_BITS]] += len(failed)
            if dropped:
                outcomes[source, "dropped"] += len(dropped)
            if len(passed):
                outcomes[source, "passed"] += len(passed)
            return
        lost = in_order(failed)
        gone = np.array(dropped, np.int64)
        self._count_failed(lost)
        self._count_rows("dropped", gone)
        self._count_rows("passed", passed)
        rows = as_array(decided)
        rows = rows[~among(rows, np.concatenate([lost, gone]))]
        self._count_rows("ok", rows[np.isin(rows, passed, invert=True)] if len(passed) else rows)

    def _count_failed(self, rows: Ints) -> None:
        for source in set((rows >> SOURCE_BITS).tolist()):
            self._count_rows(self._failed_outcomes[source], rows[rows >> SOURCE_BITS == source])

    def _count_rows(self, outcome: str, rows: Ints) -> None:
        if not len(rows):
            return
        sources = rows >> SOURCE_BITS
        if (sources == sources[0]).all():
            self.confirming.outcomes[self._sources[int(sources[0])], outcome] += len(rows)
            return
        numbers, counts = np.unique(sources, return_counts=True)
        for source, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self.confirming.outcomes[self._sources[source], outcome] += count


def _without_timed(result: Result) -> Result:
    """The part of a result whose rows came from records."""
    from_records = result.batch.rows < FIRST_TIMED
    return Result(
        result.batch if result.batch.splits is not None else result.batch.take(from_records),
        {row: error for row, error in result.failed.items() if row < FIRST_TIMED},
        {row: reason for row, reason in result.dropped.items() if row < FIRST_TIMED},
        result.held,
    )


def _decided(result: Result, failed: Failed, decoded: DecodedBatch | None) -> tuple[RowNumbers, bool]:
    """The rows that the pipeline has finished, and whether these are the rows of this batch and no others.

    Rows that a step holds are not finished; earlier rows that it names now, without holding them again, are.
    """
    if decoded is not None and not (failed or result.dropped or len(result.held)):
        emitted = result.batch.row_range
        if isinstance(decoded.rows, range) and emitted == decoded.rows:
            return emitted, True
    named = np.concatenate([result.batch.rows, in_order(failed), np.fromiter(result.dropped, np.int64)])
    if decoded is None:
        decided, is_own = np.unique(named), False
    else:
        rows = decoded.rows
        # Also of an earlier part of the same batch.
        earlier = named if not len(rows) else named[(named < rows[0]) | (named > rows[-1])]
        is_own = not len(earlier) and not len(result.held)
        if is_own:
            return rows, True
        decided = np.concatenate([np.unique(earlier), as_array(rows)])
    return (decided[~among(decided, result.held)] if len(result.held) else decided), is_own
