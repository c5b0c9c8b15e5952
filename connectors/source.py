"""`Source`: where records come from, and what it must guarantee."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from connectors.measures import Measure
from connectors.records import Lane, Records
from pipelines.hotpath import NO_COMPILED_FORM, HotPathReport


class Replays(Enum):
    """What a source delivers again when records were not acknowledged."""

    OFFSET = "offset"
    """Everything from the last acknowledged position on, also to another process (Kafka, files)."""
    SESSION = "session"
    """What this session left unacknowledged, when it reconnects (MQTT). Positions mean nothing to another process."""
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
    """The lane has ended: its positions may not be acknowledged any more, and state that belongs to it is discarded."""

    lane: Lane
    finish: bool = False
    """Its records will not be delivered again, by anybody: those that were polled are finished, not discarded.

    So it is where the bus has forgotten what was unacknowledged (a lost MQTT session). A result of these that is lost
    is a dead letter.
    """


@dataclass(frozen=True, slots=True)
class SourceEnded:
    """The source is at its end (a file was read to its end). If it is rewound, it goes on and ends again."""

    source: str


@dataclass(frozen=True, slots=True)
class SourceDown:
    """The source lost the connection to its peer, or has it back (`down` false). It keeps trying to connect."""

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

    Windows: a bus may hand out only so many records that are not acknowledged. The source says so by `starved`. If it
    `replays` a session, it is told of what is done as soon as that is known; any other once a second, or when it is
    starved.

    Sessions: a lane is a session, not a connection. A reconnect that finds the session on the bus keeps the lane: what
    the bus delivers again and is in hand already (polled, and not acknowledged) is not delivered a second time. If the
    bus has lost the session the lane ends with `finish`, and a new one begins. `rewind` reconnects, so that the bus
    delivers what is unacknowledged once more.

    Memory: a source holds a bounded number of bytes that were fetched and not polled, however long it is not polled.
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
        """The next records: at most `max_records`, and about `max_bytes` of payloads and keys.

        Returns when there are as many, or after `timeout` seconds with those that there are; at once with those that
        there are when it is `starved`. The last record may exceed `max_bytes`. With `max_records` 1 it returns as soon
        as there is one.
        Raises `ConnectorError` when the source cannot go on. The service finishes and acknowledges the records of
        earlier polls before it stops.
        """

    @abstractmethod
    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """Tell the bus that all records below these positions are done. Lanes that have ended are ignored.

        `wait`: return only when the bus has confirmed that (used at revoke and at the end).
        """

    @abstractmethod
    def rewind(self, lanes: Iterable[Lane]) -> None:
        """Deliver these lanes again from the last acknowledged position, in new lanes (the epoch goes up).

        `events` then returns a `LaneEnded` for each and a `LaneBegan` for the lane that replaces it. Lanes that have
        ended are ignored.
        """

    @abstractmethod
    def events(self) -> list[Event]:
        """What happened since the last call, in order. Cheap if nothing did.

        When `poll` has returned, a `LaneBegan` was or is given here for every lane of its records, and no `LaneEnded`.
        """

    @abstractmethod
    def close(self) -> None:
        """Disconnect. Idempotent. Nothing is acknowledged by closing."""

    def standing_still(self, still: bool) -> None:
        """Called with `True` after a second without a poll, then ten times a second, and with `False` before the next.

        For sources whose bus has to be served meanwhile, such as Kafka with its rebalances.
        """

    def starved(self) -> bool:
        """Whether the bus gives nothing more until some of what was polled is acknowledged: its window is full.

        Asked after each poll, so it is quick. If it is, the batch is closed, as nothing more can come into it, and its
        records are acknowledged as soon as they are done. Never where nothing is unacknowledged: then the service would
        wait for a record that nobody keeps back.
        """
        return False

    def wake(self) -> None:
        """Make a `poll` that is waiting, or about to wait, return soon. Called from other threads.

        A service does it when it has something to acknowledge for a source that waits for that, or replays a session.
        """

    def transaction_token(self) -> object | None:
        """What a `TransactionalSink` of the same bus needs to commit positions; `None` without transactions."""
        return None

    def metrics(self) -> Sequence[Measure]:
        """What it counts and measures itself, for `/metrics`, the same measures each time.

        Called from any thread, also before `open` and after `close`: it reads plain numbers, and waits for nothing.
        """
        return ()

    def lag(self) -> Mapping[tuple[str, int], int]:
        """How many records are left to deliver, by (topic, partition), as far as known without asking the bus.

        The watchdog compares this with the records that are delivered, to find a partition that is stuck. So it must be
        known without any record being delivered, at most a minute old, and 0 where nothing that is left will ever be
        delivered (markers of transactions).
        """
        return {}
