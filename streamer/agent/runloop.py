"""The run thread: runs batches through the pipeline, sends results to the sinks, positions back to the sources.

It alone touches the executor, the sinks and the ledger. Batches come from the intake threads through one bounded
queue; their other messages come through `control`, and are served before the next batch.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from connectors.records import Lane
from connectors.source import Replays
from pipelines.data.result import Result
from pipelines.errors import ConnectorError, StreamerError
from pipelines.executors.accounting import NO_ROWS
from pipelines.executors.keep import kept
from pipelines.observe.metrics import Metrics, summed
from streamer.agent.assembly import Assembly
from streamer.agent.batchqueue import BatchQueue, ByteBudget, RunInbox
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.intakes import Intake, Intakes
from streamer.agent.livemodels import LiveModels
from streamer.agent.messages import Ended
from streamer.agent.opening import built_intakes, keep_together, opened_checkpoints, opened_delivery
from streamer.agent.runs.batchrun import BatchRun
from streamer.agent.runs.batchruns import IDLE_LEAVE_WAIT, LAST_WAIT, LEAVE_WAIT, BatchRuns, DrainTime
from streamer.agent.runs.checkpointing import Checkpointing
from streamer.agent.runs.dangerous import Dangerous, SlotNotes, worker_page
from streamer.agent.runs.pipelinecalls import PipelineCalls, Running
from streamer.agent.runs.slots import Slots
from streamer.batching.residence import Residence
from streamer.definition.settings import StateSettings, StateTopicSettings
from streamer.delivery.delivery import Delivery
from streamer.delivery.failures import ServiceStopped
from streamer.delivery.guarantee import guarantee
from streamer.delivery.ledger import Ledger
from streamer.delivery.letterlog import Logged
from streamer.observe.metrics import ServiceMeters
from streamer.tracing.heldback import HeldBack

if TYPE_CHECKING:
    from streamer.tracing.tracing import Tracing

COMMIT_INTERVAL = 1.0
"""Seconds between acknowledgements; each waits for confirmations that have not come by themselves."""
CONFIRM_WAIT = 0.005
"""Seconds of one wait for a batch while records wait for confirmations."""
IDLE_WAIT = 0.1
"""Seconds of one wait for a batch when everything is confirmed."""
CONFIRM_SLICE = 0.5
"""Seconds of one wait for confirmations, between which messages of the intake threads are read."""
SETTLE_WAIT = 5.0
"""Seconds that sources may take to acknowledge what was sent, before records are run that may kill the process."""
STANDSTILL = 5.0
"""Seconds without a batch, though the sources have more records, after which a warning is logged."""


class RunLoop:
    """The run thread's loop, from opening the parts to closing them: `open`, `run`, `end`, in this order."""

    def __init__(
        self,
        assembly: Assembly,
        meters: ServiceMeters,
        log: Any,
        trouble: Callable[[str], str | None] = lambda source: None,
        stuck: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`trouble` says why no records of a source are taken, `stuck` why the service is to be restarted, for clients
        of sources."""
        self._health = trouble, stuck
        service = assembly.service
        self._service = service
        self._guarantee = guarantee(service.delivery)
        self._assembly = assembly
        self._meters = meters
        self._log = log
        perishable = [source.perishable for _, _, source in assembly.sources]
        self._inbox = RunInbox(
            BatchQueue(service.limits.batches + len(perishable) - 1, tells_when_wanted=any(perishable)),
            ByteBudget(service.limits.in_flight),
        )
        self._drain = DrainTime(service.limits.drain)
        self._intakes = Intakes(self._inbox.control, self._drain, self._end_lanes)
        self._batch = service.batch.for_sources(
            perishable=all(perishable), in_flight=service.limits.in_flight, asked=service.is_asked
        )
        self._runs = BatchRuns(self._batch, self._drain)
        self._slots: Slots | None = None
        """Run the batches if `limits.parallel` is above 1; `None`: the run thread does."""
        self._joins = False
        """Whether batches that wait are run together."""
        self._residence = Residence(meters.run, self._batch, log)
        self._dangerous = self._dangerous_records()
        """Which records kill the process; `None` if no parent process would notice."""
        self._is_settled = True
        """Whether the next batch may be run before what was sent is acknowledged."""
        self._alone: deque[DecodedBatch] = deque()
        """Parts of a batch, each run when nothing else is: records in it may kill the process, or be refused with
        others."""
        self._sessions = frozenset(name for name, _, source in assembly.sources if source.replays is Replays.SESSION)
        """Names of the sources that replay a session: they acknowledge in each round, because their bus allows few
        records in flight."""
        self._never_waits = any(source.replays is Replays.NONE for _, _, source in assembly.sources)
        """Whether a source cannot deliver records again, so that waiting for sinks would lose records."""
        self._stateful = False
        self._checkpointing: Checkpointing | None = None
        """Saves the state of the steps with the positions; `None`: it is not saved."""
        state = service.state
        self._interval = state.interval if isinstance(state, StateSettings | StateTopicSettings) else COMMIT_INTERVAL
        """Seconds between two acknowledgements or checkpoints."""
        self._models: LiveModels | None = None
        self._notes: list[SlotNotes | None] = []
        """Where the calls of each open pipeline are noted."""
        self._metrics_before: list[Metrics] = []
        """What the steps of earlier versions counted."""
        self._idle_since: float | None = None
        self._delivery: Delivery | None = None
        self._tracing: Tracing | None = None
        """Makes spans; `None` unless the service has `tracing`."""
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

    @property
    def acknowledged(self) -> dict[Lane, int]:
        """The positions acknowledged last, of lanes that have not ended. From any thread."""
        return self._intakes.acknowledged()

    def stop(self) -> None:
        """Stop polling; records in flight are finished as far as `limits.drain` allows. From any thread."""
        self._assembly.draining.set()
        self._intakes.stop()

    def open(self) -> None:
        """Open the pipeline, the sinks and the sources, which begin to poll. Raises the first error of opening."""
        self._assembly.open(self._log.info)
        executor = self._assembly.executor
        ledger = Ledger(self._inbox.budget.release, self._inbox.budget.add)
        self._delivery = opened_delivery(self._assembly, ledger, self._intakes, self._meters.run, self._log)
        self._meters.oldest = self._delivery.ledger.oldest
        self._stateful = executor.stateful
        if keep_together(self._assembly):
            self._delivery.together = self._intakes.beside
            self._delivery.confirming.keep_together(self._intakes.beside)
        self._checkpointing = self._opened_checkpointing(self._delivery)
        self._joins = self._may_join()
        self._tracing = self._meters.run.timeline = self._assembly.tracing(self._log)
        if self._tracing is not None and self._guarantee.transactional:
            self._tracing.transactions = HeldBack(self._tracing.put, self._delivery)
        self._open_pipelines()
        self._models = LiveModels(self._assembly, self._inbox.batches.wake, self._log)
        self._meters.models = self._models.readings
        self._models.start()
        self._assembly.serve(*self._health)
        if not self._drain.begun:
            intakes = built_intakes(
                self._assembly,
                self._batch,
                self._runs,
                self._inbox,
                self._meters,
                self._log,
                self._residence.rule,
                self._dangerous,
            )
            self._intakes.open(intakes, self._assembly.check_transactions)

    def _opened_checkpointing(self, delivery: Delivery) -> Checkpointing | None:
        checkpoints = opened_checkpoints(self._assembly, delivery, self._intakes, self._log)
        if checkpoints is None:
            return None
        if not self._guarantee.transactional:
            delivery.acknowledgeable = checkpoints.all_marks
        self._meters.state = checkpoints.meters.readings
        return Checkpointing(
            checkpoints,
            self._assembly,
            delivery,
            self._intakes,
            self._drain,
            lambda: self._wait_for_confirmations(time.monotonic() + self._service.limits.confirm),
            lambda: self._inbox.batches.rest(IDLE_WAIT),
            self._log,
        )

    def _open_pipelines(self) -> None:
        executors, profiler = self._assembly.executors, self._assembly.profiler
        if profiler is not None:
            self._meters.profile(profiler)
        self._meters.of_executors = [*self._metrics_before, *self._assembly.step_metrics]
        if not self._notes:
            # There are few places for them in a process: a version that takes over has those of the one before.
            dangerous = self._dangerous
            self._notes = [None if dangerous is None else dangerous.notes() for _ in executors]
        calls = [
            PipelineCalls(executor, self._service.debug, self._log, notes)
            for executor, notes in zip(executors, self._notes, strict=True)
        ]
        for each in calls:
            self._runs.open(each)
        if len(calls) > 1:
            self._slots = Slots(calls, self._runs, self._drain, self._inbox.batches.wake, profiler)
        else:
            executors[0].observer = self._meters.run

    @property
    def models(self) -> LiveModels | None:
        """The versions of the models at work, once they are open. From any thread."""
        return self._models

    def _take_over(self) -> None:
        """Run the next batch, and all after it, with the versions that are offered: no batch is half run now."""
        if self._slots is not None:
            self._slots.end()
        counted = self._meters.of_executors
        # Those of stateful steps go over, too: what is read meanwhile must not go back.
        self._meters.of_executors = [summed([*counted, Metrics()])]
        self._open_models.take_over(self._open_delivery.emit)
        open_ = self._assembly.step_metrics
        self._metrics_before = [summed([each for each in counted if not any(each is other for other in open_)])]
        # What was learned of the time that batches take was about the other models.
        self._runs.forget_times()
        self._open_pipelines()

    def _dangerous_records(self) -> Dangerous | None:
        page = worker_page()
        # The others count positions from 0 again after a restart.
        digests = frozenset(n for n, _, source in self._assembly.sources if source.replays is not Replays.OFFSET)
        return None if page is None else Dangerous(page, self._service.name, digests)

    def _may_join(self) -> bool:
        """Whether batches of several sources may be run together: a step must not depend on which records those are,
        and what is traced or committed together must not either."""
        exact = self._batch.type != "soft" or self._service.debug or self._stateful
        return not (exact or self._guarantee.transactional)

    def run(self) -> None:
        """Run until all sources have ended, failed or stopped, and everything is finished.

        Raises the error that ends the service.
        """
        delivery, intakes, batches = self._open_delivery, self._intakes, self._inbox.batches
        next_commit = time.monotonic() + self._interval
        while True:
            self._drain.progress_at = time.monotonic()
            if self._checkpointing is not None:
                self._checkpointing.begin_lanes()
            worked, in_time = self._round()
            if self._slots is not None or self._runs.rest is not None or batches.empty() or self._alone:
                delivery.confirming.push()
            delivery.collect()
            delivery.release()
            # Before the messages are served: a source may have caught up because it has lost lanes.
            caught_up = intakes.caught_up()
            if intakes.control:
                intakes.serve()
            if intakes.forgettable and (lanes := intakes.finished_lanes(delivery.ledger)):
                self._forget(lanes)
            if self._stateful:
                clock = self._assembly.clock
                self._emit(self._assembly.executor.tick, clock.monotonic(), clock.caught_up(caught_up))
            self._notice_standstill(worked)
            if intakes.revokes:
                self._answer_revoke_requests()
            now = time.monotonic()
            if now >= next_commit or self._inbox.budget.is_short:
                self._commit()
                self._open_models.look()
                next_commit = time.monotonic() + self._interval
            elif waiting_intakes := self._held_up():
                self._commit_for(waiting_intakes)
            elif self._sessions and self._checkpointing is None:
                self._acknowledge(self._sessions)
            if not in_time or now >= self._drain.run_until:
                self._cut_short()
                break
            if intakes.have_finished and not self._has_work and self._drained():
                break
        if intakes.error is not None:
            raise intakes.error

    @property
    def last_letters(self) -> list[Logged]:
        """The last dead letters. From any thread."""
        return [] if self._delivery is None else self._delivery.last_letters

    @property
    def loading(self) -> str | None:
        """Which saved state is being loaded, and how far; `None`: none is. From any thread."""
        return None if self._checkpointing is None else self._checkpointing.checkpoints.loading.reason

    @property
    def waiting(self) -> tuple[float, str] | None:
        """What waits for confirmation and since when, as `Confirming.waiting` gives it. From any thread."""
        return None if self._delivery is None else self._delivery.confirming.waiting

    def end(self, failed: bool) -> None:
        """Acknowledge complete records, and close everything, also after a failure."""
        if self._models is not None:
            self._models.stop()
        try:
            self._intakes.discard()
            if failed and self.intakes:
                self._end_delivery()
            if self.intakes:
                # Lanes that ended during the last moments must not be acknowledged.
                self._intakes.serve()
                if self._checkpointing is not None:
                    self._checkpointing.save_at_the_end()
                self._intakes.close({} if failed and self._open_delivery.withholds else self._marks())
                self._see_off_intakes()
        finally:
            if self._delivery is not None:
                self._delivery.close()
            # Last, so that a shadow keeps nobody else waiting.
            hung = () if self._models is None else self._models.end()
            # A pipeline that still runs cannot be closed: it ends with the process.
            self._assembly.close(busy=[*hung, *(() if self._slots is None else self._slots.end())])

    @property
    def running(self) -> Running | None:
        """The call of the pipeline that has been running for longest. From any thread."""
        return self._runs.running if self._slots is None else self._slots.running

    @property
    def _has_work(self) -> bool:
        """Whether batches wait, or are being run."""
        under_way = self._runs.rest is not None or (self._slots is not None and self._slots.runs > 0)
        return under_way or bool(self._alone) or not self._inbox.batches.empty()

    def _round(self) -> tuple[bool, bool]:
        """Run, or have run, some of the batches that wait, or wait for some; deliver results.

        Returns whether anything was done, and whether there was time for it.
        """
        idle = self._runs.rest is None and (self._slots is None or not self._slots.runs)
        if idle and self._open_models.offered:
            self._take_over()
        if self._slots is not None:
            return self._round_of_slots(self._slots)
        run = self._next(self._wait)
        if run is None:
            return False, True
        if self._stateful:
            for now in self._assembly.clock.until(run.batch):
                self._emit(self._assembly.executor.tick, now)
            run = self._made_way_for(run)
        with self._running:
            begun = self._runs.run(run, self._open_delivery.confirming.run_next)
            if begun is None:
                return True, False
            self._deliver(begun)
        return True, True

    def _round_of_slots(self, slots: Slots) -> tuple[bool, bool]:
        worked = False
        while self._has_room(slots) and (run := self._next(0.0)) is not None:
            worked = True
            if not self._start(slots, run):
                return True, False
        if self._deliver_finished(slots) or worked:
            return True, True
        if not self._has_room(slots):
            # Until a slot has finished, or a message comes.
            self._inbox.batches.rest(self._wait)
            return False, True
        run = self._next(self._wait)
        return run is not None, run is None or self._start(slots, run)

    def _has_room(self, slots: Slots) -> bool:
        if self._open_models.offered and self._runs.rest is None:
            return False
        return slots.has_room if self._is_settled and not self._alone else not slots.runs

    def _start(self, slots: Slots, run: BatchRun) -> bool:
        """Have a slot run as many rows as take little time; `False`: no time is left."""
        begun = self._runs.begin(run, self._open_delivery.confirming.run_next)
        if begun is not None:
            slots.start(begun)
        return begun is not None

    def _deliver_finished(self, slots: Slots) -> bool:
        """Deliver the results of runs that have finished, in the order of the batches; whether there were any."""
        worked = False
        while (run := slots.finished(self._meters.run)) is not None:
            self._deliver(run)
            worked = True
        return worked

    @property
    def _wait(self) -> float:
        """Seconds of one wait for a batch."""
        # Sinks are queried often only while rows wait for them: a wake-up costs more than a query.
        delivery = self._open_delivery
        asks = delivery.confirming.unconfirmed and (delivery.ledger.has_open_rows or self._guarantee.transactional)
        return CONFIRM_WAIT if asks else IDLE_WAIT

    def _next(self, wait: float) -> BatchRun | None:
        """The rest of the batches that are being run, or the next batch with those behind it that are run with it."""
        batches = self._inbox.batches
        run, self._runs.rest = self._runs.rest, None
        if run is not None:
            return self._looked_at_again(run)
        if not self._is_settled:
            self._settle()
        if self._alone:
            return self._next_alone()
        decoded = batches.get(wait)
        if decoded is None:
            return None
        self._enter(decoded)
        if self._dangerous is not None and self._is_dangerous(decoded, self._dangerous):
            return None
        if len(parts := self._open_delivery.confirming.apart(decoded)) > 1:
            self._cut(decoded, parts)
            return None
        together = [decoded]
        if self._joins and self._runs.joining_pays and batches.first is not None:
            most = self._runs.sizer.to_gather(decoded.records.byte_count / max(len(decoded.records), 1))
            rows, pictures = decoded.batch.size, decoded.picture_bytes
            while (following := batches.first) is not None:
                rows += following.batch.size
                pictures += following.picture_bytes
                if rows > most or pictures > self._service.limits.pixels:
                    break
                batches.get(0.0)
                self._enter(following)
                if self._dangerous is not None and self._is_dangerous(following, self._dangerous):
                    break
                together.append(following)
        return BatchRun.of(together)

    def _is_dangerous(self, decoded: DecodedBatch, dangerous: Dangerous) -> bool:
        """Whether records of a batch are suspected or convicted of killing the process: then its parts wait in
        `_alone`, and the convicted have failed."""
        judged = dangerous.judged(decoded)
        if judged is None:
            return False
        if judged.convicted:
            decoded.fail(judged.convicted)
        self._cut(decoded, decoded.apart(judged.suspects))
        self._is_settled = False
        return True

    def _cut(self, decoded: DecodedBatch, parts: Sequence[DecodedBatch]) -> None:
        """Have these parts of a batch run before all others, one by one."""
        if len(parts) > 1:
            # The ledger keeps a reference to the whole batch but needs only its records: free the values.
            decoded.batch = NO_ROWS
        self._alone.extendleft(reversed(parts))

    def _next_alone(self) -> BatchRun:
        """The next part of a batch that is run in parts."""
        part = self._alone.popleft()
        self._open_delivery.look_again(part)
        if len(parts := self._open_delivery.confirming.apart(part)) > 1:
            self._cut(part, parts)
            part = self._alone.popleft()
        run = BatchRun.of([part])
        run.is_cut = bool(self._alone)
        return run

    def _settle(self) -> None:
        """Have everything acknowledged that was sent, so that a death has nothing to repeat."""
        self._is_settled = True
        trouble = self._wait_for_confirmations(time.monotonic() + self._service.limits.confirm)
        if trouble is not None:
            self._log.warning("results are not confirmed yet, and records that may kill are next", error=str(trouble))
        elif self._checkpointing is not None:
            self._checkpointing.save()
        if self._open_delivery.withholds:
            return
        # Not only those that moved: what was sent to the sources before need not have reached the bus.
        marks = self._marks_of(self._intakes.lanes)
        events = self._intakes.acknowledge_for_sure(marks)
        deadline = time.monotonic() + SETTLE_WAIT
        # A source that is about to lose lanes waits for an answer, and acknowledges nothing before it.
        while time.monotonic() < deadline and not all(event.is_set() for event in events) and not self._intakes.revokes:
            self._intakes.serve()
            self._inbox.batches.rest(CONFIRM_WAIT)

    def _enter(self, decoded: DecodedBatch) -> None:
        # What an intake thread reported before it handed the batch over, such as the end of a lane, counts before it.
        if self._intakes.control:
            self._intakes.serve()
        if self._checkpointing is None:
            self._open_delivery.enter(decoded)
        else:
            self._checkpointing.enter(decoded)

    @property
    def _running(self) -> AbstractContextManager[None]:
        """Entered while steps run and what they give is delivered."""
        return nullcontext() if self._checkpointing is None else self._checkpointing.running()

    def _emit(self, of: Callable[..., Result], *arguments: float) -> None:
        """Send what the steps give by time or at the end."""
        self._open_delivery.make_way(None)
        with self._running:
            self._open_delivery.emit(of(*arguments))

    def _made_way_for(self, run: BatchRun) -> BatchRun:
        """This run, for which what was sent before is confirmed if they may not be sent together."""
        for decoded in run.batches:
            self._open_delivery.make_way(decoded)
        return self._looked_at_again(run)

    def _looked_at_again(self, run: BatchRun) -> BatchRun:
        """A run that is yet to come, without rows of lanes that have ended since they were entered."""
        before = sum(len(decoded.rows) for decoded in run.batches)
        for decoded in run.batches:
            self._open_delivery.look_again(decoded)
        if sum(len(decoded.rows) for decoded in run.batches) == before:
            return run
        return BatchRun.of(run.batches, run.since)

    def _deliver(self, run: BatchRun) -> None:
        """Send the results of batches that were run, batch by batch."""
        delivery, keep = self._open_delivery, self._service.keep
        self._meters.run.stage("run", run.began, run.seconds, run.batch.size)
        made = self._open_models.made(run)
        if run.result.gathered:
            delivery.keep_gathered(run.batches, run.result)
        parts, shared = run.split()
        for part, result in parts:
            if keep:
                result.batch = kept(result.batch, part.batch, keep)
            if self._slots is not None:
                part, result = delivery.without_ended(part, result)
            if self._tracing is None:
                delivery.deliver(part, result)
            else:
                self._tracing.deliver(run, part, result, delivery.deliver)
            self._residence.handed_over(part.arrivals, part.rows, run.since)
        if shared.size:
            delivery.emit(Result(kept(shared, run.batch, keep) if keep else shared))
        self._open_models.delivered(run, made)
        if self._dangerous is not None and (self._alone or self._dangerous.has_convicted(run.batches)):
            # What was sent would be sent again if the next part or batch killed the process.
            self._is_settled = self._guarantee.transactional
        for decoded in run.ended:
            self._intakes.by_source[decoded.source].state.processed += 1

    def _forget(self, lanes: Collection[Lane]) -> None:
        # Executors without state have nothing to forget, and one that runs would have to be waited for.
        if self._checkpointing is not None:
            self._checkpointing.forget(lanes)
        elif self._stateful:
            self._assembly.executor.forget(lanes)

    def _notice_standstill(self, worked: bool) -> None:
        """Warn if polling has stopped because steps hold too many records, whose windows then never complete."""
        delivery = self._open_delivery
        holds = self._stateful and delivery.ledger.has_open_rows and not delivery.confirming.unconfirmed
        if worked or not holds or not (self._inbox.budget.is_full or self._held_up()):
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
            self._forget(ended.lanes)
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
            if self._checkpointing is not None:
                self._checkpointing.save()
        except ConnectorError as error:
            self._log.warning("not all results were confirmed before lanes were taken away", error=str(error))
        finally:
            # Also after an error: the intake threads wait for an answer.
            for request in ready:
                request.answer(self._marks_of(request.lanes))

    def _marks_of(self, lanes: Iterable[Lane]) -> Mapping[Lane, int]:
        if self._open_delivery.withholds:
            return {}
        if self._checkpointing is not None and not self._checkpointing.by_transactions:
            return self._checkpointing.checkpoints.all_marks(lanes)
        return self._guarantee.on_revoke(self._open_delivery.ledger, lanes)

    def _commit(self) -> None:
        if self._never_waits:
            self._open_delivery.look_for_confirmations()
            self._acknowledge()
            return
        if self._inbox.budget.is_full:
            self._open_delivery.make_room()
        # A sink that confirms while messages flow need not stop for a barrier at each commit, but for a checkpoint.
        if (
            (self._checkpointing is not None and not self._checkpointing.by_transactions)
            or self._inbox.budget.is_short
            or not self._open_delivery.confirming.keeps_up(COMMIT_INTERVAL)
        ):
            trouble = self._wait_for_confirmations(time.monotonic() + self._service.limits.confirm)
            if trouble is not None:
                self._log.warning("results are not confirmed yet, trying again", error=str(trouble))
            elif self._checkpointing is not None:
                self._checkpointing.save()
        self._acknowledge()

    def _held_up(self) -> list[Intake]:
        """The intakes whose source is starved, though all its records have been run: it waits for acknowledgements.

        If no batch was run since a commit with everything confirmed, steps hold the source's records; such an intake is
        returned only when there is no other work.
        """
        starved = [intake for intake in self.intakes if intake.state.starved and intake.state.all_processed]
        if starved and self._has_work:
            starved = [intake for intake in starved if intake.state.processed != intake.processed_at_commit]
        return starved

    def _commit_for(self, intakes: Sequence[Intake]) -> None:
        """Wait until all sent messages are confirmed, and acknowledge: these intakes get no records before that."""
        trouble = self._wait_for_confirmations(time.monotonic() + self._service.limits.confirm)
        if trouble is not None:
            self._log.warning("results are not confirmed yet, trying again", error=str(trouble))
        elif self._checkpointing is None or self._checkpointing.save():
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
        if self._checkpointing is not None and not self._checkpointing.by_transactions:
            return self._checkpointing.checkpoints.marks(sources)
        return self._guarantee.on_commit(self._open_delivery.ledger, sources)

    def _drained(self) -> bool:
        """Flush the steps and wait for confirmations, as the sources have ended.

        Returns whether the run is over: not if records come again.
        """
        delivery = self._open_delivery
        deadline = time.monotonic() + self._service.limits.drain
        # What is saved goes on in the next run; only at the end of the input it comes out as it is.
        if self._stateful and not (self._checkpointing is not None and self._drain.begun):
            if self._checkpointing is not None:
                # A source without records is at its end before its lanes are looked at.
                self._checkpointing.begin_lanes(surely=True)
            self._emit(self._assembly.executor.flush)
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
        if self._slots is not None:
            self._finish_runs(self._slots)
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

    def _finish_runs(self, slots: Slots) -> None:
        """Wait for the calls that have begun, and deliver the results of all runs before the first that was cut short:
        its other rows come again, and so have to those behind them, to keep their order."""
        deadline = time.monotonic() + LEAVE_WAIT
        while slots.runs and not slots.cut_short and time.monotonic() < deadline:
            if not self._deliver_finished(slots):
                self._inbox.batches.rest(CONFIRM_WAIT)
            self._intakes.serve()
            self._answer_revoke_requests()

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
    def _open_models(self) -> LiveModels:
        if self._models is None:
            raise StreamerError("the service is not open")
        return self._models

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
