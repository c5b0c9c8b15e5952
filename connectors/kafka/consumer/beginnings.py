"""`Beginnings`: where the partitions of a group begin. That is the committed position, `start` for a new group, or the
first record."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from connectors.kafka.client.internaltopics import reads
from connectors.kafka.client.queries import PATIENCE, Queries, Start, patiently
from connectors.kafka.consumer.lanes import CommitMetadata, Place, Progress
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)


class Beginning(NamedTuple):
    """The position at which reading of a partition begins."""

    position: int
    """An offset, or `OFFSET_BEGINNING`."""
    committed: int
    """The position that the group has committed; negative if it has committed none of this partition as it is now."""
    metadata: CommitMetadata
    """The metadata to commit with this partition's positions."""


class Beginnings:
    """Finds out where the partitions of one subscription begin.

    `start` is for the beginning of a group alone. A partition without a committed position existed at that time if no
    other partition of the subscription has a position either, or if the metadata of those positions names the same
    partitions as there are now (members that start together do not see each other's commits). All other partitions were
    added since, or belong to a topic that began to match: they begin at their first record.
    """

    def __init__(
        self,
        consumer: Consumer,
        topics: Sequence[str],
        start: Start,
        out_of_range: Literal["stop", "earliest", "latest"],
        queries: Queries,
        label: str,
        patience: float = PATIENCE,
    ) -> None:
        """`patience`: seconds to wait for the brokers to answer which positions the group has committed."""
        self._consumer = consumer
        self._topics = topics
        self._start = start
        self._out_of_range = out_of_range
        self._queries = queries
        self._label = label
        self._patience = patience

    def of(self, places: Iterable[Place]) -> dict[Place, Beginning]:
        """Where these partitions begin. Waits for the brokers up to half a minute, or `patience`, then raises
        `KafkaException`.

        Raises `ConnectorError` for a topic that was created anew, unless `out_of_range` says where to go on.
        """
        committed = self._committed(places)
        ids = self._queries.ids_now({topic for topic, _ in committed})
        beginnings: dict[Place, Beginning] = {}
        anew: list[Place] = []
        for place, (offset, metadata) in committed.items():
            topic_id = ids.get(place[0], metadata.topic_id)
            if offset >= 0 and metadata.topic_id and topic_id != metadata.topic_id:
                self._refuse_anew(place, offset)
                anew.append(place)
            elif offset >= 0:
                beginnings[place] = Beginning(offset, offset, replace(metadata, topic_id=topic_id))
        for place, position in self._first_after_creation(anew).items():
            beginnings[place] = Beginning(position, -1, CommitMetadata(ids[place[0]]))
        new = [place for place in committed if place not in beginnings]
        beginning = self._beginning_of_the_group(new, committed) if new else ""
        at_start = self._queries.positions(new, self._start) if beginning else dict.fromkeys(new, OFFSET_BEGINNING)
        for place, position in at_start.items():
            beginnings[place] = Beginning(position, -1, CommitMetadata(ids.get(place[0], ""), beginning))
        return beginnings

    def put_back(self, position: Start) -> None:
        """Commit `position` as the group's in all partitions of the subscription.

        For a consumer that has not subscribed, and a group without members: else the brokers refuse it. Raises
        `KafkaException`.
        """
        places = self._subscribed()
        positions = self._queries.positions(places, position)
        ids = self._queries.ids_now({topic for topic, _ in places})
        beginning = self._digest(places)
        offsets = [
            TopicPartition(*place, offset, CommitMetadata(ids.get(place[0], ""), beginning).text())
            for place, offset in positions.items()
        ]
        if offsets:
            self._consumer.commit(offsets=offsets, asynchronous=False)

    def anew(self, progresses: Sequence[Progress]) -> dict[Place, int]:
        """Where partitions go on whose topics were deleted and created again, as `out_of_range` says.

        Raises `ConnectorError` if that is `stop`, and `KafkaException`.
        """
        for progress in progresses:
            self._refuse_anew(progress.place, progress.delivered)
        return self._first_after_creation([progress.place for progress in progresses])

    def _refuse_anew(self, place: Place, position: int) -> None:
        topic, partition = place
        if self._out_of_range != "stop":
            return
        raise ConnectorError(
            f'{self._label}: topic "{topic}" was deleted and created again: the group\'s position {position} in '
            f"partition {partition} is of the former topic, and records of this one would be passed over; set "
            f"out_of_range to earliest or latest to go on, or start with --from"
        )

    def _first_after_creation(self, places: Sequence[Place]) -> dict[Place, int]:
        if self._out_of_range == "latest":
            return self._queries.positions(places, "latest")
        return dict.fromkeys(places, OFFSET_BEGINNING)

    def _beginning_of_the_group(
        self, new: Sequence[Place], committed: Mapping[Place, tuple[int, CommitMetadata]]
    ) -> str:
        """The digest of the group's beginning, if these partitions were there then; empty if they came later."""
        if self._start == "earliest":
            return ""
        # Not every broker shows a new partition at once.
        places = sorted({*self._subscribed(), *committed})
        now = self._digest(places)
        others = self._committed(place for place in places if place not in committed)
        before = {metadata.beginning for offset, metadata in (*committed.values(), *others.values()) if offset >= 0}
        if not before or now in before:
            return now
        _log.info(
            "%s: %d partitions, such as %s[%d], were added since the group began: they begin at their first record",
            self._label,
            len(new),
            *new[0],
        )
        return ""

    def _committed(self, places: Iterable[Place]) -> dict[Place, tuple[int, CommitMetadata]]:
        """The committed position of the group in each partition (negative: none), and the metadata committed with
        it."""
        asked = [TopicPartition(*place) for place in places]
        if not asked:
            return {}

        def ask(limit: float) -> list[TopicPartition]:
            answers: list[TopicPartition] = self._consumer.committed(asked, limit)
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
            return answers

        return {
            (answer.topic, answer.partition): (answer.offset, CommitMetadata.of(answer.metadata))
            for answer in patiently(ask, self._patience)
        }

    def _subscribed(self) -> list[Place]:
        known = self._queries.topics()
        chosen = [name for name in known if reads(self._topics, name)]
        return [(name, number) for name in chosen for number in known[name]]

    def _digest(self, places: Iterable[Place]) -> str:
        text = repr((self._start, sorted(places)))
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
