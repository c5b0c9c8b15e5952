"""`Lanes`: the partitions that are assigned to a Kafka source, and the progress of each."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from connectors.records import Lane, Records
from connectors.source import CheckpointNote, Event, LaneBegan, LaneEnded

_log = logging.getLogger(__name__)

_LONGEST_HOST = 253
"""Characters of a name in DNS."""

Place = tuple[str, int]
"""Topic and partition number."""


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Metadata of a committed offset: the topic's id, the partitions that existed when the group began, and which
    saved state has seen all records before it."""

    topic_id: str = ""
    """The brokers' id of the topic; empty if it is not known."""
    beginning: str = ""
    """A digest of `start` and of all partitions at the group's beginning; empty if no position depends on it."""
    noted: CheckpointNote | None = None
    """The checkpoint that the position is of; `None`: of none."""

    def of_checkpoint(self, noted: CheckpointNote | None) -> CommitMetadata:
        """The same with this checkpoint; `None`: with that which it has."""
        return self if noted is None or noted == self.noted else replace(self, noted=noted)

    def text(self) -> str:
        """The text to commit: a JSON object of less than 500 characters; empty if all fields are."""
        said: dict[str, str | int] = {"topic_id": self.topic_id, "beginning": self.beginning}
        if self.noted is not None:
            # Brokers accept 4096 bytes (offset.metadata.max.bytes).
            said |= {**asdict(self.noted), "host": self.noted.host[:_LONGEST_HOST]}
        return json.dumps({name: value for name, value in said.items() if value != ""}) if any(said.values()) else ""

    @classmethod
    def of(cls, text: str | None) -> CommitMetadata:
        """The metadata of this text; empty if another program wrote it."""
        try:
            said = json.loads(text or "{}")
        except ValueError:
            return cls()
        if not isinstance(said, dict):
            return cls()
        topic_id, beginning = said.get("topic_id", ""), said.get("beginning", "")
        if not (isinstance(topic_id, str) and isinstance(beginning, str)):
            return cls()
        return cls(topic_id, beginning, _note_of(said))


def _note_of(said: Mapping[str, object]) -> CheckpointNote | None:
    store, host, checkpoint = said.get("store"), said.get("host", ""), said.get("checkpoint")
    if isinstance(store, str) and store and isinstance(host, str) and type(checkpoint) is int:
        return CheckpointNote(store, host, checkpoint)
    return None


_NOTHING = CommitMetadata()


@dataclass(slots=True)
class Progress:
    """The positions of a lane: offsets of the next record, or librdkafka's logical offsets (< 0)."""

    lane: Lane
    place: Place
    acknowledged: int
    """The last acknowledged position, at first the lane's beginning; a rewind goes back to it."""
    delivered: int
    """The position after the last delivered record."""
    committed: int
    """The committed position; smaller than `acknowledged` while a commit is in flight or has failed."""
    metadata: CommitMetadata
    """The metadata that is committed with each position."""
    passed: int = field(default=-1, init=False)
    """The position up to which the client has delivered all that it ever will: behind the last record there may be
    markers of transactions, and records of aborted ones. Smaller than `delivered` while nothing is known."""
    former: int = field(default=-1, init=False)
    """The client's position when the lane began: that of a former lane, which says nothing of this one; negative if it
    had none."""
    ended: int = field(default=-1, init=False)
    """The partition's end when the client last reached it. After the last record there may be markers of transactions,
    and records of aborted ones, which are never delivered."""
    heard_at: float = field(default_factory=time.monotonic, init=False)
    """When the client last received records, or the end, of this partition, on `time.monotonic`."""
    end: int = field(default=-1, init=False)
    """The partition's end by the brokers' last answer."""


class Lanes:
    """Lanes by place and by lane, and the events of their beginnings and ends; epochs rise with every beginning."""

    def __init__(self, source: str, out_of_range: str = "stop") -> None:
        """`source` names the lanes' source; `out_of_range`, other than `stop`, lets a lane begin anew whose records go
        back to an earlier offset."""
        self.events: list[Event] = []
        """Events that nobody has fetched yet."""
        self.restarted: list[Progress] = []
        """Lanes that `lane_of` began, and that nobody has fetched yet."""
        self._source = source
        self._out_of_range = out_of_range
        self._epoch = 0
        self._by_place: dict[Place, Progress] = {}
        self._by_lane: dict[Lane, Progress] = {}

    def __len__(self) -> int:
        return len(self._by_place)

    def __iter__(self) -> Iterator[Progress]:
        return iter(list(self._by_place.values()))

    @property
    def places(self) -> Mapping[Place, Progress]:
        """Progress by topic and partition number."""
        return self._by_place

    def find(self, lane: Lane) -> Progress | None:
        """The lane's progress; `None` once it has ended."""
        return self._by_lane.get(lane)

    def next_epoch(self) -> None:
        """Lanes that begin from now on are of a later assignment."""
        self._epoch += 1

    def begin(self, place: Place, position: int, committed: int, metadata: CommitMetadata = _NOTHING) -> Progress:
        """A new lane of this place in the current epoch. It ends the former one."""
        self.end(place)
        topic, partition = place
        lane = Lane(self._source, f"{topic}-{partition}", self._epoch)
        progress = Progress(lane, place, position, position, committed, metadata)
        self._by_place[place] = self._by_lane[lane] = progress
        self.events.append(LaneBegan(lane, topic, partition, max(position, -1), metadata.noted))
        return progress

    def end(self, place: Place) -> None:
        """End the lane of this place, if there is one."""
        progress = self._by_place.pop(place, None)
        if progress is not None:
            del self._by_lane[progress.lane]
            self.events.append(LaneEnded(progress.lane))

    def lane_of(self, place: Place, first: int) -> Lane | None:
        """The lane of records of this place, the first of which is at offset `first`; `None` if none is assigned.

        If they go back behind records that were delivered, the topic was created again or truncated: a new lane begins
        if `out_of_range` says to go on.
        """
        progress = self._by_place.get(place)
        if progress is None:
            return None
        if first < progress.delivered and self._out_of_range != "stop":
            _log.warning(
                "source %s: %s, partition %d goes on at offset %d instead of %d: the topic was deleted and created "
                "again, or its records are gone (out_of_range: %s)",
                self._source,
                *place,
                first,
                progress.delivered,
                self._out_of_range,
            )
            self.next_epoch()
            # Without metadata: these records may be of a new topic, and the id of the former one would have them read
            # again.
            progress = self.begin(place, first, -1)
            self.restarted.append(progress)
        return progress.lane

    def deliver(self, records: Records) -> Records:
        """Note these records as delivered. Returns them without those that were delivered before."""
        repeated: list[tuple[int, int]] = []
        now = time.monotonic()
        for topic, partition, span in zip(records.topics, records.partitions, records.spans, strict=True):
            progress = self._by_place[topic, partition]
            positions = records.positions[span.start : span.stop]
            if positions[0] < progress.delivered:
                repeated.append((span.start, span.start + int(np.searchsorted(positions, progress.delivered))))
            progress.delivered = max(progress.delivered, int(positions[-1]) + 1)
            progress.heard_at = now
        return self._without(repeated, records) if repeated else records

    def _without(self, repeated: list[tuple[int, int]], records: Records) -> Records:
        """The records without those between these rows, which the client has delivered before. Such faults of
        librdkafka are known (its issues 4261 and 4636): run again, the results of these records would be repeated."""
        rows = np.ones(len(records), bool)
        for start, stop in repeated:
            rows[start:stop] = False
            _log.warning(
                "source %s: the client delivered %d records of %s again; they are passed over",
                self._source,
                stop - start,
                records.topic_of(start),
            )
        kept = np.flatnonzero(rows)
        return records.take(kept) if len(kept) else Records.empty(self._source)
