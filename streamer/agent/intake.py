"""`Intake`: one source and its thread, as the run thread and the control port reach them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping

from connectors.records import Lane
from connectors.source import Replays
from streamer.agent.intakeloop import IntakeLoop
from streamer.agent.messages import Acknowledge, Rewind, Stage


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

    def acknowledge(self, marks: Mapping[Lane, int]) -> None:
        """Have the source acknowledge these positions."""
        self.marked_at = time.monotonic()
        self.state.messages.put(Acknowledge(marks))
        if self.state.starved or self.source.replays is Replays.SESSION:
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
