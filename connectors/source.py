"""`Source`: where records come from, and what it must guarantee."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from connectors.records import Lane, Records
from pipelines.hotpath import NO_COMPILED_FORM, HotPathReport


class Replays(Enum):
    """What a source delivers again when records were not acknowledged."""

    OFFSET = "offset"
    """Everything from the last acknowledged position on, also to another process (Kafka, files)."""
    SESSION = "session"
    """What this session left unacknowledged, when it reconnects (MQTT)."""
    NONE = "none"
    """Nothing: what is lost is lost (cameras)."""


@dataclass(frozen=True, slots=True)
class LaneBegan:
    """The source now delivers this lane; its first record will be at `position` (-1: not known yet)."""

    lane: Lane
    topic: str
    partition: int
    position: int = -1


@dataclass(frozen=True, slots=True)
class LaneEnded:
    """The lane is over: nothing of it may be acknowledged any more, its state is someone else's."""

    lane: Lane


@dataclass(frozen=True, slots=True)
class SourceEnded:
    """The source has nothing more to give (a file read to its end), unless it is rewound; then it ends again."""

    source: str


@dataclass(frozen=True, slots=True)
class SourceDown:
    """The source lost its peer, or has it back (`down` false); it goes on trying by itself."""

    source: str
    down: bool
    reason: str


Event = LaneBegan | LaneEnded | SourceEnded | SourceDown

Settle = Callable[[Iterable[Lane], float], Mapping[Lane, int]]
"""Given the lanes about to be taken away and a deadline (seconds on `time.monotonic`): wait until what is in
flight of them is confirmed or the deadline has passed, and return the positions that may be acknowledged."""


class Source(ABC):
    """A connector that delivers records. All methods but `wake` are called by one thread.

    Positions: each lane's positions rise. A position handed to `acknowledge` is the *next* one to deliver, so
    all records below it are done with (as a Kafka offset commit).

    Delivery: a record is delivered again, after a restart or `rewind`, unless a position above it was
    acknowledged, as far as `replays` promises. It is never delivered in a lane that has ended. Records of
    one lane come in order, without gaps other than those the bus itself has.

    Memory: a source keeps a bounded amount of undelivered records, and does not fetch without limit while
    nobody polls.
    """

    name: str
    replays: Replays

    @property
    def hot_path(self) -> HotPathReport:
        """Which hot path it takes, and why it is plain Python if it is. Known from the start, without `open`."""
        return NO_COMPILED_FORM

    @abstractmethod
    def open(self, settle: Settle | None = None) -> None:
        """Connect. `settle` is called, in the polling thread, before lanes are taken away.

        Raises `ConnectorError` for what will not get better (credentials, unknown topic with no pattern);
        an absent peer is not an error but an event.
        """

    @abstractmethod
    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """Wait until `max_records` or about `max_bytes` came, or `timeout` seconds have passed; give what there is.

        May give more bytes than asked by one record. With `max_records` 1 it returns as soon as there is one.
        Raises `ConnectorError` when the source cannot go on. What it gave before is finished and acknowledged first.
        """

    @abstractmethod
    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """Everything below these positions is done with. Lanes that have ended are ignored.

        `wait`: return only when the bus has it (at revoke and at the end).
        """

    @abstractmethod
    def rewind(self, lanes: Iterable[Lane]) -> None:
        """Deliver these lanes again from the last acknowledged position, in new lanes (the epoch goes up).

        `events` tells it: each ends (`LaneEnded`) and begins anew (`LaneBegan`). Lanes that have ended are ignored.
        """

    @abstractmethod
    def events(self) -> list[Event]:
        """What happened since the last call, in order. Cheap when nothing did.

        After a poll it tells of every lane that the poll's records belong to, and of none of these that it ended.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave. Idempotent. Nothing is acknowledged by closing."""

    def standing_still(self, still: bool) -> None:
        """Told after a second without polling (`True`), then about ten times a second until polling goes on (`False`).

        A source whose bus wants signs of life meanwhile (Kafka's rebalances) gives them here.
        """

    def wake(self) -> None:
        """Make a `poll` that is waiting return soon. Called from other threads."""

    def transaction_token(self) -> object | None:
        """What a `TransactionalSink` of the same bus needs to commit positions; `None` if there is no such thing."""
        return None

    def lag(self) -> Mapping[tuple[str, int], int]:
        """Records that were not delivered yet, by (topic, partition), as far as known without waiting for an answer.

        A partition of which nothing comes though it is polled is found by this number: it must not depend on what
        comes, and be a minute old at most. 0 where what is left will never be delivered (markers of transactions).
        """
        return {}
