"""`Agent`: one run of one service.

Threads: one intake thread per source (it alone touches the source), the run thread (it alone touches the
executor, the sinks and the ledger), and the threads in which a sink gets confirmations. Between them: one bounded
queue of batches, a limit on bytes, and queues of messages.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from connectors.http.listening import url_of
from connectors.records import Lane
from connectors.source import Source
from pipelines.errors import DefinitionError, StreamerError
from pipelines.executors.lastshapes import LastShapes
from pipelines.hotpath import explained
from streamer.agent.assembly import Assembly, build
from streamer.agent.pausing import Pausing
from streamer.agent.runloop import RunLoop
from streamer.agent.runs.batchruns import IDLE_LEAVE_WAIT, LEAVE_WAIT
from streamer.agent.state import state
from streamer.agent.summary import Summary
from streamer.definition.circles import circle
from streamer.definition.connectors.listed import sinks_of
from streamer.definition.hotpaths import by_report
from streamer.definition.service import Service
from streamer.letters.desk import LetterDesk
from streamer.models.following import Following
from streamer.models.lineup import Lineup
from streamer.models.version import Version
from streamer.observe.configuration import configuration
from streamer.observe.endpoint import Endpoint
from streamer.observe.logs import logger
from streamer.observe.metrics import ServiceMeters


class Agent:
    """One run of one service: `run()`, or `start()`, `stop()`, `join()`. Not to be used twice."""

    def __init__(self, service: Service, *, start_from: str | None = None, assembly: Assembly | None = None) -> None:
        """`start_from` resets the group's position before it starts: earliest, latest or a time.

        `assembly` replaces the parts that would be built from the service's definition.
        """
        self.service = service
        self.summary: Summary | None = None
        self._log = logger(service=service.name)
        self._assembly = build(service, start_from=start_from) if assembly is None else assembly
        self.meters = ServiceMeters(service.name, [name for name, _, _ in self._assembly.sources])
        self.meters.hot_paths = self._assembly.hot_paths
        self.meters.connectors = self._assembly.measured
        self._loop = RunLoop(self._assembly, self.meters, self._log, self.trouble, self.live)
        self._desk = LetterDesk(service, self._log)
        self._pausing = Pausing(lambda: self._loop.intakes, self._log)
        self.meters.paused = lambda: self._pausing.paused
        self._stopped_at: float | None = None
        self._left_opening = False
        self._began = False
        self._opened = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"run {service.name}", daemon=True)
        self._endpoint: Endpoint | None = None

    def run(self) -> Summary:
        """Run until `stop`, the end of all sources, or a failure, which is in the summary and not raised.

        Raises the errors of opening, as `start` does.
        """
        self.start()
        return self.join()

    def start(self) -> None:
        """Open all parts and begin to poll. Raises the errors of opening: a missing model, an unknown topic, bad
        credentials."""
        # Python kills daemon threads when the process ends, so the process waits for this one first.
        atexit.register(self._end_with_process)
        self._thread.start()
        while not self._opened.wait(0.1):
            if self._stopping and time.monotonic() - (self._stopped_at or 0.0) > IDLE_LEAVE_WAIT:
                self._leave_opening()
                return
        if self._failure is not None and not self._began:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Stop polling; records in flight are finished and acknowledged. Returns at once; from any thread."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        self._loop.stop()

    def join(self, timeout: float | None = None) -> Summary:
        """Wait for the end. Raises `TimeoutError` if it does not come in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while self._thread.is_alive() and not self._left_opening:
                # In short waits, so that signals are served by the main thread.
                self._thread.join(0.2 if deadline is None else max(0.0, min(0.2, deadline - time.monotonic())))
                if deadline is not None and time.monotonic() >= deadline and self._thread.is_alive():
                    raise TimeoutError(f"the service {self.service.name} has not ended")
        except KeyboardInterrupt:
            # A second Ctrl-C, as the first one only stopped the service: the process ends now.
            atexit.unregister(self._end_with_process)
            raise
        if self.summary is None:
            raise StreamerError(f"the service {self.service.name} was never started")
        return self.summary

    @property
    def _stopping(self) -> bool:
        return self._stopped_at is not None

    @property
    def endpoint(self) -> tuple[str, int] | None:
        """Host and port of the control endpoint, if the service has one."""
        return None if self._endpoint is None else self._endpoint.address

    @property
    def sources(self) -> list[Source]:
        """Its sources, which are open while it runs."""
        return [source for _, _, source in self._assembly.sources]

    @property
    def ran(self) -> Mapping[str, LastShapes]:
        """What the models of each variant ran on last."""
        return self._assembly.ran

    @property
    def acknowledged(self) -> dict[Lane, int]:
        """The positions acknowledged last, by lane, of lanes that have not ended."""
        return self._loop.acknowledged

    @property
    def out_of_memory(self) -> bool:
        """Whether the service failed because memory could not be had where no record is to blame, as in its source."""
        return isinstance(self._failure, MemoryError)

    @property
    def wrong(self) -> bool:
        """Whether the service failed because its file, or its saved state, does not fit what it found: a restart would
        not help."""
        return isinstance(self._failure, DefinitionError)

    def live(self) -> str | None:
        """Why the process should be restarted; `None` while it makes progress, or waits for a sink or for records."""
        if self._failure is not None:
            return _text(self._failure)
        # Loading a model may take long, and a restart would not help.
        if self._began and (reason := self._stuck()):
            return reason
        for intake in self._loop.intakes:
            if reason := intake.stuck():
                return reason
        return self._stands_still()

    def _stuck(self) -> str | None:
        """Which call of the pipeline, or what else of the run thread, takes longer than `limits.stuck`."""
        now, longest = time.monotonic(), self.service.limits.stuck
        running = self._loop.running
        if running is not None and now - running.since > longest:
            return f"a batch has been running for {now - running.since:.0f} s: {running.place}"
        if now - self._loop.progress_at > longest:
            return f"the run thread has made no progress for {now - self._loop.progress_at:.0f} s"
        return None

    def _stands_still(self) -> str | None:
        """What has waited too long for confirmation though no sink is down; `None`: nothing."""
        waiting = self._loop.waiting
        if waiting is None or time.monotonic() - waiting[0] <= self.service.limits.stuck:
            return None
        if any(route.down() for route in self._assembly.all_routes):
            return None
        return f"{waiting[1]}, for {time.monotonic() - waiting[0]:.0f} s"

    def note(self) -> str | None:
        """Which sources are paused, and what others wait for that is not the service's to end, as `Source.waits` says;
        `None`: nothing."""
        notes = [f"source {name}: paused" for name in self._pausing.paused]
        return "; ".join([*notes, *self._waits()]) or None

    def _waits(self) -> list[str]:
        return [
            f"source {intake.source.name}: {intake.source.waits}"
            for intake in self._loop.intakes
            if intake.source.waits is not None
        ]

    def pause(self, source: str) -> None:
        """Poll this source no more, until `resume` or the end of the service; its records wait. From any thread.

        Requests of clients that wait for answers are refused instead. Raises `StreamerError` for an unknown name.
        """
        self._pausing.pause(source)

    def resume(self, source: str) -> None:
        """Poll a source again that was paused. From any thread. Raises `StreamerError` for an unknown name."""
        self._pausing.resume(source)

    def letters(self, count: int, deadline: float) -> dict[str, Any]:
        """Its newest dead letters, as `LetterDesk.newest` gives them. For one thread at a time."""
        return self._desk.newest(count, deadline)

    def replay(self, letter: str, deadline: float, *, again: bool = False) -> dict[str, Any]:
        """Send a dead letter back, as `LetterDesk.replay` does. For one thread at a time."""
        return self._desk.replay(letter, deadline, again=again)

    def state(self) -> dict[str, Any]:
        """What its dashboard shows, as plain data: counters as they are, and how its parts are. From any thread."""
        return {
            "ready": self.ready(),
            "live": self.live(),
            "note": self.note(),
            **state(self._assembly, self.meters, self._loop.intakes),
            "last_letters": [letter._asdict() for letter in self._loop.last_letters],
            "version": None if self.version is None else self.version.label,
            "versions": self._versions(),
            "variants": self.variants(),
            "follows": self.following is not None,
        }

    def configuration(self) -> dict[str, Any]:
        """The fields of its service as plain data, without secrets."""
        return configuration(self.service)

    @property
    def version(self) -> Version | None:
        """The version of the models in use; `None` before the pipeline is open."""
        return self._assembly.version

    @property
    def following(self) -> Following | None:
        """Follows the files of the models; `None` before they are open."""
        models = self._loop.models
        return None if models is None else models.following

    def weigh(self, variant: str, weight: float) -> None:
        """Give a variant of the models another weight, from the next batch on. From any thread.

        Raises `StreamerError` for an unknown variant, and where all would weigh nothing.
        """
        self._open_lineup.weigh(variant, weight)
        self._log.info("a variant weighs", variant=variant, weight=weight)

    def reload(self) -> None:
        """Look for new files of the models now, as `models.follow` does again and again.

        Returns at once; from any thread.

        Raises `StreamerError` before the service has started.
        """
        following = self.following
        if following is None:
            raise StreamerError("no new version can take over yet: the service starts")
        following.reload()

    def variants(self) -> list[dict[str, object]]:
        """The variants of the models, each with name, version, weight and what it has done. From any thread.

        None of a service without `variants`.
        """
        return [] if self._assembly.lineup is None else self._assembly.lineup.documents()

    @property
    def _open_lineup(self) -> Lineup:
        lineup = self._assembly.lineup
        if lineup is None:
            raise StreamerError("the service is not open")
        return lineup

    def pages(self) -> Mapping[str, Mapping[str, Callable[[], Any]]]:
        """Its pages on the control port: that of its models, and those of its sources, by page and source."""
        models: dict[str, Callable[[], Any]] = {
            "current": lambda: None if self.version is None else self.version.label,
            "versions": self._versions,
        }
        if len(self.service.variant_names) > 1:
            models["variants"] = self.variants
        if self._loop.models is not None and self._loop.models.shadow is not None:
            models["shadow"] = self._loop.models.shadow.document
        return {"models": models, **self._assembly.pages()}

    def _versions(self) -> list[Mapping[str, object]]:
        if self.following is not None:
            return [version.document() for version in self.following.versions]
        return [] if self.version is None else [self.version.document()]

    def ready(self) -> str | None:
        """Why the service is not ready; `None` while it is. A source that is paused counts only where clients ask."""
        return self._unready() or self._pausing.refuses()

    def trouble(self, source: str) -> str | None:
        """Why requests of this source are refused; `None` while they are taken."""
        return self._unready() or self._pausing.refuses(source)

    def _unready(self) -> str | None:
        if not self._opened.is_set():
            return "starting"
        if self._stopping:
            return "stopping"
        for intake in self._loop.intakes:
            if not intake.watch.has_reported:
                return "starting"
            if intake.watch.down:
                return f"source {intake.source.name}: {intake.watch.down}"
        if self._loop.loading is not None:
            return self._loop.loading
        for route in self._assembly.all_routes:
            if reason := route.down():
                return f"sink {route.name}: {reason}"
        return self.live()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._open()
            self._began = True
            self._log_hot_paths()
            self._log.info("running", sources=[n for n, _, _ in self._assembly.sources], groups=self.service.groups)
            self._warn_of_circles()
            self._opened.set()
            self._loop.run()
        except BaseException as error:  # noqa: BLE001 - any error ends this service and is in its summary
            if self._stopping and not self._began:
                self._log.info("stopped while it started", error=str(error))
            else:
                self._fail(error)
        try:
            self._close()
        except BaseException as error:  # noqa: BLE001 - as above
            self._fail(error)
        if self._left_opening:
            return
        self.summary = self._summed_up(time.monotonic() - began)
        atexit.unregister(self._end_with_process)
        self._opened.set()
        self._log.info("ended", **{k: v for k, v in self.summary.to_dict().items() if k != "service"})

    def _leave_opening(self) -> None:
        """Return from `start` though opening has not ended: nothing is in flight, and the daemon thread closes what it
        opened as soon as it can."""
        self._left_opening = True
        self._assembly.leave()
        self.summary = self._summed_up(time.monotonic() - (self._stopped_at or 0.0))
        atexit.unregister(self._end_with_process)
        self._log.info("stopped while it started", waiting="for what is still being opened")

    def _end_with_process(self) -> None:
        self.stop()
        self._thread.join(self.service.limits.drain + LEAVE_WAIT)

    def _open(self) -> None:
        if self.service.control is not None:
            control = self.service.control
            self._endpoint = Endpoint.join(control.listen, self.service.name, self, control.token, control.hosts)
            self._log.info("control", listen=url_of(self._endpoint.address))
        self._loop.open()

    def _warn_of_circles(self) -> None:
        for config in sinks_of(self.service):
            if (back := circle(config, self.service)) is not None:
                self._log.warning("the service reads what it writes", sink=config.label, reason=back)

    def _log_hot_paths(self) -> None:
        for (path, reason), parts in by_report(self._assembly.hot_paths()).items():
            why = {"reason": explained(reason)} if reason else {}
            self._log.info("hot path", path=path, parts=", ".join(parts), **why)

    def _close(self) -> None:
        try:
            self._loop.end(failed=self._failure is not None)
        finally:
            if self._endpoint is not None:
                self._endpoint.leave(self.service.name)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._log.error("the service failed", error=str(error), kind=type(error).__name__)

    def _summed_up(self, seconds: float) -> Summary:
        reason = "failed" if self._failure is not None else "stopped" if self._stopping else "ended"
        return Summary(
            service=self.service.name,
            ok=self.meters.total("ok"),
            dead=self.meters.total("dead"),
            dropped=self.meters.total("dropped"),
            passed=self.meters.total("passed"),
            failed=self.meters.total("failed"),
            seconds=seconds,
            reason=reason,  # type: ignore[arg-type]
            error=None if self._failure is None else _text(self._failure),
            waits="; ".join(self._waits()) or None,
        )


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, StreamerError) else f"{type(error).__name__}: {error}"
