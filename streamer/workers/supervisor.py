"""`Supervisor`: starts worker processes, looks after them, and starts those again that die.

It decides only, in rounds of a tenth of a second: processes, the clock and the log are given to it.
"""

from __future__ import annotations

import math
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from streamer.workers.filing import PagesFile
from streamer.workers.notes import Note, Span
from streamer.workers.restarts import WITHIN, Backoff, DeathCount
from streamer.workers.suspects import Cause, Suspects, Verdict

LOOK: Final = 0.1
"""Seconds between two rounds."""
CUT_SHORT: Final = 130
_SIGKILL: Final = 9
_SHOWN: Final = 3


class Process(Protocol):
    """A process that was started, as `subprocess.Popen` is."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, negative for a signal; `None` while it lives."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal."""


class Log(Protocol):
    """Where events are told."""

    def info(self, event: str, **values: object) -> None:
        """An event that is as it should be."""

    def warning(self, event: str, **values: object) -> None:
        """An event that somebody should know."""

    def error(self, event: str, **values: object) -> None:
        """An event for which somebody has to do something."""


@dataclass(slots=True)
class _Worker:
    number: int
    process: Process | None = None
    started: float = 0.0
    due: float = 0.0
    """When it is started, if it has no process."""
    ran: float = -math.inf
    """When it last died that had run something."""
    code: int | None = None
    """Its exit code, once it has ended for good."""
    seen: dict[int, tuple[int, float]] = field(default_factory=dict)
    """What each of its slots ran in the last round: the number of the note, and since when."""
    hung: float | None = None
    """It was killed because a batch ran for longer than these seconds."""
    backoff: Backoff = field(default_factory=Backoff)


class Supervisor:
    """Keeps `count` workers running until they end by themselves, or `stop`."""

    def __init__(
        self,
        file: PagesFile,
        count: int,
        launch: Callable[[int], Process],
        stuck: Mapping[str, float],
        clock: Callable[[], float],
        log: Log,
    ) -> None:
        """`launch` starts the worker of a number, `stuck` has the `limits.stuck` of each service; `clock` is
        `time.monotonic`, which workers use too."""
        self.restarts: Counter[tuple[int, str]] = Counter()
        """By worker and reason."""
        self.poison: Counter[str] = Counter()
        """Convicted records, by service."""
        self.gave_up: str | None = None
        """Why no worker is started again; `None` while all is well."""
        self._file = file
        self._launch = launch
        self._stuck = dict(stuck)
        self._least_stuck = min(stuck.values(), default=float("inf"))
        self._clock = clock
        self._log = log
        self._workers = [_Worker(number) for number in range(count)]
        self._suspects = Suspects()
        self._deaths = DeathCount()
        self._stopping = self._killed = False

    @property
    def ended(self) -> bool:
        """Whether no worker runs and none will."""
        return all(worker.code is not None for worker in self._workers)

    @property
    def exit_code(self) -> int:
        """The worst of the workers'; 1 if it gave up."""
        return max([int(self.gave_up is not None), *(worker.code or 0 for worker in self._workers)])

    def alive(self, number: int) -> bool:
        """Whether this worker has a process."""
        return self._workers[number].process is not None

    def stop(self) -> None:
        """Have all workers finish their records in flight and end."""
        if self._stopping:
            return
        self._stopping = True
        for worker in self._workers:
            if worker.process is None:
                worker.code = worker.code or 0
            else:
                worker.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End all workers at once."""
        self._stopping = self._killed = True
        for worker in self._workers:
            if worker.process is not None:
                worker.process.kill()

    def look(self) -> None:
        """A round: start what is due, notice what has died or hangs, and publish what that shows."""
        now = self._clock()
        changed = False
        for worker in self._workers:
            if worker.process is None:
                if worker.code is None and now >= worker.due:
                    worker.started, worker.seen, worker.hung = now, {}, None
                    worker.process = self._launch(worker.number)
                continue
            code = worker.process.poll()
            changed = self._suspects.acknowledged(self._file.marks(worker.number)) or changed
            if code is None:
                self._kill_if_it_hangs(worker, now)
                continue
            worker.process = None
            if code >= 0:
                worker.code = code
                self.stop()
            elif self._killed:
                worker.code = CUT_SHORT
            elif self._stopping and -code == signal.SIGTERM:
                # It was still too young to have a handler, and has run nothing.
                worker.code = 0
            else:
                changed = self._died(worker, -code, now) or changed
            self._file.clear(worker.number)
        if self._suspects.expire(now) or changed:
            self._publish()

    def _kill_if_it_hangs(self, worker: _Worker, now: float) -> None:
        running = {slot: (number, since) for slot, number, since in self._file.running(worker.number)}
        # A slot that writes its note at the moment may be read half: so two rounds have to see the same.
        same = {slot: what for slot, what in running.items() if worker.seen.get(slot) == what}
        worker.seen = running
        for slot, (_, since) in same.items():
            if worker.hung is not None or now - since <= self._least_stuck or worker.process is None:
                continue
            service = self._file.service_of(worker.number, slot)
            limit = self._stuck.get(service or "", self._least_stuck)
            if now - since > limit:
                worker.hung = limit
                self._log.warning("a batch has no end: its worker is killed", worker=worker.number, seconds=limit)
                worker.process.kill()

    def _died(self, worker: _Worker, number: int, now: float) -> bool:
        """Whether the board is to change."""
        cause = Cause(number, worker.hung)
        notes = self._file.notes(worker.number)
        if worker.hung is not None:
            notes = [note for note in notes if now - note.since > self._limit_of(note)]
        verdict = self._suspects.died(notes, cause, now)
        for place, position, reason in verdict.convicted:
            self.poison[place[0]] += 1
            self._log.error(
                "a record kills the process that runs it; from now on it fails without being run",
                service=place[0],
                source=place[1],
                partition=place[2],
                position=position,
                reason=reason,
            )
        self._note_death(worker, cause, verdict, now)
        return bool(notes)

    def _limit_of(self, note: Note) -> float:
        return self._stuck.get(note.spans[0].service, self._least_stuck) if note.spans else self._least_stuck

    def _note_death(self, worker: _Worker, cause: Cause, verdict: Verdict, now: float) -> None:
        blamed = bool(verdict.convicted or verdict.suspects)
        if self._file.has_run(worker.number):
            worker.ran = now
        # An operator or the OOM killer may kill a worker that does its work, or begins again; that alone is no reason
        # to give up. If it has run nothing for long, there may be too little memory to start it.
        from_outside = cause.number == _SIGKILL and cause.hung is None and now - worker.ran <= WITHIN
        if not blamed and not from_outside:
            self._deaths.add(now, cause.text)
        if self._stopping:
            worker.code = 1
            self._log.warning("a worker died while it stopped", worker=worker.number, reason=cause.text)
            return
        self.restarts[worker.number, cause.reason] += 1
        why = self._deaths.why_give_up(now)
        if why is not None:
            self.gave_up = f"workers died too often, and no record was running: {why}"
            worker.code = 1
            self._log.error("giving up: workers die too often, and no record was running", reasons=why)
            self.stop()
            return
        wait = worker.backoff.after(now - worker.started)
        worker.due = now + wait
        suspects = {"suspects": _shown(verdict.suspects)} if verdict.suspects else {}
        self._log.warning(
            "a worker died, and is started again",
            worker=worker.number,
            reason=cause.reason if cause.hung is not None else cause.text,
            seconds=wait,
            **suspects,
        )

    def _publish(self) -> None:
        while True:
            board = self._suspects.board()
            try:
                self._file.publish(board)
                return
            except ValueError:
                if not self._suspects.halve():
                    self._log.error("too many records are suspects: workers do not see the newest")
                    return


def _shown(spans: tuple[Span, ...]) -> str:
    texts = [
        f"{span.service} {span.source} {span.partition} {span.first}" + (f"-{span.last}" if span.size > 1 else "")
        for span in spans[:_SHOWN]
    ]
    more = len(spans) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more else "")
