"""`Membership`: a Kafka source as a member of its consumer group: which partitions it has, and where they are read."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from connectors.kafka.client.internaltopics import whole
from connectors.kafka.client.member import Member
from connectors.kafka.client.queries import PATIENCE, Queries
from connectors.kafka.config import KafkaSourceConfig
from connectors.kafka.consumer.beginnings import Beginning, Beginnings
from connectors.kafka.consumer.commits import Commits
from connectors.kafka.consumer.failures import Failures
from connectors.kafka.consumer.lanes import CommitMetadata, Lanes, Place, Progress
from connectors.kafka.consumer.partitions import Partitions
from connectors.records import Lane
from connectors.source import Settle, TransactionToken
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

_JOINED_AFTER: Final = 5.0
"""Seconds without an assignment before the log line. An empty group assigns after 3 s
(`group.initial.rebalance.delay.ms` of the brokers)."""
_IDS_AFTER = 1.0
"""Seconds between two requests for the topics' ids, and the tenth part for each topic more than ten; 10 at most."""
_MOST_IDS_AFTER = 10.0
_FIRST_COMMIT_WAIT = 30.0
_PENDING_WAIT = 180.0


class State(Enum):
    """The state of a member: it joins, is a member once partitions (or none) are assigned, and leaves."""

    JOINING = auto()
    JOINED = auto()
    LEAVING = auto()


class Membership:
    """Joins the group, serves its rebalances, and moves partitions: back by a rewind, anew if their topic is.

    Errors end the source, by `Failures`; partitions that cannot be begun for an error are not read.
    """

    def __init__(
        self,
        config: KafkaSourceConfig,
        consumer: Consumer,
        lanes: Lanes,
        partitions: Partitions,
        commits: Commits,
        queries: Queries,
        failures: Failures,
        settle: Settle | None,
        *,
        together: bool = False,
    ) -> None:
        """`together`: partitions of the same number have to be assigned together, of all topics."""
        self.cluster: str | None = None
        """The id of the cluster, if a producer commits; `None` until brokers have answered."""
        self._config = config
        self._consumer = consumer
        self._lanes = lanes
        self._partitions = partitions
        self._commits = commits
        self._queries = queries
        self._failures = failures
        self._settle = settle
        self._together = together
        self._beginnings = Beginnings(
            consumer,
            config.topics,
            config.start,
            config.out_of_range,
            queries,
            failures.label,
            patience=_PENDING_WAIT if commits.by_producer else PATIENCE,
        )
        self._state = State.JOINING
        self._say_at = self._ask_at = 0.0

    def join(self) -> None:
        """Ask to become a member, after `reset` if the configuration has it. Raises `KafkaException`."""
        if self._failures.met and self._commits.by_producer:
            self.cluster = self._queries.cluster()
        if self._config.reset is not None:
            self._beginnings.put_back(self._config.reset)
        by_brokers = self._config.assignor == "consumer"
        self._consumer.subscribe(
            # By their own protocol the brokers look for the topics, else the client does.
            [whole(topic) if by_brokers else topic for topic in self._config.topics],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        self._say_at = time.monotonic() + _JOINED_AFTER

    def leave(self) -> None:
        """The consumer is about to be closed: no records in flight are waited for."""
        self._state = State.LEAVING

    def look_after(self) -> None:
        """Log that the group keeps it waiting, and look for topics that were deleted and created again."""
        now = time.monotonic()
        if self._state is State.JOINING and now >= self._say_at and not self._failures.reach.suspected:
            self._say_at = float("inf")
            self._log_waiting()
        if ids := self._queries.ids():
            self._check_ids(ids)
        if now >= self._ask_at:
            topics = self._topics()
            self._ask_at = now + min(_IDS_AFTER * max(1.0, len(topics) / 10), _MOST_IDS_AFTER)
            self._queries.ask_ids(topics)

    def note_restarted(self, progresses: Iterable[Progress]) -> None:
        """These lanes began because records went back: answers about ids under way may be about former topics."""
        self._partitions.note(progresses)
        self._queries.ask_ids(self._topics())

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """See `Source.rewind`."""
        progresses = [progress for lane in set(lanes) if (progress := self._lanes.find(lane)) is not None]
        if not progresses:
            return
        if not self._commits.by_producer:
            self._partitions.move(
                {
                    progress.place: Beginning(progress.acknowledged, progress.committed, progress.metadata)
                    for progress in progresses
                }
            )
            return
        places = [progress.place for progress in progresses]
        beginnings = self._failures.attempt(lambda: self._beginnings.of(places), "where to go on cannot be found out")
        if beginnings is None:
            self._partitions.end(places)
        else:
            self._partitions.move(beginnings)

    @property
    def has_joined(self) -> bool:
        """Whether the group has assigned partitions to it, or none, as others have all."""
        return self._state is not State.JOINING

    def token(self) -> TransactionToken:
        """See `Source.transaction_token`. Its `member` is a `Member`."""
        # Asked for at each poll: the metadata become text only with the positions that are committed.
        places = {progress.lane: (*progress.place, progress.metadata) for progress in self._lanes}
        return TransactionToken(
            frozenset(places),
            Member(self._consumer.consumer_group_metadata(), self.cluster, places, self._commits.noted()),
            {
                progress.lane: progress.passed
                for progress in self._lanes
                if progress.passed > progress.acknowledged >= progress.delivered
            },
        )

    def _topics(self) -> set[str]:
        return {topic for topic, _ in self._lanes.places}

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._state is State.LEAVING:
            self._partitions.refuse()
            return
        if self._state is State.JOINING:
            self._state = State.JOINED
        places = [(partition.topic, partition.partition) for partition in partitions]
        if self._together and (why := self._apart(places)) is not None:
            self._failures.add(ConnectorError(f"{self._failures.label}: {why}"))
            self._partitions.refuse()
            return
        beginnings = self._failures.attempt(lambda: self._beginnings.of(places), "where to begin cannot be found out")
        if beginnings is None:
            self._partitions.refuse()
            return
        self._failures.met = True
        if self._commits.by_producer and not self._commit_first(beginnings):
            self._partitions.refuse()
            return
        begun = self._partitions.begin({place: beginnings[place] for place in places})
        if not self._commits.by_producer:
            self._commits.later([progress for progress in begun if progress.committed < 0])

    def _apart(self, places: list[Place]) -> str | None:
        """Why the partitions that were assigned are not those of the same numbers of all topics; `None` if they are."""
        if not places:
            return None
        numbers = {topic: set[int]() for topic in self._config.topics if not topic.startswith("^")}
        for topic, number in places:
            numbers.setdefault(topic, set()).add(number)
        if all(given == {number for _, number in places} for given in numbers.values()):
            return None
        known = self._failures.attempt(self._queries.topics, "the topics' partitions are not known") or {}
        counts = {topic: len(known.get(topic, ())) for topic in numbers}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{topic} has {count}" for topic, count in sorted(counts.items()))
            return (
                f"records of its topics are joined by partition, and these have different numbers of them: {said}. "
                "Give them as many each, and write the records by the same key"
            )
        said = ", ".join(f"{topic}: {sorted(given)}" for topic, given in sorted(numbers.items()))
        return (
            f"records of its topics are joined by partition, and the group has assigned different ones: {said}. All "
            "members of the group have to read the same topics, with assignor: range"
        )

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = [
            place for partition in partitions if (place := (partition.topic, partition.partition)) in self._lanes.places
        ]
        try:
            if places and self._state is not State.LEAVING:
                self._hand_over(places)
        finally:
            self._partitions.end(places)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions and self._state is not State.LEAVING:
            _log.warning(
                "%s: %d partitions were given to others without asking, as this member was silent too long; "
                "records that were in flight are delivered again",
                self._failures.label,
                len(partitions),
            )
        self._partitions.end([(partition.topic, partition.partition) for partition in partitions])

    def _hand_over(self, places: list[Place]) -> None:
        """Wait for records in flight and commit, in `revoke_timeout` altogether (longer if the coordinator hangs)."""
        poll_interval = float(str(self._config.client.get("max.poll.interval.ms", 300_000))) / 1000
        budget = min(0.2 * poll_interval, self._config.revoke_timeout)
        deadline = time.monotonic() + budget
        progresses = [self._lanes.places[place] for place in places]
        if self._settle is not None:
            self._commits.move(self._settle([progress.lane for progress in progresses], deadline - 0.2 * budget))
        if self._commits.by_producer:
            return
        try:
            self._commits.now(progresses, max(0.5, deadline - time.monotonic()))
        except ConnectorError as error:
            _log.warning("%s; records that were done are delivered again to the next owner", error)

    def _commit_first(self, beginnings: Mapping[Place, Beginning]) -> bool:
        """Commit first positions (latest, a time) before any record is delivered: a transaction commits only positions
        after records. No commit of a transaction can interfere, as the brokers had none pending just now.
        """
        self.cluster = self.cluster or self._failures.attempt(self._queries.cluster, "the cluster is not known")
        if self.cluster is None:
            return False
        offsets = [
            TopicPartition(*place, beginning.position, beginning.metadata.text())
            for place, beginning in beginnings.items()
            if beginning.committed < 0 <= beginning.position
        ]
        return self._failures.attempt(lambda: self._commits.first(offsets, _FIRST_COMMIT_WAIT), "") is not None

    def _check_ids(self, ids: Mapping[str, str]) -> None:
        """Find topics that were deleted and created again while they were read, and begin new lanes for them."""
        anew: list[Progress] = []
        for progress in self._lanes:
            now, before = ids.get(progress.place[0], ""), progress.metadata.topic_id
            if not before:
                progress.metadata = replace(progress.metadata, topic_id=now)
            elif now and now != before:
                anew.append(progress)
        if not anew:
            return
        positions = self._failures.attempt(lambda: self._beginnings.anew(anew), "where to go on cannot be found out")
        if positions is None:
            return
        for place, position in positions.items():
            _log.warning(
                "%s: %s, partition %d goes on at %s: the topic was deleted and created again; records "
                "of the new one that were read before this was noticed come again",
                self._failures.label,
                *place,
                f"offset {position}" if position >= 0 else "its first record",
            )
        self._partitions.move(
            {place: Beginning(position, -1, CommitMetadata(ids[place[0]])) for place, position in positions.items()}
        )

    def _log_waiting(self) -> None:
        static = self._config.instance is not None
        hint = "" if static else "; with an `instance` of its own a process takes its place at once"
        _log.warning(
            "%s: the group %s has not assigned partitions for %d s. It probably waits for a member that was "
            "killed and could not leave the group, until its session.timeout.ms is over (45 s by default)%s",
            self._failures.label,
            self._config.group or "",
            _JOINED_AFTER,
            hint,
        )
