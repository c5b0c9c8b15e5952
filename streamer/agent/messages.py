"""What an intake thread and the run thread know of each other, apart from batches: `IntakeState`, and messages."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from queue import SimpleQueue

from connectors.records import Lane
from connectors.source import TransactionToken


class Stage(IntEnum):
    """The stages in the life of an intake, which only rise; some may be skipped."""

    WAIT = 0
    """It opens its source, and waits until all sources of the service are open."""
    READ = 1
    """It polls, decodes and hands over."""
    FINISH = 2
    """It polls no more; records that were polled are still handed over."""
    DISCARD = 3
    """It hands over no more batches, as no more are run."""
    LEAVE = 4
    """The last positions are acknowledged: it closes its source and ends. Set by the intake thread alone."""


class IntakeState:
    """The stage of one intake, its counts, and the messages that wait for its thread."""

    def __init__(self) -> None:
        self.stage = Stage.WAIT
        self.messages: SimpleQueue[ToIntake] = SimpleQueue()
        self.processed = 0
        """Batches of this source that the run thread has run. Written by the run thread."""
        self.rewinds = 0
        """How often the run thread has asked for a rewind."""
        self.paused = False
        """Whether the source is not to be polled, by a command. Written by the thread that has the command."""
        self.handed_over = 0
        """Batches that were put into the queue so far. This and what follows is written by the intake thread."""
        self.starved = False
        """Whether the source gives no more records until some are acknowledged."""
        self.acknowledged: dict[Lane, int] = {}
        """The positions acknowledged last, of lanes that have not ended."""
        self.token: TransactionToken | None = None
        """Commits positions of the source's present lanes in transactions; set after the end of others was reported."""
        self.caught_up: dict[int, float] = {}
        """When all records had come that are in so many batches handed over (`IntakeLoop.catch_up`), by their number.
        The run thread removes what it has read."""
        self._risen = threading.Condition()

    @property
    def under_way(self) -> int:
        """How many batches were handed over and not run yet."""
        return self.handed_over - self.processed

    @property
    def all_processed(self) -> bool:
        """Whether the run thread has run all batches that were handed over."""
        return self.under_way <= 0

    def rise(self, stage: Stage) -> None:
        """Go to this stage, unless the intake is further. From any thread."""
        with self._risen:
            self.stage = max(self.stage, stage)
            self._risen.notify_all()

    def wait_for(self, stage: Stage, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds until the intake has reached this stage; whether it has."""
        with self._risen:
            return self._risen.wait_for(lambda: self.stage >= stage, timeout)


@dataclass(slots=True, eq=False)
class RevokeRequest:
    """The source is about to lose these lanes (a Kafka rebalance) and needs the positions to acknowledge before that.

    The intake thread waits for `done` until `deadline` (seconds on `time.monotonic`). At `due` the run thread answers
    even if batches of this source are still waiting, so that the rest of the time is left for confirmations.
    """

    intake: IntakeState
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

    intake: IntakeState
    lanes: list[Lane]
    handed_over: int
    """`IntakeState.handed_over` at that time."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The intake hands over no more batches unless it gets a `Rewind`; `error` if that is because it failed."""

    intake: IntakeState
    rewinds: int
    """How often the intake had been rewound by then; if `IntakeState.rewinds` is higher, a rewind is still to come."""
    error: BaseException | None = None


ToRunThread = RevokeRequest | Ended | Forgettable | Finished


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledge these positions. `last`: wait until the bus has them, then close the source. `done`: wait until the
    bus has them, and set this then, or if it does not answer."""

    marks: Mapping[Lane, int]
    last: bool = False
    done: threading.Event | None = None


@dataclass(frozen=True, slots=True)
class Rewind:
    """Have the source deliver the records of these lanes again, from the last acknowledged position."""

    lanes: list[Lane]


ToIntake = Acknowledge | Rewind
