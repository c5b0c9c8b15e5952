"""`Intakes`: the intake threads of a service, each an `Intake`, as the run thread and the control port reach them."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from connectors.records import Lane
from connectors.source import CheckpointNote, TransactionToken
from streamer.agent.intakeloop import IntakeLoop
from streamer.agent.messages import (
    Acknowledge,
    Ended,
    Forgettable,
    IntakeState,
    RevokeRequest,
    Rewind,
    Stage,
    ToRunThread,
)
from streamer.agent.runs.batchruns import DrainTime
from streamer.delivery.ledger import Ledger


class Intake:
    """The thread of an `IntakeLoop`, and the messages to it. Methods are for the run thread, unless they say more."""

    def __init__(self, loop: IntakeLoop) -> None:
        self.source = loop.source
        self.state = loop.state
        self.watch = loop.watch
        self.processed_at_commit = -1
        """`state.processed` at the last commit for which all sent messages were confirmed."""
        self.marked_at = -math.inf
        """When the source was last sent positions to acknowledge, on `time.monotonic`."""
        self._opened = loop.opened
        self._caught_up = -math.inf
        self._thread = threading.Thread(target=loop.run, name=f"intake {self.source.name}", daemon=True)

    def start(self) -> None:
        """Open the source."""
        self._thread.start()

    def wait_until_open(self) -> None:
        """Return when the source is open. Raises the error of opening it."""
        self._opened.result()

    def begin(self) -> None:
        """Begin to poll. Called once all sources are open: with `at_most_once` a record that is polled is acknowledged,
        and would be lost if another source could not be opened.
        """
        self.state.rise(Stage.READ)

    def stop(self, stage: Stage = Stage.FINISH) -> None:
        """Poll no more; with `DISCARD`, hand over no more batches either. From any thread."""
        self.state.rise(stage)
        self.source.wake()

    def pause(self, paused: bool) -> bool:
        """Poll the source no more, or again; whether that is a change. From any thread."""
        if self.state.paused == paused:
            return False
        self.state.paused = paused
        self.source.wake()
        return True

    def caught_up(self) -> float:
        """When all records of the source had come that were run, on `time.monotonic`; infinite once it has ended."""
        moments = self.state.caught_up
        for handed_over in list(moments):
            if handed_over > self.state.processed:
                break
            self._caught_up = moments.pop(handed_over)
        return self._caught_up

    def acknowledge(self, marks: Mapping[Lane, int], done: threading.Event | None = None) -> None:
        """Have the source acknowledge these positions; `done` is set when the bus has them, or does not answer."""
        self.marked_at = time.monotonic()
        self.state.messages.put(Acknowledge(marks, done=done))
        if self.state.starved or self.source.is_awaited(marks):
            # The source may be in the middle of a poll that ends only when these positions are acknowledged.
            self.source.wake()

    def of_its_lanes(self, marks: Mapping[Lane, int]) -> dict[Lane, int]:
        """The positions of this source's lanes among `marks`."""
        return {lane: position for lane, position in marks.items() if lane.source == self.source.name}

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """Have the source deliver these lanes again, even if it is at its end."""
        self.state.rewinds += 1
        self.state.messages.put(Rewind(list(lanes)))

    def close(self, marks: Mapping[Lane, int]) -> None:
        """Acknowledge these last positions, wait until the bus has them, and close the source."""
        if marks:
            self.marked_at = time.monotonic()
        self.state.messages.put(Acknowledge(marks, last=True))
        self.stop()

    def stuck(self) -> str | None:
        """Why the process should be restarted: the source has records but has delivered none for long; else `None`.

        From any thread.
        """
        return self.watch.stuck() if self.state.stage > Stage.WAIT and self._thread.is_alive() else None

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end; whether it has."""
        self._thread.join(timeout)
        return not self._thread.is_alive()


class Intakes:
    """All intakes, which are also the `Upstream` of delivery. Methods are for the run thread, unless they say more."""

    def __init__(self, control: deque[ToRunThread], drain: DrainTime, on_ended: Callable[[Ended], None]) -> None:
        """`control` has the messages of the intake threads; `on_ended` is called with those about ended lanes."""
        self.all: list[Intake] = []
        """The intake of each source, once the sources are open."""
        self.by_source: dict[str, Intake] = {}
        """The same intakes by the name of their source."""
        self.error: BaseException | None = None
        """The error of the intake that failed first."""
        self.control = control
        self.forgettable: list[Forgettable] = []
        self.revokes: list[RevokeRequest] = []
        """Revoke requests that are not answered yet."""
        self._drain = drain
        self._on_ended = on_ended
        self._finished: set[IntakeState] = set()
        self._failed: set[IntakeState] = set()

    def open(self, intakes: Sequence[Intake], check: Callable[[], None]) -> None:
        """Open the sources, and begin to poll after `check`. Raises the first error."""
        self.all = list(intakes)
        self.by_source = {intake.source.name: intake for intake in self.all}
        for intake in self.all:
            intake.start()
        for intake in self.all:
            intake.wait_until_open()
        check()
        for intake in self.all:
            intake.begin()
        if self._drain.begun:
            # `stop` may have been called before there were intakes to stop.
            self.stop()

    def stop(self) -> None:
        """Stop polling; records in flight are finished as far as `limits.drain` allows. From any thread."""
        self._drain.begin()
        for intake in self.all:
            intake.stop()

    def discard(self) -> None:
        """Stop polling and hand over no more batches, as no more are run."""
        for intake in self.all:
            intake.stop(Stage.DISCARD)

    def caught_up(self) -> float:
        """When all records had come that were run, on `time.monotonic`; infinite once all sources have ended."""
        return min((intake.caught_up() for intake in self.all), default=math.inf)

    @property
    def have_finished(self) -> bool:
        """Whether no batch comes any more: all sources have ended, failed or stopped."""
        return len(self._finished) == len(self.all)

    def serve(self) -> None:
        """Handle the messages of the intake threads."""
        while self.control:
            message = self.control.popleft()
            if isinstance(message, RevokeRequest):
                self.revokes.append(message)
            elif isinstance(message, Ended):
                self._on_ended(message)
            elif isinstance(message, Forgettable):
                self.forgettable.append(message)
            elif message.error is not None:
                # The batches that the intake handed over before it failed are still finished.
                self.error = self.error or message.error
                self._failed.add(message.intake)
                self._finished.add(message.intake)
                self.stop()
            elif message.rewinds == message.intake.rewinds:
                self._finished.add(message.intake)

    def finished_lanes(self, ledger: Ledger) -> list[Lane]:
        """The forgettable lanes whose last records are finished, each once."""
        done = [
            message
            for message in self.forgettable
            if message.intake.processed >= message.handed_over and not any(map(ledger.has_open, message.lanes))
        ]
        self.forgettable = [message for message in self.forgettable if message not in done]
        return [lane for message in done for lane in message.lanes]

    def due_revokes(self) -> list[RevokeRequest]:
        """The requests, each once, whose source has no batch left in the queue, or whose time is nearly over."""
        now = time.monotonic()
        due = [request for request in self.revokes if request.intake.all_processed or now >= request.due]
        if due:
            self.revokes = [request for request in self.revokes if request not in due]
        return due

    def acknowledge(self, marks: Mapping[Lane, int]) -> None:
        """Have the sources acknowledge these positions."""
        for intake in self.all:
            positions = intake.of_its_lanes(marks)
            if positions:
                intake.acknowledge(positions)

    def acknowledge_for_sure(self, marks: Mapping[Lane, int]) -> list[threading.Event]:
        """Have the sources acknowledge these positions. Each event is set when a bus has them, or does not answer."""
        events: list[threading.Event] = []
        for intake in self.all:
            positions = intake.of_its_lanes(marks)
            if positions:
                events.append(threading.Event())
                intake.acknowledge(positions, events[-1])
        return events

    @property
    def lanes(self) -> dict[Lane, int]:
        """The lanes that the sources deliver at present, and the position where each begins; -1: not known."""
        return {lane: position for intake in self.all for lane, position in intake.watch.lanes.copy().items()}

    def noted(self, lane: Lane) -> CheckpointNote | None:
        """What the bus has with the position where this lane begins."""
        intake = self.by_source.get(lane.source)
        return None if intake is None else intake.watch.noted.get(lane)

    def note(self, note: CheckpointNote) -> None:
        """Have the sources keep this with positions that they acknowledge from now on."""
        for intake in self.all:
            intake.source.noted = note

    def beside(self, lanes: Iterable[Lane]) -> set[Lane]:
        """These lanes, and all others that their sources deliver at present."""
        given = set(lanes)
        sources = {lane.source for lane in given}
        return given.union(lane for lane in self.lanes if lane.source in sources)

    def acknowledged(self) -> dict[Lane, int]:
        """The positions that the sources have acknowledged last, of lanes that have not ended."""
        return {lane: position for intake in self.all for lane, position in intake.state.acknowledged.copy().items()}

    def close(self, marks: Mapping[Lane, int]) -> None:
        """Have the sources acknowledge these last positions, and close."""
        for intake in self.all:
            intake.close(intake.of_its_lanes(marks))

    def rewind(self, lanes: Iterable[Lane], marks: Mapping[Lane, int]) -> None:
        """Have these lanes delivered again, from `marks`, the positions of their complete records."""
        for intake in self.all:
            source_lanes = [lane for lane in lanes if lane.source == intake.source.name]
            if source_lanes:
                # In this order, so that only incomplete records come again.
                intake.acknowledge({lane: marks[lane] for lane in source_lanes if lane in marks})
                intake.rewind(source_lanes)
                if intake.state not in self._failed:
                    self._finished.discard(intake.state)

    def token(self) -> TransactionToken | None:
        """The newest transaction token of the source: a service with transactions has one source."""
        return self.all[0].state.token

    def patience(self) -> float:
        """Seconds left to wait for a sink."""
        return self._drain.patience()
