"""What an intake thread and the run thread tell each other, apart from batches."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from connectors.records import Lane

if TYPE_CHECKING:
    from streamer.agent.intake import Intake


@dataclass(slots=True, eq=False)
class RevokeRequest:
    """The source is about to lose these lanes (a Kafka rebalance) and asks which positions it may acknowledge first.

    The intake thread waits for `done` until `deadline` (seconds on `time.monotonic`). At `due` the run thread answers
    even if batches of this source are still waiting, so that what is left of the time is for confirmations.
    """

    intake: Intake
    lanes: list[Lane]
    due: float
    deadline: float
    marks: Mapping[Lane, int] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)

    def answer(self, marks: Mapping[Lane, int]) -> None:
        """Everything below these positions may be acknowledged. From the run thread."""
        self.marks = marks
        self.done.set()


@dataclass(frozen=True, slots=True)
class Ended:
    """These lanes have ended: their records belong to another consumer, or come again."""

    lanes: list[Lane]
    finish: bool = False
    """They come to nobody again: those in hand are finished, and nothing is acknowledged."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The intake will hand over nothing more unless it is told to rewind; `error` if that is because it failed."""

    intake: Intake
    rewinds: int
    """How often it had been rewound by then: a rewind that was asked for since is still to come."""
    error: BaseException | None = None


ToRunThread = RevokeRequest | Ended | Finished


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledge these positions. `last`: wait until the bus has them, then close the source."""

    marks: Mapping[Lane, int]
    last: bool = False


@dataclass(frozen=True, slots=True)
class Rewind:
    """Have the source deliver the records of these lanes again, from what was acknowledged."""

    lanes: list[Lane]


ToIntake = Acknowledge | Rewind
