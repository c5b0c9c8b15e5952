"""The agent: runs one service.

Threads: one intake thread per source (it alone touches the source), the run thread (it alone touches the
executor, the sinks and the ledger), and whatever threads a sink keeps to be told of confirmations. Between
them: one bounded queue of batches, and deques.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from connectors.records import Lane, Records
from pipelines.batch import Batch
from pipelines.errors import ConnectorError, StreamerError
from streamer.carry import kept, put_metadata
from streamer.delivery import Delivery, ServiceStopped
from streamer.failures import FailureWatch
from streamer.intake import Control, Ended, Finished, Intake, Settlement
from streamer.observe.endpoint import Endpoint
from streamer.observe.logs import logger
from streamer.observe.metrics import ServiceMeters
from streamer.parts import Parts, build
from streamer.service import Service
from streamer.summary import Summary
from streamer.work import Work

COMMIT_INTERVAL = 1.0
"""Seconds between acknowledgements; each waits for confirmations that have not come by themselves."""
CONFIRM_WAIT = 0.005
"""Seconds of one wait for a batch while something sent is not confirmed yet."""
IDLE_WAIT = 0.1
"""Seconds of one wait for a batch otherwise."""


class Agent:
    """One run of one service: `run()`, or `start()`, `stop()`, `join()`. Not to be used twice."""

    def __init__(self, service: Service, *, start_from: str | None = None, parts: Parts | None = None) -> None:
        """`start_from` puts the group's position back before it starts: earliest, latest or a time.

        `parts` replaces what would be built from the service's definition.
        """
        self.service = service
        self.summary: Summary | None = None
        self._log = logger(service=service.name)
        self._parts = build(service, start_from=start_from) if parts is None else parts
        self.meters = ServiceMeters(service.name, [name for name, _, _ in self._parts.sources])
        self.meters.lag = self._lag
        self.meters.in_flight = self._in_flight
        self._batches: queue.Queue[Work | None] = queue.Queue(maxsize=service.limits.batches)
        self._control: deque[Control] = deque()
        self._settlements: list[Settlement] = []
        self._finished: set[int] = set()
        self._stop = threading.Event()
        self._opened = threading.Event()
        self._failure: Exception | None = None
        self._drain_deadline = float("inf")
        self._intakes: list[Intake] = []
        self._delivery: Delivery | None = None
        self._thread = threading.Thread(target=self._run, name=f"run {service.name}", daemon=True)
        self._progress_at = time.monotonic()
        self._endpoint: Endpoint | None = None

    def run(self) -> Summary:
        """Run until `stop`, the end of all sources, or a failure. Failing is told by the summary, not raised."""
        self.start()
        return self.join()

    def start(self) -> None:
        """Open everything and begin. Raises what opening raises (a missing model, bad credentials)."""
        self._thread.start()
        self._opened.wait()
        if self._failure is not None and not self._intakes:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Stop taking in; what is in flight is finished and acknowledged. Returns at once; from any thread."""
        if not self._stop.is_set():
            self._drain_deadline = time.monotonic() + self.service.limits.drain
            self._stop.set()
        for intake in self._intakes:
            intake.stop()

    def join(self, timeout: float | None = None) -> Summary:
        """Wait for the end. Raises `TimeoutError` if it does not come in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive():
            # In short waits, so that signals are served by the main thread.
            self._thread.join(0.2 if deadline is None else max(0.0, min(0.2, deadline - time.monotonic())))
            if deadline is not None and time.monotonic() >= deadline and self._thread.is_alive():
                raise TimeoutError(f"the service {self.service.name} has not ended")
        if self.summary is None:
            raise StreamerError(f"the service {self.service.name} was never started")
        return self.summary

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Host and port of the control endpoint, if the service has one."""
        return None if self._endpoint is None else self._endpoint.address

    @property
    def acknowledged(self) -> dict[Lane, int]:
        """The positions acknowledged last, by lane, of lanes that have not ended."""
        return {lane: position for intake in self._intakes for lane, position in intake.acknowledged.items()}

    def live(self) -> str | None:
        """Why the process should be restarted; `None` while it makes progress."""
        if self._failure is not None:
            return str(self._failure)
        stuck = time.monotonic() - self._progress_at
        if stuck > self.service.limits.stuck:
            return f"the run thread has not come round for {stuck:.0f} s"
        return None

    def ready(self) -> str | None:
        """Why the service is not doing its work at present; `None` while it is."""
        if not self._opened.is_set():
            return "starting"
        if self._stop.is_set():
            return "stopping"
        for intake in self._intakes:
            if intake.down:
                return f"source {intake.source.name}: {intake.down}"
        for outlet in self._parts.outlets:
            if reason := outlet.sink.down():
                return f"sink {outlet.name}: {reason}"
        return self.live()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._open()
            self._log.info("running", sources=[n for n, _, _ in self._parts.sources])
            self._opened.set()
            self._loop()
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this service and is told
            self._failure = error
            self._log.error("the service failed", error=str(error), kind=type(error).__name__)
        finally:
            self._opened.set()
            self._end()
            self.summary = self._summed_up(time.monotonic() - began)
            self._log.info("ended", **{k: v for k, v in self.summary.to_dict().items() if k != "service"})

    def _open(self) -> None:
        parts, service = self._parts, self.service
        parts.open()
        self._delivery = Delivery(
            service.name,
            parts.outlets,
            parts.dead,
            drop_failed=service.on_error == "drop",
            tombstones={name: config.tombstones for name, config, _ in parts.sources},
            watch=FailureWatch(service.errors.stop_ratio, service.errors.over),
            replays={name: source.replays for name, _, source in parts.sources},
            rewind=self._rewind,
            meters=self.meters.run,
            keep_going=lambda: time.monotonic() < self._drain_deadline,
            log=self._log,
        )
        self.meters.oldest = self._delivery.ledger.oldest
        parts.executor.observer = self.meters.run
        wanted = parts.wanted()
        for index, (name, config, source) in enumerate(parts.sources):
            self._intakes.append(
                Intake(
                    source,
                    parts.codecs[name],
                    service.batch.build(),
                    index=index,
                    wanted=wanted,
                    enrich=_enricher(config.into),
                    batches=self._batches,
                    control=self._control,
                    has_room=self._has_room,
                    meters=self.meters.sources[name],
                    acknowledge_first=service.delivery == "at_most_once",
                    log=self._log,
                )
            )
        if service.control is not None:
            self._endpoint = Endpoint.join(service.control.listen, service.name, self)
            self._log.info("control", listen="http://{}:{}".format(*self._endpoint.address))
        for intake in self._intakes:
            intake.start()
        if self._stop.is_set():
            self.stop()

    def _loop(self) -> None:
        delivery = self._running
        next_commit = time.monotonic() + COMMIT_INTERVAL
        while True:
            self._progress_at = time.monotonic()
            work = self._next(CONFIRM_WAIT if delivery.ledger.open_rows else IDLE_WAIT)
            if work is not None:
                self._process(work)
            delivery.collect()
            delivery.release()
            self._tick()
            self._serve_control()
            now = time.monotonic()
            if self._settlements and (self._batches.empty() or self._due()):
                self._answer()
            if now >= next_commit or self._pressed():
                self._commit()
                next_commit = time.monotonic() + COMMIT_INTERVAL
            if len(self._finished) == len(self._intakes) and self._batches.empty():
                self._drain()
                return

    def _next(self, timeout: float) -> Work | None:
        try:
            return self._batches.get(timeout=timeout)
        except queue.Empty:
            return None

    def _process(self, work: Work) -> None:
        delivery = self._running
        delivery.take(work)
        began = time.perf_counter()
        result = self._parts.executor.run_batch(work.batch)
        if self.service.keep:
            result.batch = kept(result.batch, work.batch, self.service.keep)
        self.meters.run.stages["run"].add_one(time.perf_counter() - began)
        delivery.deliver(work, result)

    def _tick(self) -> None:
        executor = self._parts.executor
        if executor.stateful:
            self._running.emit(executor.tick(time.monotonic()))

    def _serve_control(self) -> None:
        while self._control:
            message = self._control.popleft()
            if isinstance(message, Settlement):
                self._settlements.append(message)
            elif isinstance(message, Ended):
                for lane in message.lanes:
                    self._running.ledger.end(lane)
                self._parts.executor.forget(message.lanes)
            elif isinstance(message, Finished):
                self._finished.add(self._intakes.index(message.intake))
                if message.error is not None:
                    raise message.error

    def _due(self) -> bool:
        # Leave the barrier half of what is left, so that something can still be acknowledged.
        return any(time.monotonic() >= request.deadline - 1.0 for request in self._settlements)

    def _answer(self) -> None:
        requests, self._settlements = self._settlements, []
        deadline = min(request.deadline for request in requests)
        try:
            self._running.settle(deadline)
        except ConnectorError as error:
            self._log.warning("not all results were confirmed before lanes were taken away", error=str(error))
        for request in requests:
            if self.service.delivery != "at_most_once":
                request.marks = self._running.ledger.all_marks(request.lanes)
            request.done.set()

    def _commit(self) -> None:
        try:
            self._running.settle(time.monotonic() + self.service.limits.confirm)
        except ConnectorError as error:
            if not error.retriable:
                raise
            self._log.warning("results are not confirmed yet, trying again", error=str(error))
        self._acknowledge()

    def _acknowledge(self, *, close: bool = False) -> None:
        marks = {} if self.service.delivery == "at_most_once" else self._running.ledger.marks()
        for intake in self._intakes:
            own = {lane: position for lane, position in marks.items() if lane.source == intake.source.name}
            if close:
                intake.close(own)
            elif own:
                intake.acknowledge(own)

    def _drain(self) -> None:
        delivery = self._running
        if self._drain_deadline == float("inf"):
            self._drain_deadline = time.monotonic() + self.service.limits.drain
        if self._parts.executor.stateful:
            delivery.emit(self._parts.executor.flush())
        delivery.release(now=True)
        while delivery.unsettled:
            try:
                delivery.settle(min(self._drain_deadline, time.monotonic() + self.service.limits.confirm))
            except ConnectorError as error:
                if not error.retriable or time.monotonic() >= self._drain_deadline:
                    raise ServiceStopped(f"not all results could be confirmed before the end: {error}") from error

    def _end(self) -> None:
        """Acknowledge what is done, leave, and close, whatever happened before."""
        delivery = self._delivery
        if delivery is not None and self._failure is not None:
            self._finish_what_was_sent(delivery)
        if delivery is not None:
            self._serve_ended()
            self._acknowledge(close=True)
        for intake in self._intakes:
            if self._failure is not None:
                intake.stop()
            if not intake.join(10.0):
                intake.abandon()
                if not intake.join(5.0):
                    self._log.error("a source does not close", source=intake.source.name)
        if self._endpoint is not None:
            self._endpoint.leave(self.service.name)
        self._parts.close()

    def _finish_what_was_sent(self, delivery: Delivery) -> None:
        for intake in self._intakes:
            intake.discard()
        try:
            delivery.settle(time.monotonic() + self.service.limits.confirm)
        except StreamerError as error:
            self._log.warning("the last results were not confirmed", error=str(error))

    def _serve_ended(self) -> None:
        """Lanes that ended during the last moments must not be acknowledged."""
        for message in list(self._control):
            if isinstance(message, Ended):
                for lane in message.lanes:
                    self._running.ledger.end(lane)
            elif isinstance(message, Settlement):
                message.done.set()

    def _rewind(self, lanes: Iterable[Lane]) -> None:
        lanes = list(lanes)
        for intake in self._intakes:
            own = [lane for lane in lanes if lane.source == intake.source.name]
            if own:
                intake.rewind(own)

    @property
    def _running(self) -> Delivery:
        if self._delivery is None:
            raise StreamerError("the service is not open")
        return self._delivery

    def _in_flight(self) -> int:
        released = 0 if self._delivery is None else self._delivery.ledger.released
        return sum(intake.handed_bytes for intake in self._intakes) - released

    def _has_room(self, coming: int) -> bool:
        in_flight = self._in_flight()
        # One batch larger than the limit must pass, alone.
        return in_flight <= coming or in_flight <= self.service.limits.in_flight

    def _pressed(self) -> bool:
        return self._in_flight() * 2 > self.service.limits.in_flight

    def _lag(self) -> Mapping[tuple[str, int], int]:
        return {key: behind for intake in self._intakes for key, behind in intake.source.lag().items()}

    def _summed_up(self, seconds: float) -> Summary:
        reason = "failed" if self._failure is not None else "stopped" if self._stop.is_set() else "ended"
        return Summary(
            service=self.service.name,
            ok=self.meters.total("ok"),
            dead=self.meters.total("dead"),
            dropped=self.meters.total("dropped"),
            seconds=seconds,
            reason=reason,  # type: ignore[arg-type]
            error=None if self._failure is None else str(self._failure),
        )


def _enricher(into: Mapping[str, str]) -> Any:
    if not into:
        return None

    def enrich(batch: Batch, records: Records, first: int) -> Batch:
        return put_metadata(batch, into)

    return enrich
