"""`Source`: the interface of connectors that deliver records, and the guarantees that they must keep."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from connectors.measures import Measure
from connectors.records import Lane, Records
from pipelines.data.batch import Batch
from pipelines.executors.ports import Ports
from pipelines.hotpath import NO_COMPILED_FORM, HotPathReport


class Replays(Enum):
    """Which unacknowledged records a source delivers again."""

    OFFSET = "offset"
    """Everything from the last acknowledged position on, also to another process (Kafka, files)."""
    SESSION = "session"
    """The unacknowledged records of this session, when it reconnects (MQTT). Positions mean nothing to another
    process."""
    NONE = "none"
    """None: a lost record stays lost (cameras)."""


@dataclass(frozen=True, slots=True)
class CheckpointNote:
    """Which saved state has seen all records before a position: what a bus keeps with the position, if it can."""

    store: str
    """The id of the store; another file or topic has another one."""
    host: str
    """The machine that saved it."""
    checkpoint: int
    """The number of the store's last save by then."""


@dataclass(frozen=True, slots=True)
class LaneBegan:
    """The source now delivers this lane; its first record will be at `position` (-1: not known yet)."""

    lane: Lane
    topic: str
    partition: int
    position: int = -1
    noted: CheckpointNote | None = None
    """What the bus has with this position; `None`: nothing, as the state of no service has seen the records before it,
    somebody put it there, or the bus keeps no notes."""


@dataclass(frozen=True, slots=True)
class LaneEnded:
    """The lane has ended: its positions may not be acknowledged any more, and state that belongs to it is discarded."""

    lane: Lane
    finish: bool = False
    """The bus will not deliver its records again, to any consumer: those that were polled are finished, not discarded.

    That is so if the bus has forgotten unacknowledged records (a lost MQTT session). If a result of these records is
    lost, the record becomes a dead letter.
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
"""Given the lanes about to be taken away and a deadline (seconds on `time.monotonic`): wait until their records in
flight are confirmed or the deadline has passed, and return the positions that may be acknowledged."""


@dataclass(frozen=True, slots=True)
class TransactionToken:
    """Proof of group membership, with which a `TransactionalSink` of the same bus commits positions."""

    lanes: frozenset[Lane]
    """The lanes that the source had when it gave the token: it is good for no others."""
    member: object
    """The bus's own proof that this consumer is a member of its group (Kafka: the group's metadata)."""
    passed: Mapping[Lane, int] = field(default_factory=dict)
    """Positions behind what the bus never delivers (Kafka: markers of transactions, records of aborted ones), of lanes
    whose delivered records are all acknowledged. To be committed too, unless a later position of the lane was."""


@dataclass(frozen=True, slots=True)
class Served:
    """What clients may know of the service that runs their records.

    `Source.serves` and `Codec.serves` get it once the pipeline is open, before the source opens.
    """

    service: str
    """The name of the service: that of the model in the Open Inference Protocol."""
    ports: Ports
    """Inputs and outputs of the pipeline, as far as they are known."""
    answers: bool = False
    """Whether a sink answers the clients of the source; otherwise they only learn that all sinks have their results."""
    trouble: Callable[[], str | None] = lambda: None
    """Why the service is not ready; `None` while it is. From any thread."""
    stuck: Callable[[], str | None] = lambda: None
    """Why the process should be restarted; `None` while the service makes progress. From any thread."""
    version: Callable[[], str] = lambda: "1"
    """The version of the pipeline's models that runs records at present. From any thread."""
    versions: Callable[[Batch], Sequence[str] | None] = lambda batch: None
    """The version that made each of these results, which are being delivered; `None`: `version` made all."""
    names: Callable[[], Sequence[str]] = tuple
    """What requests may name to be answered by one of several versions. From any thread."""


class Source(ABC):
    """A connector that delivers records. All methods but `wake` are called by one thread.

    Positions: each lane's positions rise. A position handed to `acknowledge` is the *next* one to deliver, so
    all records below it are finished (as a Kafka offset commit).

    Delivery: a record is delivered again, after a restart or `rewind`, unless a position above it was
    acknowledged, as far as `replays` promises. It is never delivered in a lane that has ended. Records of
    one lane come in order, without gaps other than those the bus itself has.

    Windows: a bus may limit the number of unacknowledged records. `starved` tells that this limit is reached. A source
    that `replays` a session gets acknowledgements as soon as records are finished; any other gets them once a second,
    or when it is starved.

    Sessions: a lane is a session, not a connection. A reconnect that finds the session on the bus keeps the lane: a
    record that the bus delivers again, and that was polled and not acknowledged, is not delivered a second time. If the
    bus has lost the session the lane ends with `finish`, and a new one begins. `rewind` reconnects, so that the bus
    delivers unacknowledged records once more.

    Perishable records: a poll of a `perishable` source gives at most one record of each lane, the newest that the lane
    has, and returns when every live lane has given one; lanes from which nothing was polled for longest come first, so
    that a small `max_records` starves none. `Records.received` says how old the oldest is.

    Memory: a source holds a bounded number of bytes that were fetched and not polled, however long it is not polled.
    """

    name: str
    replays: Replays
    perishable: bool = False
    """Whether records lose their worth while they wait, and newer ones replace those that were not polled (cameras).

    Then a service polls only when it can run the records at once, so that it gets the newest. It may end while the
    source is open: what a camera's URL gives may turn out to be a recording.
    """

    waits: str | None = None
    """What it waits for that is somebody else's to end, such as another program's open transaction; `None`: nothing.
    From any thread."""

    noted: CheckpointNote | None = None
    """What to keep with positions that are acknowledged from now on, for a bus that can. Set by another thread, before
    it has positions acknowledged of which it is true."""

    @property
    def hot_path(self) -> HotPathReport:
        """Which hot path it takes, and why it is plain Python if it is. Known from the start, without `open`."""
        return NO_COMPILED_FORM

    def serves(self, served: Served) -> None:
        """Called once, before `open`, by a service: for sources whose clients ask about its pipeline."""

    def keep_together(self) -> None:
        """Called once, before `open`, by a service that joins records of several topics.

        Partitions of the same number have to be read together: `poll` raises `ConnectorError` once they are not.
        """

    @abstractmethod
    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Connect. A peer that is absent is not an error: `events` reports it, and the source keeps trying.

        Args:
            settle: Called in the polling thread before lanes are taken away.
            commits: If false, a `TransactionalSink` commits positions and the source none: `acknowledge` only notes
                them, `rewind` asks the bus which are committed, and where the group has none, the first position
                (`start`) is committed before a record is delivered. Only for a source with `transaction_token`.

        Raises:
            ConnectorError: Waiting does not mend it: wrong credentials, an unknown topic that is not a pattern.
        """

    @abstractmethod
    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """The next records. Returns at once if the source is `starved`.

        Args:
            max_records: At most as many records; with 1 it returns as soon as there is one.
            max_bytes: About as many bytes of payloads and keys; the last record may exceed it.
            timeout: Seconds after which it returns what there is, maybe nothing.

        Raises:
            ConnectorError: The source cannot go on. The service finishes and acknowledges the records of earlier polls
                before it stops.
        """

    def await_records(self, timeout: float) -> bool | None:
        """Wait at most `timeout` seconds until there are records to `poll`; whether there are.

        `None`, at once, if only polling tells that (the default). `wake` ends it as it ends a `poll`.
        """
        return None

    def poll_without(self, lanes: Collection[Lane], max_records: int, max_bytes: int, timeout: float) -> Records:
        """As `poll`, but no records of these lanes: a batch with one record of each lane has theirs already.

        A perishable source keeps to that, so that their next records go on being replaced by newer ones. Others may
        give such records all the same (the default): they wait for the next batch.
        """
        return self.poll(max_records, max_bytes, timeout)

    @abstractmethod
    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """Tell the bus that all records below these positions are done. Lanes that have ended are ignored.

        Args:
            positions: The next position to deliver, by lane.
            wait: Return only when the bus has confirmed that (used at revoke and at the end).
        """

    @abstractmethod
    def rewind(self, lanes: Iterable[Lane]) -> None:
        """Deliver these lanes again from the last acknowledged position, in new lanes (the epoch goes up).

        `events` then returns a `LaneEnded` for each and a `LaneBegan` for the lane that replaces it. Lanes that have
        ended are ignored.
        """

    @abstractmethod
    def events(self) -> list[Event]:
        """The events since the last call, in order. Cheap if there are none.

        When `poll` has returned, a `LaneBegan` was or is given here for every lane of its records, and no `LaneEnded`
        but one with `finish`.
        """

    def finish(self) -> bool:
        """Accept no more records, as the service stops; whether some that were accepted are to be polled yet.

        For sources whose clients wait for what becomes of their records. Others leave to the bus what was not polled.
        """
        return False

    @abstractmethod
    def close(self) -> None:
        """Disconnect. Idempotent. Nothing is acknowledged by closing."""

    def standing_still(self, still: bool) -> None:
        """Called with `True` after a second without a poll, then ten times a second, and with `False` before the next.

        For sources that have to serve their bus meanwhile, as Kafka's for rebalances.
        """

    def starved(self) -> bool:
        """Whether the bus delivers nothing more until polled records are acknowledged: its window is full.

        Called after each poll, so it has to be quick. If true, the batch is closed, as no more records can come, and
        its records are acknowledged as soon as they are finished. Must be false if nothing is unacknowledged, or the
        service would wait for ever.
        """
        return False

    def is_awaited(self, positions: Mapping[Lane, int]) -> bool:
        """Whether somebody waits until these positions are acknowledged: then a service calls `wake`, too.

        Called from other threads. The bus of a source that replays a session waits as a rule: it allows few records in
        flight.
        """
        return self.replays is Replays.SESSION

    def wake(self) -> None:
        """Make a `poll` that is waiting, or about to wait, return soon. Called from other threads.

        A service calls it when it acknowledges positions that are awaited, or while the source is starved.
        """

    def transaction_token(self) -> TransactionToken | None:
        """The token with which a `TransactionalSink` of the same bus commits positions of its present lanes.

        Cheap, and called often: after `events`, and in `settle`.

        Returns:
            `None` for a source without transactions.
        """
        return None

    def publish(self, topic: str, payload: bytes) -> bool:
        """Publish a message on its bus, at most once and without waiting: for `Codec.requests`.

        Returns:
            False if it cannot: the bus is away, the topic name is invalid, or sources of this type publish nothing.
        """
        return False

    def traced(self, spans: Iterable[tuple[int, bytes]]) -> None:
        """The records at these positions have these spans, given as headers `traceparent`.

        For sources whose clients get answers. Called by the run thread of a service, before an answer is sent.
        """

    def metrics(self) -> Sequence[Measure]:
        """Its own counters and gauges, for `/metrics`; the same ones at each call.

        Called from any thread, also before `open` and after `close`: it reads plain numbers, and waits for nothing.
        """
        return ()

    def pages(self) -> Mapping[str, Callable[[], Any]]:
        """Facts about the source besides numbers, as JSON: the control port shows `{"cameras": ...}` at `/cameras`.

        Each function is called from any thread, also before `open` and after `close`, and waits for nothing.
        """
        return {}

    def caught_up(self, emptied_at: float) -> float:
        """The time by which all records had come that were polled: none waits that came before. On `time.monotonic`.

        Steps conclude from it that nothing came, such as the end of a silent key's window; so it must not be too late.
        That it is a second or two behind does no harm. It stays where it is while the bus cannot be reached. Called
        between polls, often, and only by a service whose steps have state.

        Args:
            emptied_at: When the last poll began that gave fewer records and bytes than asked for, of a source that was
                not `starved` then; -infinity: none has yet. The default: it was then, which is right if a poll gives
                whatever is there. A source that fetches by itself knows more, such as where its partitions ended.
        """
        return emptied_at

    def lag(self) -> Mapping[tuple[str, int], int]:
        """How many records are left to deliver, as far as known without asking the bus.

        The watchdog compares this with the records that are delivered, to find a partition that is stuck. So it must be
        known without any record being delivered, at most a minute old, and 0 where nothing that is left will ever be
        delivered (markers of transactions).

        Returns:
            The number of records by (topic, partition).
        """
        return {}
