"""Delivery: from a batch's result to confirmed messages and positions that may be acknowledged.

Owned by the run thread, as are the sinks and the ledger. In the steady state nothing here waits, except when a sink is
full.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from connectors.codecs.config import CodecConfig
from connectors.records import Ints, Lane, Messages
from connectors.sink import Lost, Voided
from connectors.source import Replays
from pipelines.data.membership import among
from pipelines.data.result import Result
from pipelines.data.rowrange import RowNumbers, as_array
from pipelines.errors import ConnectorError, StepError, step_of
from pipelines.executors.accounting import NO_ROWS, accounted
from streamer.agent.decodedbatch import SOURCE_BITS, DecodedBatch
from streamer.delivery.confirming import Confirming
from streamer.delivery.deadletter import Letter, dead_letters
from streamer.delivery.failures import FailureWatch, ServiceStopped, let_go
from streamer.delivery.fitting import CodecHints
from streamer.delivery.guarantee import Guarantee
from streamer.delivery.ledger import Confirmed, Ledger
from streamer.delivery.ledgerentry import LedgerEntry
from streamer.delivery.letterlog import LetterLog
from streamer.delivery.losslog import LossLog
from streamer.delivery.sending import messages_of, send_all, send_some
from streamer.observe.metrics import RunMeters
from streamer.routing.messageblocks import in_row_order, without
from streamer.routing.sinkroute import Failed, SinkRoute, of_sources, select_all

HOLD = 5.0
"""Seconds that dead letters are held back while it is unknown whether most records fail."""


LET_GO = "the record was not kept until its results were confirmed, as its source is live"
"""Why a letter that is sent after all results lacks the payload."""


class Delivery:
    """Sends results and dead letters, keeps the ledger, and gives the positions that may be acknowledged."""

    def __init__(
        self,
        service: str,
        routes: list[SinkRoute],
        dead: SinkRoute | None,
        *,
        ledger: Ledger,
        confirming: Confirming,
        drop_failed: bool,
        tombstones: Mapping[str, str],
        watch: FailureWatch,
        guarantee: Guarantee,
        replays: Mapping[str, Replays],
        codecs: Mapping[str, CodecConfig],
        rewind: Callable[[Iterable[Lane], Mapping[Lane, int]], None],
        meters: RunMeters,
        patience: Callable[[], float],
        log: Any,
    ) -> None:
        """`replays` names the sources in the order of their numbers; `codecs` has each one's codec.

        `rewind` has lanes delivered again, from the positions that are given with them. `patience` gives the seconds to
        wait for a sink that accepts no messages.
        """
        self.ledger = ledger
        self._confirming = confirming
        self._service = service
        self._routes = routes
        self._dead = dead
        self._drop_failed = drop_failed
        self._failed_outcome = "failed" if drop_failed else "dead"
        self._tombstones = tombstones
        self._watch = watch
        self._transactional = guarantee.transactional
        self._replays = {name: guarantee.on_loss(source) for name, source in replays.items()}
        self._sources = list(replays)
        self._rewind = rewind
        self._meters = meters
        self._patience = patience
        self._log = log
        self._letters = LetterLog(log, "dead letter")
        self._lost = LossLog(log)
        self._shortened = LetterLog(log, "shortened dead letter")
        self._hints = CodecHints(log, codecs)
        self._answered = _answered(routes, len(self._sources))
        self._not_replayed = {number for number, source in enumerate(replays) if replays[source] is Replays.NONE}
        self._kept: list[LedgerEntry] = []
        """Entries of sources that cannot deliver records again, whose payloads are still in memory."""
        self._dropping: dict[str, int] = {}
        """Messages dropped since a sink began to be full, by its name."""
        self._held_back: Failed = {}
        self._held_back_since = 0.0

    @property
    def unconfirmed(self) -> bool:
        """Whether messages were sent since the last successful `wait_for_confirmations`."""
        return self._confirming.unconfirmed

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

    def deliver(self, decoded: DecodedBatch, result: Result) -> None:
        """Send the pipeline's results for a batch, and dead letters for the records that failed.

        Raises `ServiceStopped` if failures have to stop the service, `ConnectorError` if a sink is broken for good.
        """
        for part, own in self._confirming.admit(decoded, result, self._send_held_back):
            failed: Failed = {**part.failed, **own.failed}
            if part.failed:
                self._hints.look(part, self._place)
            skipped = self._sort_out_tombstones(part, failed)
            began = time.perf_counter()
            blocks = self._encode(own, failed, part)
            encoded = time.perf_counter()
            try:
                self._publish(blocks, own, failed, part, skipped)
            except Voided as error:
                self._confirming.voided(error)
            self._meters.stage("encode", began, encoded - began, own.batch.size)
            self._meters.stage("send", encoded, time.perf_counter() - encoded, own.batch.size)
        # The ledger refers to `decoded` until all rows are confirmed; only the records may still be needed.
        decoded.batch = NO_ROWS

    def emit(self, result: Result) -> None:
        """Send the results that stateful steps gave without new input. Their rows are in the ledger already, held.

        Raises as `deliver` does.
        """
        if not (result.batch.size or result.failed or result.dropped):
            return
        failed: Failed = dict(result.failed)
        self._publish(self._encode(result, failed), result, failed)

    def collect(self) -> None:
        """Enter the confirmations of the sinks since the last call into the ledger."""
        for rows in self._confirming.confirmed():
            self._confirmed(self.ledger.confirm(rows))

    def push(self) -> None:
        """No more messages are sent for now: send those that wait for others."""
        self._confirming.push()

    def wait_for_confirmations(self, deadline: float, *, answers: bool = False) -> None:
        """Wait until all messages sent are confirmed or known to be lost; answers only if `answers` says so, as clients
        may take any time to acknowledge them.

        Raises `ConnectorError` if the outcome of some is unknown at `deadline` (seconds on `time.monotonic`).
        """
        try:
            losses = self._confirming.wait(deadline, answers=answers)
        finally:
            self.collect()
        for route, lost in losses:
            self._handle_lost(route, lost)

    def make_room(self) -> None:
        """Records in flight have reached their limit: give up answers that clients do not take."""
        for route in (*self._routes, *filter(None, [self._dead])):
            if route.answers:
                route.sink.make_room()

    def hurry(self) -> None:
        """Do not wait any longer for dead letters that are held back; see `Confirming.hurry`."""
        self._confirming.hurry()

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
    def withholds(self) -> bool:
        """Whether nothing may be acknowledged, as no record has succeeded since the start: if that is not the records'
        fault, they are to come again. A transaction has committed its positions already.
        """
        return self._watch.none_succeeded and not self._transactional

    def keeps_up(self, seconds: float) -> bool:
        """Whether messages are confirmed within so many seconds, without `wait_for_confirmations`."""
        return self._confirming.keeps_up(seconds)

    def run_next(self, seconds: float) -> None:
        """A batch is run next, which will take about so many seconds."""
        self._confirming.run_next(seconds)

    def end_lanes(self, lanes: Collection[Lane]) -> None:
        """These lanes have ended: none of their records is sent or acknowledged any more."""
        for lane in lanes:
            self.ledger.end(lane)
        self._confirming.lanes_ended(lanes)

    def end(self, deadline: float) -> None:
        """The service has failed: wait for confirmations, or abort the transaction, by `deadline`. Raises
        `ConnectorError`."""
        try:
            self._confirming.end(deadline)
        finally:
            self.collect()

    @property
    def waiting(self) -> tuple[float, str] | None:
        """See `Confirming.waiting`."""
        return self._confirming.waiting

    def close(self) -> None:
        """Release resources; called last."""
        for told in (self._letters, self._shortened, self._lost):
            told.tell(now=True)
        self._confirming.close()

    def release(self, *, now: bool = False) -> None:
        """Send the dead letters that were held back, once it is clear that not every record fails, or `now`."""
        for told in (self._letters, self._shortened, self._lost):
            if told.untold:
                told.tell(now=now)
        if not self._held_back:
            return
        if not now and self._watch.suspect is not None and time.monotonic() - self._held_back_since < HOLD:
            return
        self._send_held_back()

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
        selected, unselected = select_all([route.selection for route in self._routes], result.batch)
        wrong.update(unselected)
        for route, rows in zip(self._routes, selected, strict=True):
            messages, unwritten = messages_of(route, rows, self._patience, self._log)
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
        decided, own = _decided(result, failed, decoded)
        self._check(failed, rows=self._watched(decided))
        for messages in blocks:
            self.ledger.expect(messages.rows if messages.row_range is None else messages.row_range)
        self._expect_letters(failed)
        self.ledger.decide(decided)
        for route, messages in zip(self._routes, blocks, strict=True):
            refused = self._send(route, messages)
            if refused:
                self._fail_refused(route, messages, refused, failed)
        self._send_or_hold_letters(failed)
        self._count(decided, failed, [*result.dropped, *skipped], decoded if own else None)
        let_go(failed.values())
        if self._kept:
            self._free_payloads()

    def _free_payloads(self) -> None:
        """Free the payloads of records that no bus would deliver again, once all their results are sent: they must not
        take up memory while a sink that is away sends no confirmations.
        """
        if self._held_back:
            return
        for entry in self._kept:
            if entry.is_decided:
                entry.note.let_go()
                self.ledger.let_go(entry)
        self._kept = [entry for entry in self._kept if entry.note.kept]

    def _check(self, failed: Failed, rows: int = 0) -> None:
        """Stop the service if these failures, among `rows` newly finished rows, mean that it must not go on.

        Called before they are decided: afterwards the ledger no longer knows where a lost record came from.
        """
        _, watched = self._apart(failed)
        self._watch.add(rows, watched)
        if not failed:
            return
        if not self._drop_failed and (row := self._without_letter(failed)) is not None:
            raise ServiceStopped(
                f"{self._place(row)}: {failed[row]}{self._hint(row, failed[row])}; {self._advice(row)} to "
                f"go on without such records, or write down on_error: drop"
            )
        if watched and self._watch.broken is not None:
            row = min(watched)
            raise ServiceStopped(
                f"{self._watch.text()}, so it is not the records: {failed[row]} (at {self._place(row)})"
                f"{self._hint(row, failed[row])}; nothing of this batch was acknowledged. Mend it and start again, or "
                f"{self._watch.advice()}"
            )
        if self._drop_failed:
            self._lost.add(failed, self._place)

    def _apart(self, failed: Failed) -> tuple[Failed, Failed]:
        """The failures of records whose clients are answered, which are the clients' own, and all others."""
        if not (failed and self._answered):
            return {}, failed
        answered = {row: error for row, error in failed.items() if row >> SOURCE_BITS in self._answered}
        return answered, {row: error for row, error in failed.items() if row not in answered}

    def _watched(self, rows: RowNumbers) -> int:
        """How many of these rows are of sources whose clients are not answered."""
        if not self._answered:
            return len(rows)
        return len(rows) - int(np.count_nonzero(of_sources(as_array(rows), self._answered)))

    def _without_letter(self, failed: Failed) -> int | None:
        """The first of these rows for which there is no dead letter; `None` if there is one for each."""
        if self._dead is None:
            return min(failed)
        sources = self._dead.selection.sources
        return (
            None if sources is None else min((row for row in failed if row >> SOURCE_BITS not in sources), default=None)
        )

    def _advice(self, row: int) -> str:
        if self._dead is None:
            return "give the service a dead_letter"
        source = self._sources[row >> SOURCE_BITS]
        return f'the service\'s dead_letter takes no records of the source "{source}": give it one that does'

    def _hint(self, row: int, error: Exception) -> str:
        """Which codec would read the record, where it could not be decoded."""
        decoded = self._batch_of(row) if step_of(error) == "decode" else None
        return "" if decoded is None else self._hints.of(decoded.source)

    def _expect_letters(self, failed: Failed) -> None:
        if failed and not self._drop_failed:
            self.ledger.expect(_numbers(failed))

    def _send(self, route: SinkRoute, messages: Messages) -> dict[int, ConnectorError]:
        if len(messages):
            self._confirming.sent()
        if not route.drops():
            return send_all(route, messages, self._patience, self._log)
        refused, full = send_some(route, messages)
        if full:
            self._drop(route, messages, full)
        elif route.name in self._dropping and len(messages) > len(refused):
            self._log.info("the sink accepts messages again", sink=route.name, dropped=self._dropping.pop(route.name))
        return refused

    def _drop(self, route: SinkRoute, messages: Messages, full: Mapping[int, ConnectorError]) -> None:
        """Drop messages that the sink has no room for: their rows no longer wait for them."""
        if route.name not in self._dropping:
            reason = str(next(iter(full.values())))
            self._log.warning("the sink accepts no messages, they are dropped", sink=route.name, reason=reason)
        self._dropping[route.name] = self._dropping.get(route.name, 0) + len(full)
        self._meters.dropped[route.name] += len(full)
        self.ledger.confirm(np.concatenate([messages.parents(at) for at in full]))

    def _fail_refused(
        self, route: SinkRoute, messages: Messages, refused: Mapping[int, ConnectorError], failed: Failed
    ) -> None:
        """These messages are refused for good: their records have failed, even if other sinks accepted theirs."""
        new: Failed = {}
        for at, error in refused.items():
            wrapped = StepError.of(f"sink {route.name}", error)
            new.update((row, wrapped) for row in messages.parents(at).tolist() if row not in failed)
        self._check(new)
        self._expect_letters(new)
        # Rows no longer wait for an output that was refused.
        self.ledger.confirm(np.concatenate([messages.parents(at) for at in refused]))
        failed.update(new)

    def _send_or_hold_letters(self, failed: Failed) -> None:
        """Send dead letters, or hold them back while every record seems to fail. The ledger expects them already."""
        if not failed or self._drop_failed:
            return
        answered, watched = self._apart(failed)
        if answered:
            self._send_letters(answered)
        if not watched:
            return
        if self._watch.suspect is not None:
            if not self._held_back:
                self._held_back_since = time.monotonic()
            self._held_back.update(watched)
            self._confirming.postponed = True
            return
        self._send_held_back()
        self._send_letters(watched)

    def _send_held_back(self) -> None:
        if self._held_back:
            held_back, self._held_back = self._held_back, {}
            self._confirming.postponed = False
            try:
                self._send_letters(held_back)
            except Voided as error:
                self._confirming.voided(error)

    def _send_letters(self, failed: Failed) -> None:
        if self._dead is None:
            raise ServiceStopped("records failed and there is no dead_letter")
        # A row that is complete by now was in a lane that has ended: another consumer has its record.
        for entry, rows in self.ledger.open_among(_numbers(failed)):
            decoded: DecodedBatch = entry.note
            own = {row: failed[row] for row in rows.tolist()}
            self._letters.add(own, self._place)
            self._send_until_accepted(
                self._dead, decoded, {row: self._letter(decoded, row, error) for row, error in own.items()}
            )

    def _letter(self, decoded: DecodedBatch, row: int, error: Exception) -> Letter:
        """The dead letter of a row, shortened once for each time that the sink has refused it."""
        letter = Letter.of(error)
        for refusal in self._confirming.refusals(decoded, row):
            letter = self._shortened_by(letter, row, refusal)
        return letter

    def _send_until_accepted(self, route: SinkRoute, decoded: DecodedBatch, letters: Mapping[int, Letter]) -> None:
        """Send these letters, by row number; one that the sink refuses is sent again, shorter, until it is accepted."""
        if not decoded.kept:
            letters = {row: one if one.refusals else one.shorter(LET_GO) or one for row, one in letters.items()}
        while letters:
            decoded.letters.update(letters)
            messages = dead_letters(decoded.records, decoded.first, letters, self._service)
            refused = self._send(route, messages)
            letters = self._shorter(decoded, {int(messages.rows[at]): error for at, error in refused.items()})

    def _shorter(self, decoded: DecodedBatch, refused: Mapping[int, ConnectorError]) -> dict[int, Letter]:
        """The letters to send instead of those that were refused. Raises `ServiceStopped` if one cannot be shorter."""
        letters: dict[int, Letter] = {}
        for row, refusal in refused.items():
            letters[row] = self._shortened_by(decoded.letters[row], row, str(refusal))
        self._shortened.add(refused, self._place)
        return letters

    def _shortened_by(self, letter: Letter, row: int, refusal: str) -> Letter:
        shorter = letter.shorter(refusal)
        if shorter is None:
            raise ServiceStopped(
                f"the dead letter sink refused the record at {self._place(row)}, even without its payload, key and "
                f"headers: {refusal}"
            )
        return shorter

    def _confirmed(self, found: list[Confirmed]) -> None:
        for entry, rows in found:
            decoded: DecodedBatch = entry.note
            if decoded.stamps is None:
                continue
            stamps = decoded.stamps if rows is None else decoded.stamps[rows]
            late = time.time() - stamps[stamps >= 0] / 1000.0
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
            decoded = self._batch_of(row)
            if decoded is None:
                continue
            replays = self._replays[decoded.source]
            if replays is not Replays.NONE and self.ledger.is_left(decoded.records.lane_of(row - decoded.first)):
                replays = Replays.NONE
            if error.retriable and replays is not Replays.NONE:
                again.append(row)
            elif error.retriable and self._dead is None:
                if not gone:
                    self._log.warning("results are lost", first=self._place(row), sink=route.name, error=str(error))
                gone.append(row)
                self.ledger.wait_for(row, 0)
            elif route is self._dead:
                letters[row] = error
            else:
                failed[row] = StepError.of(f"sink {route.name}", error)
        self._count_rows("failed", np.array(gone, np.int64))
        if again:
            self._log.warning("messages were lost, their records come again", sink=route.name, rows=len(again))
            lanes = self.ledger.lanes_of(again)
            self._rewind(lanes, self.ledger.all_marks(lanes))
            for lane in lanes:
                self.ledger.end(lane)
        self._send_letters_again(route, letters)
        if failed:
            self._check(failed)
            for row in failed:
                self.ledger.wait_for(row, 0 if self._drop_failed else 1)
            self._send_or_hold_letters(failed)
            self._count_rows(self._failed_outcome, _numbers(failed))

    def _send_letters_again(self, route: SinkRoute, lost: Mapping[int, ConnectorError]) -> None:
        """Send these lost letters again: unchanged if the error is retriable, else shorter."""
        # A row that is complete by now was in a lane that has just ended.
        for entry, rows in self.ledger.open_among(_numbers(lost)):
            decoded: DecodedBatch = entry.note
            own = {row: lost[row] for row in rows.tolist()}
            same = {row: decoded.letters[row] for row, error in own.items() if error.retriable}
            refused = {row: error for row, error in own.items() if not error.retriable}
            self._send_until_accepted(route, decoded, {**same, **self._shorter(decoded, refused)})

    def _count(self, decided: RowNumbers, failed: Failed, dropped: list[int], decoded: DecodedBatch | None) -> None:
        """Count outcomes. `decoded` is the batch whose rows these are, each in one place; `None` for other rows."""
        if decoded is not None:
            outcomes, source = self._confirming.outcomes, decoded.source
            outcomes[source, "ok"] += len(decided) - len(failed) - len(dropped)
            if failed:
                outcomes[source, self._failed_outcome] += len(failed)
            if dropped:
                outcomes[source, "dropped"] += len(dropped)
            return
        lost = _numbers(failed)
        gone = np.array(dropped, np.int64)
        self._count_rows(self._failed_outcome, lost)
        self._count_rows("dropped", gone)
        rows = as_array(decided)
        self._count_rows("ok", rows[~among(rows, np.concatenate([lost, gone]))])

    def _count_rows(self, outcome: str, rows: Ints) -> None:
        if not len(rows):
            return
        sources = rows >> SOURCE_BITS
        if (sources == sources[0]).all():
            self._confirming.outcomes[self._sources[int(sources[0])], outcome] += len(rows)
            return
        numbers, counts = np.unique(sources, return_counts=True)
        for source, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._confirming.outcomes[self._sources[source], outcome] += count

    def _batch_of(self, row: int) -> DecodedBatch | None:
        entry = self.ledger.open_entry(row)
        return None if entry is None else entry.note

    def _place(self, row: int) -> str:
        decoded = self._batch_of(row)
        if decoded is None:
            return "a record that another consumer has now"
        records, index = decoded.records, row - decoded.first
        partition = records.partitions[records.span_of(index)]
        place = f"{records.topic_of(index)}[{partition}]@{int(records.positions[index])}"
        name = records.keys[index] if records.keys_are_names and records.keys is not None else None
        return place if name is None else f"{place} ({name.decode(errors='replace')})"


def _answered(routes: Iterable[SinkRoute], sources: int) -> frozenset[int]:
    """Numbers of the sources whose clients are answered."""
    found = [route.selection.sources for route in routes if route.answers]
    return frozenset(number for one in found for number in (range(sources) if one is None else one))


def _decided(result: Result, failed: Failed, decoded: DecodedBatch | None) -> tuple[RowNumbers, bool]:
    """The rows that the pipeline has finished, and whether these are the rows of this batch and no others.

    Rows that a step holds are not finished; earlier rows that it names now, without holding them again, are.
    """
    if decoded is not None and not (failed or result.dropped or len(result.held)):
        emitted = result.batch.row_range
        if isinstance(decoded.rows, range) and emitted == decoded.rows:
            return emitted, True
    named = np.concatenate([result.batch.rows, _numbers(failed), np.fromiter(result.dropped, np.int64)])
    if decoded is None:
        decided, own = np.unique(named), False
    else:
        rows = decoded.rows
        # Also of an earlier part of the same batch.
        earlier = named if not len(rows) else named[(named < rows[0]) | (named > rows[-1])]
        own = not len(earlier) and not len(result.held)
        if own:
            return rows, True
        decided = np.concatenate([np.unique(earlier), as_array(rows)])
    return (decided[~among(decided, result.held)] if len(result.held) else decided), own


def _numbers(rows: Iterable[int]) -> Ints:
    return np.array(sorted(rows), np.int64)
