"""`Intakes`: the intake threads of a service, as the run thread reaches them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from connectors.records import Lane
from connectors.source import TransactionToken
from streamer.agent.batchruns import DrainTime
from streamer.agent.intake import Intake
from streamer.agent.messages import Ended, Forgettable, IntakeState, RevokeRequest, Stage, ToRunThread
from streamer.delivery.ledger import Ledger


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
