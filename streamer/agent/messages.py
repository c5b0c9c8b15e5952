"""The messages between an intake thread and the run thread, apart from batches."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from connectors.records import Lane


class Sender(Protocol):
    """The intake that sends a message: its counts, for the run thread."""

    @property
    def handed_over(self) -> int:
        """How many batches it has put into the queue."""

    @property
    def processed(self) -> int:
        """How many of them the run thread has finished."""

    @property
    def rewinds(self) -> int:
        """How often it was told to rewind."""


@dataclass(slots=True, eq=False)
class RevokeRequest:
    """The source is about to lose these lanes (a Kafka rebalance) and needs the positions to acknowledge before that.

    The intake thread waits for `done` until `deadline` (seconds on `time.monotonic`). At `due` the run thread answers
    even if batches of this source are still waiting, so that the rest of the time is left for confirmations.
    """

    intake: Sender
    lanes: list[Lane]
    due: float
    deadline: float
    marks: Mapping[Lane, int] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)

    def answer(self, marks: Mapping[Lane, int]) -> None:
        """Allow the source to acknowledge everything below these positions. From the run thread."""
        self.marks = marks
        self.done.set()


@dataclass(frozen=True, slots=True)
class Ended:
    """These lanes have ended: their records belong to another consumer, or come again."""

    lanes: list[Lane]
    finish: bool = False
    """The bus delivers their records to no consumer again: those in flight are finished, none is acknowledged."""


@dataclass(frozen=True, slots=True)
class Forgettable:
    """These lanes have ended with `Ended.finish`, and all their records have been handed over.

    When these are run and confirmed, steps can discard their state for the lanes.
    """

    intake: Sender
    lanes: list[Lane]
    handed_over: int
    """`Intake.handed_over` at that time."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The intake hands over no more batches unless it is told to rewind; `error` if that is because it failed."""

    intake: Sender
    rewinds: int
    """How often the intake had been rewound by then; if `Intake.rewinds` is higher, a rewind is still to come."""
    error: BaseException | None = None


ToRunThread = RevokeRequest | Ended | Forgettable | Finished


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledge these positions. `last`: wait until the bus has them, then close the source."""

    marks: Mapping[Lane, int]
    last: bool = False


@dataclass(frozen=True, slots=True)
class Rewind:
    """Have the source deliver the records of these lanes again, from the last acknowledged position."""

    lanes: list[Lane]


ToIntake = Acknowledge | Rewind
