"""`Lanes`: the partitions that are assigned to a Kafka source, and the progress of each."""

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
    passed: int = -1
    """The position up to which the client has delivered all that it ever will: behind the last record there may be
    markers of transactions, and records of aborted ones. Smaller than `delivered` while nothing is known."""
    former: int = -1
    """The client's position when the lane began: that of a former lane, which says nothing of this one; negative if it
    had none."""
    ended: int = -1
    """The partition's end when the client last reached it. After the last record there may be markers of transactions,
    and records of aborted ones, which are never delivered."""
    heard_at: float = 0.0
    """When the client last received records, or the end, of this partition, on `time.monotonic`."""
    end: int = -1
    """The partition's end by the brokers' last answer."""


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
        """End the lane of this place, and return it; `None` if there was none."""
        progress = self._by_place.pop(place, None)
        if progress is None:
            return None
        del self._by_lane[progress.lane]
        return progress.lane
