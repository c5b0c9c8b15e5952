"""The partitions that a Kafka source has at present, and how far each has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from connectors.kafka.consumer.commitmetadata import CommitMetadata
from connectors.records import Lane

Place = tuple[str, int]
"""Topic and partition number."""

_NOTHING = CommitMetadata()


@dataclass(slots=True)
class Progress:
    """How far a lane has come. Positions are offsets of the next record, or librdkafka's logical ones (< 0)."""

    lane: Lane
    place: Place
    acknowledged: int
    """Where a rewind goes back to: the last acknowledged position, at first where the lane began."""
    delivered: int
    """The next record to deliver, as far as known."""
    committed: int
    """What the brokers are known to have; smaller than `acknowledged` while a commit is on its way or has failed."""
    metadata: CommitMetadata
    """What is committed with each position."""
    ended: int = -1
    """Where the partition ended when the client came to its end last. Behind the last record may be markers of
    transactions, and records of aborted ones, which are never delivered."""
    heard_at: float = 0.0
    """When records, or the end, of this partition were met last, on `time.monotonic`."""
    end: int = -1
    """Where the partition ended when the brokers were asked, or last told."""


class Lanes:
    """Lanes by place and by lane; epochs rise with every beginning."""

    def __init__(self, source: str) -> None:
        self._source = source
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
        """A new lane of this place in the current epoch."""
        topic, partition = place
        lane = Lane(self._source, f"{topic}-{partition}", self._epoch)
        progress = Progress(lane, place, position, position, committed, metadata)
        self._by_place[place] = self._by_lane[lane] = progress
        return progress

    def end(self, place: Place) -> Lane | None:
        """The place's lane is over; which one it was, if there was one."""
        progress = self._by_place.pop(place, None)
        if progress is None:
            return None
        del self._by_lane[progress.lane]
        return progress.lane
