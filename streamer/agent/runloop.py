"""The run thread: runs batches through the pipeline, sends results to the sinks, positions back to the sources.

It alone touches the executor, the sinks and the ledger. Batches come from the intake threads through one bounded
queue; their other messages come through `control`, and are served before the next batch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from connectors.codecs.registry import codec_config
from connectors.records import Lane, Records
from connectors.source import Replays
from pipelines.data.batch import Batch
from pipelines.errors import ConnectorError, DefinitionError, StreamerError
from streamer.agent.assembly import Assembly
from streamer.agent.batchqueue import BatchQueue, ByteBudget
from streamer.agent.batchruns import IDLE_LEAVE_WAIT, LAST_WAIT, LEAVE_WAIT, BatchRuns, DrainTime
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.intake import Intake
from streamer.agent.messages import Ended, Forgettable, RevokeRequest, ToRunThread
from streamer.batching.batcher import Batcher
from streamer.batching.rounds import RoundBatcher
from streamer.delivery.barrier import Barrier
from streamer.delivery.confirming import Confirming
from streamer.delivery.delivery import Delivery
from streamer.delivery.failures import FailureWatch, ServiceStopped
from streamer.delivery.guarantee import STATEFUL, guarantee
from streamer.delivery.ledger import Ledger
from streamer.delivery.transactions import Transactions
from streamer.observe.metrics import ServiceMeters
from streamer.routing.keep import kept, put_metadata

COMMIT_INTERVAL = 1.0
"""Seconds between acknowledgements; each waits for confirmations that have not come by themselves."""
CONFIRM_WAIT = 0.005
"""Seconds of one wait for a batch while records wait for confirmations."""
IDLE_WAIT = 0.1
"""Seconds of one wait for a batch when everything is confirmed."""
CONFIRM_SLICE = 0.5
"""Seconds of one wait for confirmations, between which messages of the intake threads are read."""
STANDSTILL = 5.0
"""Seconds without a batch, though the sources have more records, after which a warning is logged."""


class RunLoop:
    """The run thread's loop, from opening the parts to closing them: `open`, `run`, `end`, in this order."""

    def __init__(self, assembly: Assembly, meters: ServiceMeters, log: Any) -> None:
        service = assembly.service
        self.progress_at = time.monotonic()
        """When the loop last began a round, or a sink last made it wait (seconds on `time.monotonic`)."""
        self.intakes: list[Intake] = []
        """One for each source, once they are open."""
        self._service = service
        self._guarantee = guarantee(service.delivery)
        self._assembly = assembly
        self._meters = meters
        self._log = log
        self._budget = ByteBudget(service.limits.in_flight)
        perishable = any(source.perishable for _, _, source in assembly.sources)
        self._batches = BatchQueue(service.limits.batches, tells_when_wanted=perishable)
        self._control: deque[ToRunThread] = deque()
        self._revoke_requests: list[RevokeRequest] = []
        self._by_source: dict[str, Intake] = {}
        self._forgettable: list[Forgettable] = []
        self._finished: set[Intake] = set()
        self._failed: set[Intake] = set()
        self._source_error: BaseException | None = None
        self._idle_since: float | None = None
        self._batch = service.batch.for_sources(
            perishable=all(source.perishable for _, _, source in assembly.sources), in_flight=service.limits.in_flight
        )
        self._drain = DrainTime(service.limits.drain)
        self._runs = BatchRuns(self._batch, self._drain, service.debug, log)
        self._sessions = frozenset(name for name, _, source in assembly.sources if source.replays is Replays.SESSION)
        """Names of the sources that replay a session: they acknowledge in each round, as their bus lets only a few
        records be in flight."""
        self._never_waits = any(source.replays is Replays.NONE for _, _, source in assembly.sources)
        """Whether a source cannot deliver records again: they would be lost while the run thread waits for sinks."""
        self._stateful = False
        self._delivery: Delivery | None = None
        meters.in_flight = lambda: self._budget.reserved
        meters.lag = self._lag

    def stop(self) -> None:
        """Stop polling; records in flight are finished as far as `limits.drain` allows. From any thread."""
        self._drain.begin()
        for intake in self.intakes:
            intake.stop()

    def open(self) -> None:
        """Open the pipeline, the sinks and the sources, which begin to poll. Raises the first error of opening."""
        self._assembly.open()
        self._delivery = self._opened_delivery()
        self._meters.oldest = self._delivery.ledger.oldest
        self._stateful = self._assembly.executor.stateful
        self._runs.sizer.any_size = self._assembly.executor.limit(self._batch.max_records)
        self._assembly.executor.observer = self._meters.run
        self._meters.step_metrics = self._assembly.executor.metrics
        if self._assembly.profiler is not None:
            self._meters.profile(self._assembly.profiler)
        if self._drain.begun:
            return
        self.intakes = self._built_intakes()
        self._by_source = {intake.source.name: intake for intake in self.intakes}
        for intake in self.intakes:
            intake.start()
        for intake in self.intakes:
            intake.wait_until_open()
        self._assembly.check_transactions()
        for intake in self.intakes:
            intake.begin()
        if self._drain.begun:
            # `stop` may have been called before there were intakes to stop.
            self.stop()

    def run(self) -> None:
        """Run until all sources have ended, failed or stopped, and everything is finished.

        Raises the error that ends the service.
        """
        delivery = self._open_delivery
        next_commit = time.monotonic() + COMMIT_INTERVAL
        while True:
            self.progress_at = time.monotonic()
            decoded = self._next()
            in_time = decoded is None or self._process(decoded)
            if self._runs.rest is not None or self._batches.empty():
                delivery.push()
            delivery.collect()
            delivery.release()
            if self._stateful:
                delivery.emit(self._assembly.executor.tick(time.monotonic()))
            self._notice_standstill(decoded)
            if self._control:
                self._serve_control()
            if self._forgettable:
                self._forget()
            if self._revoke_requests:
                self._answer_revoke_requests()
            now = time.monotonic()
            if now >= next_commit or self._budget.is_short:
                self._commit()
                next_commit = time.monotonic() + COMMIT_INTERVAL
            elif waiting_intakes := self._held_up():
                self._commit_for(waiting_intakes)
            elif self._sessions:
                self._acknowledge(self._sessions)
            if not in_time or now >= self._drain.run_until:
                self._cut_short()
                break
            waiting = self._runs.rest is not None or not self._batches.empty()
            if len(self._finished) == len(self.intakes) and not waiting and self._drained():
                break
        if self._source_error is not None:
            raise self._source_error

    @property
    def waiting(self) -> tuple[float, str] | None:
        """See `Confirming.waiting`. From any thread."""
        return None if self._delivery is None else self._delivery.waiting

    def end(self, failed: bool) -> None:
        """Acknowledge complete records, and close everything, also after a failure."""
        try:
            for intake in self.intakes:
                intake.discard()
            if failed and self.intakes:
                self._end_delivery()
            if self.intakes:
                # Lanes that ended during the last moments must not be acknowledged.
                self._serve_control()
                self._acknowledge(last=True, failed=failed)
                self._see_off_intakes()
        finally:
            if self._delivery is not None:
                self._delivery.close()
            self._assembly.close()

    def _opened_delivery(self) -> Delivery:
        assembly, service = self._assembly, self._service
        ledger = Ledger(self._budget.release)
        return Delivery(
            service.name,
            assembly.routes,
            assembly.dead,
            ledger=ledger,
            confirming=self._confirming(ledger),
            drop_failed=service.on_error == "drop",
            tombstones={name: config.tombstones for name, config, _ in assembly.sources},
            watch=FailureWatch(service.errors.stop_ratio, service.errors.over, service.errors.first_records),
            guarantee=self._guarantee,
            replays={name: source.replays for name, _, source in assembly.sources},
            codecs={name: codec_config(config.codec) for name, config, _ in assembly.sources},
            rewind=self._rewind,
            meters=self._meters.run,
            patience=self._patience,
            log=self._log,
        )

    def _confirming(self, ledger: Ledger) -> Confirming:
        assembly = self._assembly
        first = assembly.transactional
        if first is None:
            return Barrier(assembly.all_routes, self._meters.run)
        if assembly.executor.stateful:
            raise DefinitionError(STATEFUL)
        return Transactions(
            assembly.all_routes,
            first,
            assembly.dead,
            self._service.transactions,
            ledger,
            token=lambda: self.intakes[0].token,
            serve=self._serve_control,
            rewind=self._rewind,
            meters=self._meters.run,
            patience=self._patience,
            log=self._log,
        )

    def _built_batcher(self) -> Batcher:
        batcher = self._batch.build()
        if isinstance(batcher, RoundBatcher):
            batcher.rounds = self._runs.rounds
        # Not for batches of an exact size, nor where steps hold state or records are traced.
        ahead = self._guarantee.may_gather_ahead and not (self._stateful or self._service.debug)
        if self._batch.type == "soft" and ahead:
            batcher.sizer = self._runs.sizer
        return batcher

    def _built_intakes(self) -> list[Intake]:
        assembly, service = self._assembly, self._service
        wanted = assembly.wanted()
        return [
            Intake(
                source,
                assembly.codecs[name],
                self._built_batcher(),
                index=index,
                wanted=wanted,
                enrich=_enricher(config.into),
                batches=self._batches,
                control=self._control,
                budget=self._budget,
                meters=self._meters.sources[name],
                guarantee=self._guarantee,
                stuck_after=service.limits.stuck,
                pixels=None if self._batch.type == "hard" else service.limits.pixels,
                opens_images=assembly.opens_images,
                log=self._log,
            )
            for index, (name, config, source) in enumerate(assembly.sources)
        ]

    def _next(self) -> DecodedBatch | None:
        """The rest of the batch that is being run, or the next batch."""
        delivery = self._open_delivery
        decoded, self._runs.rest = self._runs.rest, None
        if decoded is not None:
            delivery.look_again(decoded)
            return decoded
        # Sinks are queried often only while rows wait for them: a wake-up costs more than a query.
        asks = delivery.unconfirmed and (delivery.ledger.has_open_rows or self._guarantee.transactional)
        decoded = self._batches.get(CONFIRM_WAIT if asks else IDLE_WAIT)
        if decoded is not None:
            delivery.enter(decoded)
        return decoded

    def _process(self, decoded: DecodedBatch) -> bool:
        """Run as many rows of a batch as take little time; the next round runs the rest. `False`: no time is left."""
        delivery, keep = self._open_delivery, self._service.keep
        began = time.perf_counter()
        ran = self._runs.run(self._assembly.executor, decoded, delivery.run_next)
        if ran is None:
            return False
        part, result = ran
        if keep:
            result.batch = kept(result.batch, part.batch, keep)
        self._meters.run.stage("run", began, time.perf_counter() - began, part.batch.size)
        delivery.deliver(part, result)
        if self._runs.rest is None:
            self._by_source[decoded.source].processed += 1
        return True

    def _notice_standstill(self, decoded: DecodedBatch | None) -> None:
        """Warn if polling has stopped because steps hold too many records, whose windows then never complete."""
        delivery = self._open_delivery
        holds = self._stateful and delivery.ledger.has_open_rows and not delivery.unconfirmed
        if decoded is not None or not holds or not (self._budget.is_full or self._held_up()):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > STANDSTILL:
            self._idle_since = float("inf")
            if not self._budget.is_full:
                self._log.warning(
                    "the bus delivers no more records before some are acknowledged, and steps hold all that it "
                    "delivered; make its window larger, or those of the steps smaller",
                    sources=[intake.source.name for intake in self._held_up()],
                )
                return
            self._log.warning(
                "polling has stopped, as records that steps hold take up limits.in_flight; raise it, or make the "
                "windows smaller",
                in_flight=self._budget.reserved,
            )

    def _serve_control(self) -> None:
        while self._control:
            message = self._control.popleft()
            if isinstance(message, RevokeRequest):
                self._revoke_requests.append(message)
            elif isinstance(message, Ended):
                self._end_lanes(message)
            elif isinstance(message, Forgettable):
                self._forgettable.append(message)
            elif message.error is not None:
                # The batches that the intake handed over before it failed are still finished.
                self._source_error = self._source_error or message.error
                self._failed.add(message.intake)
                self._finished.add(message.intake)
                self.stop()
            elif message.rewinds == message.intake.rewinds:
                self._finished.add(message.intake)

    def _end_lanes(self, ended: Ended) -> None:
        ledger = self._open_delivery.ledger
        if not ended.finish:
            self._open_delivery.end_lanes(ended.lanes)
            self._assembly.executor.forget(ended.lanes)
            return
        for lane in ended.lanes:
            if ledger.has_ended(lane):
                # The records of lost results should have come again, but the bus no longer has them.
                self._log.error(
                    "records are lost: first their results, then the session of the bus", source=lane.source
                )
            ledger.leave(lane)

    def _forget(self) -> None:
        """Have steps discard the state of lanes whose last records are finished."""
        ledger = self._open_delivery.ledger
        done = [
            one
            for one in self._forgettable
            if one.intake.processed >= one.handed_over and not any(map(ledger.has_open, one.lanes))
        ]
        for one in done:
            self._assembly.executor.forget(one.lanes)
            self._forgettable.remove(one)

    def _answer_revoke_requests(self) -> None:
        """Answer the revoke requests whose source has no batch left in the queue, or whose time is nearly over."""
        now = time.monotonic()
        ready = [
            one for one in self._revoke_requests if one.intake.processed >= one.intake.handed_over or now >= one.due
        ]
        if not ready:
            return
        self._revoke_requests = [one for one in self._revoke_requests if one not in ready]
        self._open_delivery.hurry()
        try:
            # A little earlier, so that the answer comes in time.
            self._open_delivery.wait_for_confirmations(
                min(one.deadline - 0.1 * (one.deadline - one.due) for one in ready)
            )
        except ConnectorError as error:
            self._log.warning("not all results were confirmed before lanes were taken away", error=str(error))
        finally:
            # In any case, as their intake threads wait for it.
            for one in ready:
                one.answer(self._marks_of(one.lanes))

    def _marks_of(self, lanes: Iterable[Lane]) -> Mapping[Lane, int]:
        if self._open_delivery.withholds:
            return {}
        return self._guarantee.on_revoke(self._open_delivery.ledger, lanes)

    def _commit(self) -> None:
        if self._never_waits:
            self._open_delivery.look_for_confirmations()
            self._acknowledge()
            return
        if self._budget.is_full:
            self._open_delivery.make_room()
        # A sink that confirms while messages flow need not stop for a barrier at each commit.
        if self._budget.is_short or not self._open_delivery.keeps_up(COMMIT_INTERVAL):
            trouble = self._wait_for_confirmations(time.monotonic() + self._service.limits.confirm)
            if trouble is not None:
                self._log.warning("results are not confirmed yet, trying again", error=str(trouble))
        self._acknowledge()

    def _held_up(self) -> list[Intake]:
        """The intakes whose source is starved, though all its records have been run: it waits for acknowledgements.

        If no batch was run since a commit with everything confirmed, steps hold the source's records; such an intake is
        returned only when there is no other work.
        """
        found = [one for one in self.intakes if one.starved and one.processed >= one.handed_over]
        if found and not (self._runs.rest is None and self._batches.empty()):
            found = [one for one in found if one.processed != one.processed_at_commit]
        return found

    def _commit_for(self, intakes: Sequence[Intake]) -> None:
        """Wait until all sent messages are confirmed, and acknowledge: these intakes get no records before that."""
        trouble = self._wait_for_confirmations(time.monotonic() + self._service.limits.confirm)
        if trouble is not None:
            self._log.warning("results are not confirmed yet, trying again", error=str(trouble))
        else:
            for intake in intakes:
                intake.processed_at_commit = intake.processed
        self._acknowledge()

    def _wait_for_confirmations(self, deadline: float, *, answers: bool = False) -> ConnectorError | None:
        """Wait until all sent messages are confirmed, answers to clients too with `answers`.

        Returns the error of a sink if they are not by `deadline`, by the end of the time to drain, or when an intake
        thread waits for an answer.
        """
        while True:
            try:
                self._open_delivery.wait_for_confirmations(
                    min(deadline, self._drain.confirm_until, time.monotonic() + CONFIRM_SLICE), answers=answers
                )
                return None
            except ConnectorError as error:
                if not error.retriable:
                    raise
                self.progress_at = time.monotonic()
                self._serve_control()
                if self.progress_at >= min(deadline, self._drain.confirm_until) or self._revoke_requests:
                    return error

    def _acknowledge(self, sources: Collection[str] | None = None, *, last: bool = False, failed: bool = False) -> None:
        """Have these sources (`None`: all) acknowledge the positions of complete records.

        Not while all records have failed since the start, unless a source gets no others before that, or this is the
        `last` time. `failed`: the service has failed.
        """
        delivery = self._open_delivery
        if delivery.withholds and (failed or not (last or self._held_up())):
            marks: Mapping[Lane, int] = {}
        else:
            marks = self._guarantee.on_commit(delivery.ledger, sources)
        if not (marks or last):
            return
        for intake in self.intakes:
            own = {lane: position for lane, position in marks.items() if lane.source == intake.source.name}
            if last:
                intake.close(own)
            elif own:
                intake.acknowledge(own)

    def _drained(self) -> bool:
        """Flush the steps and wait for confirmations, as the sources have ended.

        Returns whether the run is over: not if records come again.
        """
        delivery = self._open_delivery
        deadline = time.monotonic() + self._service.limits.drain
        if self._stateful:
            delivery.emit(self._assembly.executor.flush())
        delivery.release(now=True)
        while delivery.unconfirmed:
            trouble = self._wait_for_confirmations(deadline, answers=True)
            self._answer_revoke_requests()
            if trouble is not None and time.monotonic() >= min(deadline, self._drain.confirm_until):
                raise _unconfirmed(trouble)
        if self._drain.begun or len(self._finished) == len(self.intakes):
            if left := delivery.ledger.open_rows:
                self._log.warning("records are not finished, the next run gets them again", records=left)
            return True
        # Messages were lost, and their records come again. Not at once, as the cause may still be there.
        time.sleep(COMMIT_INTERVAL)
        return False

    def _cut_short(self) -> None:
        """The time to drain is over: records that were not run are delivered again in the next run."""
        for intake in self.intakes:
            intake.discard()
        waiting = self._batches.waiting + (self._runs.rest is not None)
        self._log.warning("there was no time to finish, the next run gets the remaining records", waiting=waiting)
        self._drain.ran()
        self._open_delivery.hurry()
        while self._open_delivery.unconfirmed:
            trouble = self._wait_for_confirmations(float("inf"), answers=True)
            self._answer_revoke_requests()
            if trouble is not None and time.monotonic() >= self._drain.confirm_until:
                raise _unconfirmed(trouble)

    def _end_delivery(self) -> None:
        now = time.monotonic()
        deadline = min(now + self._service.limits.confirm, max(self._drain.deadline, now + self._drain.last_wait))
        try:
            self._open_delivery.end(deadline)
        except Exception as error:  # noqa: BLE001 - the service has failed already, with a better reason
            self._log.warning("the last results were not confirmed", error=str(error))

    def _see_off_intakes(self) -> None:
        now = time.monotonic()
        longest = min(now + LEAVE_WAIT, max(self._drain.deadline, now + LAST_WAIT))
        for intake in self.intakes:
            # Positions that it was told long ago are acknowledged.
            is_idle = now - intake.marked_at > LEAVE_WAIT / 3 and not self._open_delivery.ledger.has_open_rows
            deadline = min(longest, now + IDLE_LEAVE_WAIT) if is_idle else longest
            while not intake.join(0.05):
                # Its source may be in the middle of a rebalance.
                self._serve_control()
                for one in self._revoke_requests:
                    one.answer(self._marks_of(one.lanes))
                self._revoke_requests = []
                if time.monotonic() >= deadline:
                    tell = self._log.info if is_idle else self._log.error
                    tell("a source does not close, and is left as it is", source=intake.source.name)
                    break

    def _rewind(self, lanes: Iterable[Lane], marks: Mapping[Lane, int]) -> None:
        for intake in self.intakes:
            own = [lane for lane in lanes if lane.source == intake.source.name]
            if own:
                # In this order, so that only incomplete records come again.
                intake.acknowledge({lane: marks[lane] for lane in own if lane in marks})
                intake.rewind(own)
                if intake not in self._failed:
                    self._finished.discard(intake)

    def _patience(self) -> float:
        self.progress_at = time.monotonic()
        return self._drain.deadline - self.progress_at

    @property
    def _open_delivery(self) -> Delivery:
        if self._delivery is None:
            raise StreamerError("the service is not open")
        return self._delivery

    def _lag(self) -> Mapping[tuple[str, int], int]:
        return {key: behind for intake in self.intakes for key, behind in intake.lag.items()}


def _unconfirmed(trouble: ConnectorError) -> ServiceStopped:
    stopped = ServiceStopped(f"not all results could be confirmed before the end: {trouble}")
    stopped.__cause__ = trouble
    return stopped


def _enricher(into: Mapping[str, str]) -> Any:
    if not into:
        return None

    def enrich(batch: Batch, records: Records, first: int) -> Batch:
        return put_metadata(batch, into)

    return enrich
