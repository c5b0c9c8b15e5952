"""The run thread: runs batches through the pipeline, sends results to the sinks, positions back to the sources.

It alone touches the executor, the sinks and the ledger. Batches come from the intake threads through one bounded
queue; their other messages come through `control`, and are served before the next batch.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from connectors.records import Lane
from connectors.source import Replays
from pipelines.errors import ConnectorError, StreamerError
from streamer.agent.assembly import Assembly
from streamer.agent.batchqueue import BatchQueue, ByteBudget, RunInbox
from streamer.agent.batchruns import IDLE_LEAVE_WAIT, LAST_WAIT, LEAVE_WAIT, BatchRuns, DrainTime
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.intakes import Intake, Intakes
from streamer.agent.messages import Ended
from streamer.agent.opening import built_intakes, opened_delivery
from streamer.batching.residence import Residence
from streamer.delivery.delivery import Delivery
from streamer.delivery.failures import ServiceStopped
from streamer.delivery.guarantee import guarantee
from streamer.observe.metrics import ServiceMeters
from streamer.routing.keep import kept

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
        self._service = service
        self._guarantee = guarantee(service.delivery)
        self._assembly = assembly
        self._meters = meters
        self._log = log
        perishable = [source.perishable for _, _, source in assembly.sources]
        self._inbox = RunInbox(
            BatchQueue(service.limits.batches, tells_when_wanted=any(perishable)), ByteBudget(service.limits.in_flight)
        )
        self._drain = DrainTime(service.limits.drain)
        self._intakes = Intakes(self._inbox.control, self._drain, self._end_lanes)
        self._batch = service.batch.for_sources(perishable=all(perishable), in_flight=service.limits.in_flight)
        self._runs = BatchRuns(self._batch, self._drain, service.debug, log)
        self._residence = Residence(meters.run, self._batch, log)
        self._since = 0.0
        """When the batch that is being run was taken from the queue."""
        self._sessions = frozenset(name for name, _, source in assembly.sources if source.replays is Replays.SESSION)
        """Names of the sources that replay a session: they acknowledge in each round, because their bus allows few
        records in flight."""
        self._never_waits = any(source.replays is Replays.NONE for _, _, source in assembly.sources)
        """Whether a source cannot deliver records again, so that waiting for sinks would lose records."""
        self._stateful = False
        self._idle_since: float | None = None
        self._delivery: Delivery | None = None
        meters.in_flight = lambda: self._inbox.budget.reserved
        meters.lag = self._lag

    @property
    def progress_at(self) -> float:
        """When the loop last began a round, or a sink last made it wait (seconds on `time.monotonic`)."""
        return self._drain.progress_at

    @property
    def intakes(self) -> list[Intake]:
        """The intake of each source, once the sources are open."""
        return self._intakes.all

    def stop(self) -> None:
        """Stop polling; records in flight are finished as far as `limits.drain` allows. From any thread."""
        self._assembly.draining.set()
        self._intakes.stop()

    def open(self) -> None:
        """Open the pipeline, the sinks and the sources, which begin to poll. Raises the first error of opening."""
        self._assembly.open()
        executor = self._assembly.executor
        self._delivery = opened_delivery(self._assembly, self._inbox, self._intakes, self._meters.run, self._log)
        self._meters.oldest = self._delivery.ledger.oldest
        self._stateful = executor.stateful
        self._runs.open(executor)
        executor.observer = self._meters.run
        self._meters.step_metrics = executor.metrics
        if self._assembly.profiler is not None:
            self._meters.profile(self._assembly.profiler)
        if not self._drain.begun:
            intakes = built_intakes(
                self._assembly, self._batch, self._runs, self._inbox, self._meters, self._log, self._residence.rule
            )
            self._intakes.open(intakes, self._assembly.check_transactions)

    def run(self) -> None:
        """Run until all sources have ended, failed or stopped, and everything is finished.

        Raises the error that ends the service.
        """
        delivery, intakes, batches = self._open_delivery, self._intakes, self._inbox.batches
        next_commit = time.monotonic() + COMMIT_INTERVAL
        while True:
            self._drain.progress_at = time.monotonic()
            decoded = self._next()
            in_time = decoded is None or self._process(decoded)
            if self._runs.rest is not None or batches.empty():
                delivery.confirming.push()
            delivery.collect()
            delivery.release()
            if self._stateful:
                delivery.emit(self._assembly.executor.tick(time.monotonic()))
            self._notice_standstill(decoded)
            if intakes.control:
                intakes.serve()
            if intakes.forgettable and (lanes := intakes.finished_lanes(delivery.ledger)):
                self._assembly.executor.forget(lanes)
            if intakes.revokes:
                self._answer_revoke_requests()
            now = time.monotonic()
            if now >= next_commit or self._inbox.budget.is_short:
                self._commit()
                next_commit = time.monotonic() + COMMIT_INTERVAL
            elif waiting_intakes := self._held_up():
                self._commit_for(waiting_intakes)
            elif self._sessions:
                self._acknowledge(self._sessions)
            if not in_time or now >= self._drain.run_until:
                self._cut_short()
                break
            waiting = self._runs.rest is not None or not batches.empty()
            if intakes.have_finished and not waiting and self._drained():
                break
        if intakes.error is not None:
            raise intakes.error

    @property
    def waiting(self) -> tuple[float, str] | None:
        """What waits for confirmation and since when, as `Confirming.waiting` gives it. From any thread."""
        return None if self._delivery is None else self._delivery.confirming.waiting

    def end(self, failed: bool) -> None:
        """Acknowledge complete records, and close everything, also after a failure."""
        try:
            self._intakes.discard()
            if failed and self.intakes:
                self._end_delivery()
            if self.intakes:
                # Lanes that ended during the last moments must not be acknowledged.
                self._intakes.serve()
                self._intakes.close({} if failed and self._open_delivery.withholds else self._marks())
                self._see_off_intakes()
        finally:
            if self._delivery is not None:
                self._delivery.close()
            self._assembly.close()

    def _next(self) -> DecodedBatch | None:
        """The rest of the batch that is being run, or the next batch."""
        delivery = self._open_delivery
        decoded, self._runs.rest = self._runs.rest, None
        if decoded is not None:
            delivery.look_again(decoded)
            return decoded
        # Sinks are queried often only while rows wait for them: a wake-up costs more than a query.
        asks = delivery.confirming.unconfirmed and (delivery.ledger.has_open_rows or self._guarantee.transactional)
        decoded = self._inbox.batches.get(CONFIRM_WAIT if asks else IDLE_WAIT)
        if decoded is not None:
            self._since = time.monotonic()
            delivery.enter(decoded)
        return decoded

    def _process(self, decoded: DecodedBatch) -> bool:
        """Run as many rows of a batch as take little time; the next round runs the rest. `False`: no time is left."""
        delivery, keep = self._open_delivery, self._service.keep
        began = time.perf_counter()
        ran = self._runs.run(decoded, delivery.confirming.run_next)
        if ran is None:
            return False
        part, result = ran
        if keep:
            result.batch = kept(result.batch, part.batch, keep)
        self._meters.run.stage("run", began, time.perf_counter() - began, part.batch.size)
        delivery.deliver(part, result)
        self._residence.handed_over(part.arrivals, part.rows, self._since)
        if self._runs.rest is None:
            self._intakes.by_source[decoded.source].state.processed += 1
        return True

    def _notice_standstill(self, decoded: DecodedBatch | None) -> None:
        """Warn if polling has stopped because steps hold too many records, whose windows then never complete."""
        delivery = self._open_delivery
        holds = self._stateful and delivery.ledger.has_open_rows and not delivery.confirming.unconfirmed
        if decoded is not None or not holds or not (self._inbox.budget.is_full or self._held_up()):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > STANDSTILL:
            self._idle_since = float("inf")
            if not self._inbox.budget.is_full:
                self._log.warning(
                    "the bus delivers no more records before some are acknowledged, and steps hold all that it "
                    "delivered; make its window larger, or those of the steps smaller",
                    sources=[intake.source.name for intake in self._held_up()],
                )
                return
            self._log.warning(
                "polling has stopped, as records that steps hold take up limits.in_flight; raise it, or make the "
                "windows smaller",
                in_flight=self._inbox.budget.reserved,
            )

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

    def _answer_revoke_requests(self) -> None:
        """Answer the revoke requests whose source has no batch left in the queue, or whose time is nearly over."""
        ready = self._intakes.due_revokes()
        if not ready:
            return
        self._open_delivery.confirming.hurry()
        try:
            # A tenth of the time is kept for the answer, so that it comes before the deadline.
            self._open_delivery.wait_for_confirmations(
                min(request.deadline - 0.1 * (request.deadline - request.due) for request in ready)
            )
        except ConnectorError as error:
            self._log.warning("not all results were confirmed before lanes were taken away", error=str(error))
        finally:
            # Also after an error: the intake threads wait for an answer.
            for request in ready:
                request.answer(self._marks_of(request.lanes))

    def _marks_of(self, lanes: Iterable[Lane]) -> Mapping[Lane, int]:
        if self._open_delivery.withholds:
            return {}
        return self._guarantee.on_revoke(self._open_delivery.ledger, lanes)

    def _commit(self) -> None:
        if self._never_waits:
            self._open_delivery.look_for_confirmations()
            self._acknowledge()
            return
        if self._inbox.budget.is_full:
            self._open_delivery.make_room()
        # A sink that confirms while messages flow need not stop for a barrier at each commit.
        if self._inbox.budget.is_short or not self._open_delivery.confirming.keeps_up(COMMIT_INTERVAL):
            trouble = self._wait_for_confirmations(time.monotonic() + self._service.limits.confirm)
            if trouble is not None:
                self._log.warning("results are not confirmed yet, trying again", error=str(trouble))
        self._acknowledge()

    def _held_up(self) -> list[Intake]:
        """The intakes whose source is starved, though all its records have been run: it waits for acknowledgements.

        If no batch was run since a commit with everything confirmed, steps hold the source's records; such an intake is
        returned only when there is no other work.
        """
        starved = [intake for intake in self.intakes if intake.state.starved and intake.state.all_processed]
        if starved and not (self._runs.rest is None and self._inbox.batches.empty()):
            starved = [intake for intake in starved if intake.state.processed != intake.processed_at_commit]
        return starved

    def _commit_for(self, intakes: Sequence[Intake]) -> None:
        """Wait until all sent messages are confirmed, and acknowledge: these intakes get no records before that."""
        trouble = self._wait_for_confirmations(time.monotonic() + self._service.limits.confirm)
        if trouble is not None:
            self._log.warning("results are not confirmed yet, trying again", error=str(trouble))
        else:
            for intake in intakes:
                intake.processed_at_commit = intake.state.processed
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
                now = self._drain.progress_at = time.monotonic()
                self._intakes.serve()
                if now >= min(deadline, self._drain.confirm_until) or self._intakes.revokes:
                    return error

    def _acknowledge(self, sources: Collection[str] | None = None) -> None:
        """Have these sources (`None`: all) acknowledge the positions of complete records.

        Not while all records have failed since the start, unless a source gets no others before that.
        """
        if self._open_delivery.withholds and not self._held_up():
            return
        marks = self._marks(sources)
        if marks:
            self._intakes.acknowledge(marks)

    def _marks(self, sources: Collection[str] | None = None) -> Mapping[Lane, int]:
        return self._guarantee.on_commit(self._open_delivery.ledger, sources)

    def _drained(self) -> bool:
        """Flush the steps and wait for confirmations, as the sources have ended.

        Returns whether the run is over: not if records come again.
        """
        delivery = self._open_delivery
        deadline = time.monotonic() + self._service.limits.drain
        if self._stateful:
            delivery.emit(self._assembly.executor.flush())
        delivery.release(now=True)
        while delivery.confirming.unconfirmed:
            trouble = self._wait_for_confirmations(deadline, answers=True)
            self._answer_revoke_requests()
            if trouble is not None and time.monotonic() >= min(deadline, self._drain.confirm_until):
                raise _unconfirmed(trouble)
        if self._drain.begun or self._intakes.have_finished:
            if left := delivery.ledger.open_rows:
                self._log.warning("records are not finished, the next run gets them again", records=left)
            return True
        # Messages were lost, and their records come again. Not at once, as the cause may still be there.
        time.sleep(COMMIT_INTERVAL)
        return False

    def _cut_short(self) -> None:
        """The time to drain is over: records that were not run are delivered again in the next run."""
        self._intakes.discard()
        waiting = self._inbox.batches.waiting + (self._runs.rest is not None)
        self._log.warning("there was no time to finish, the next run gets the remaining records", waiting=waiting)
        self._drain.ran()
        confirming = self._open_delivery.confirming
        confirming.hurry()
        while confirming.unconfirmed:
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
            # Positions that were sent to the intake long ago are acknowledged by now.
            is_idle = now - intake.marked_at > LEAVE_WAIT / 3 and not self._open_delivery.ledger.has_open_rows
            deadline = min(longest, now + IDLE_LEAVE_WAIT) if is_idle else longest
            while not intake.join(0.05):
                # Its source may be in the middle of a rebalance.
                self._intakes.serve()
                for request in self._intakes.revokes:
                    request.answer(self._marks_of(request.lanes))
                self._intakes.revokes = []
                if time.monotonic() >= deadline:
                    tell = self._log.info if is_idle else self._log.error
                    tell("a source does not close, and is left as it is", source=intake.source.name)
                    break

    @property
    def _open_delivery(self) -> Delivery:
        if self._delivery is None:
            raise StreamerError("the service is not open")
        return self._delivery

    def _lag(self) -> Mapping[tuple[str, int], int]:
        return {key: behind for intake in self.intakes for key, behind in intake.watch.lag.items()}


def _unconfirmed(trouble: ConnectorError) -> ServiceStopped:
    stopped = ServiceStopped(f"not all results could be confirmed before the end: {trouble}")
    stopped.__cause__ = trouble
    return stopped
