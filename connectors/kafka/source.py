"""`KafkaSource`: records of Kafka topics, as a member of a consumer group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import stamina
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from connectors.kafka.client.bridge import join, report
from connectors.kafka.client.deadlinecall import DeadlineCalls
from connectors.kafka.client.errors import NO_SUCH_TOPIC, REFUSED_LOGIN, error_of, explained, is_passing
from connectors.kafka.client.hints import with_hints
from connectors.kafka.client.internaltopics import whole
from connectors.kafka.client.member import Member
from connectors.kafka.client.properties import admin_properties, scrubber, source_properties
from connectors.kafka.client.queries import PATIENCE, Queries
from connectors.kafka.client.reachability import Reachability
from connectors.kafka.client.topics import check_topic
from connectors.kafka.consumer.beginnings import Beginning, Beginnings
from connectors.kafka.consumer.commitmetadata import CommitMetadata
from connectors.kafka.consumer.commits import Commits
from connectors.kafka.consumer.joining import Joining
from connectors.kafka.consumer.lag import Lag
from connectors.kafka.consumer.lanes import Lanes, Place, Progress
from connectors.kafka.consumer.passing import Passing
from connectors.kafka.consumer.reading import CompiledReading, PartitionError, PlainReading, Reading
from connectors.records import Lane, Records
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source, SourceDown, TransactionToken
from pipelines.errors import ConnectorError
from pipelines.hotpath import HotPathReport

if TYPE_CHECKING:
    from connectors.kafka.config import KafkaSourceConfig

_log = logging.getLogger(__name__)

_SLICE = 0.1
"""Seconds of one wait in the client library: the longest time until `wake` has an effect."""
_IDS_AFTER = 1.0
"""Seconds between two requests for the topics' ids, and the tenth part for each topic more than ten; 10 at most."""
_MOST_IDS_AFTER = 10.0
_COMMIT_WAIT = 10.0
_FIRST_COMMIT_WAIT = 30.0
_PENDING_WAIT = 180.0
_CLOSE_WAIT = 15.0
_SEEK_WAIT = 5.0
_FIRST_GUESS = 1024.0
_AT_ONCE = 65_536
"""Records of one call at most: the client allocates memory for all of them first, and refuses a million."""


class KafkaSource(Source):
    """Records of Kafka topics. Positions are offsets; a lane is one partition during one assignment.

    Acknowledged positions are committed for the group, without waiting unless asked; a failed commit is logged and
    tried again. Once all records of a partition are acknowledged, the position passes what is never delivered behind
    the last one, markers of transactions and records of aborted ones: else it would point to nothing when retention
    removes these, and tools would see a lag for ever.

    `poll` waits in slices of 0.1 s, which is how soon `wake` ends it. Between polls the client fetches ahead up to
    `queued.max.messages.kbytes` (32 MiB) and one fetch (`max_fetch`, 4 MiB on the wire), and stays a member of the
    group for `max.poll.interval.ms` (5 min), or as long as `standing_still` is called.

    A group that has committed nothing begins at `start`; if that is an offset (latest, a time), it is committed at
    once, so that a crash before the first acknowledgement loses nothing. Partitions that are added later begin at their
    first record. A topic that is deleted and created again is noticed by its id, about a second later (10 s with many
    topics), at the next assignment, or by the transaction that commits its positions. `out_of_range` decides where to
    go on, or to stop.

    Opened without `commits` it commits first positions only: a producer commits the others in transactions, and a plain
    commit beside one would override it. It waits up to 3 minutes for positions of transactions that are still open, its
    own or those of a former member.
    """

    replays = Replays.OFFSET

    def __init__(self, config: KafkaSourceConfig) -> None:
        self.name = config.label
        self._config = config
        self._scrub = scrubber(config)
        self._only_topic = config.topics[0] if len(config.topics) == 1 and config.topics[0][0] != "^" else None
        self._only_patterns = all(topic.startswith("^") for topic in config.topics)
        self._incremental = config.assignor in ("consumer", "cooperative-sticky")
        self._lanes = Lanes(self.name)
        self._events: list[Event] = []
        self._mean_size = _FIRST_GUESS
        self._deadline_calls = DeadlineCalls()
        self._settle: Settle | None = None
        self._failure: ConnectorError | None = None
        self._ask_at = 0.0
        self._joining = Joining(self.name, config.group or "", config.instance)
        self._woken = self._still = self._leaving = self._met = False
        self._commits_itself = True
        self._cluster: str | None = None
        self._hot_path: HotPathReport | None = None
        self._consumer: Consumer
        self._reading: Reading
        self._commits: Commits
        self._reach: Reachability
        self._queries: Queries
        self._lag: Lag
        self._passing: Passing
        self._beginnings: Beginnings
        self._open = False

    @property
    def hot_path(self) -> HotPathReport:
        """See `Source.hot_path`. Raises `HotPathError` if `native` is required and cannot be used."""
        return self._hot_path or report(self._config.hot_path)

    @property
    def cluster(self) -> str | None:
        """The id of the cluster, of a source that commits nothing itself; `None` until brokers have answered."""
        return self._cluster

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Join the group. Waits up to 5 s for brokers to report wrong topics or logins; absent brokers are an event.

        Raises `ConnectorError` for an unknown property or topic, and a login that is refused.
        """
        self._settle = settle
        self._commits_itself = commits
        callbacks: dict[str, Callable[..., None]] = {"error_cb": self._on_error, "on_commit": self._on_commit}
        try:
            self._consumer, reader, self._hot_path = join(
                Consumer,
                lambda extension: extension.KafkaReader(),
                source_properties(self._config, callbacks),
                self._config.hot_path,
                f"source {self.name}",
                self._scrub,
            )
            isolation = str(self._config.client.get("isolation.level", "read_committed"))
            self._queries = Queries(admin_properties(self._config), isolation)
        except (KafkaException, ValueError, TypeError) as error:
            text = self._scrub(str(error.args[0].str() if isinstance(error, KafkaException) else error))
            raise ConnectorError(f"source {self.name}: client: {with_hints(text)}") from None
        self._open = True
        self._reading = (
            PlainReading(self._consumer, self._only_topic, headers=self._config.headers)
            if reader is None
            else CompiledReading(self._consumer, reader, headers=self._config.headers)
        )
        self._commits = Commits(self._consumer, self._lanes, str(self._config.group), self._scrub)
        self._reach = Reachability(lambda seconds: self._consumer.list_topics(self._only_topic, timeout=seconds))
        self._lag = Lag(self._consumer, self._lanes, self._queries)
        self._passing = Passing(self._consumer, self._lanes)
        self._beginnings = Beginnings(
            self._consumer,
            self._config.topics,
            self._config.start,
            self._config.out_of_range,
            self._queries,
            f"source {self.name}",
            patience=PATIENCE if commits else _PENDING_WAIT,
        )
        try:
            self._check_topics()
            if self._met and not commits:
                self._cluster = self._queries.cluster()
            if self._config.reset is not None:
                self._beginnings.put_back(self._config.reset)
            self._consumer.subscribe(
                self._subscription(), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            self._joining.begin()
        except KafkaException as error:
            self.close()
            raise self._explained(error, f"source {self.name}") from error
        except ConnectorError:
            self.close()
            raise

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """See `Source.poll`. Rows are grouped by partition; headers and timestamps are read when asked for.

        Raises `ConnectorError` for a position that is out of range (unless `out_of_range` says where to go on),
        a topic that is gone, a login or access that is refused, and fatal errors of the client.
        """
        self._fill(max_records, max_bytes, time.monotonic() + timeout)
        self._look_after()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        records = self._take(max_records, max_bytes) if self._reading.held else Records.empty(self.name)
        if not self._reading.held:
            self._pass_over()
        return records

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """See `Source.acknowledge`. With `wait` raises `ConnectorError` without an answer of the brokers in 10 s."""
        moved = self._move(positions)
        if not self._commits_itself:
            for progress in moved:
                progress.committed = progress.acknowledged
        if not (self._open and self._commits_itself):
            return
        if not wait:
            self._commits.later(moved)
            return
        behind = [progress for progress in self._lanes if progress.committed < progress.acknowledged]
        try:
            self._deadline_calls.run(lambda: self._commits.now(behind, _COMMIT_WAIT), _COMMIT_WAIT + 1)
        except TimeoutError as error:
            raise ConnectorError(
                f"source {self.name}: the brokers do not answer, so the last positions may not be committed; "
                "records after the last commit will be delivered again",
                retriable=True,
            ) from error

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """See `Source.rewind`. Without `commits` it asks the brokers for the positions; if they do not answer, `poll`
        raises that error."""
        found = [progress for lane in set(lanes) if (progress := self._lanes.find(lane)) is not None]
        if not found:
            return
        if not self._commits_itself:
            self._rewind_to_committed([progress.place for progress in found])
            return
        self._lanes.next_epoch()
        for progress in found:
            self._reading.forget([progress.place])
            self._seek(progress.place, progress.acknowledged)
            self._begin(progress.place, progress.acknowledged, progress.committed, progress.metadata)

    def events(self) -> list[Event]:
        if not self._events:
            return []
        events, self._events = self._events, []
        return events

    def standing_still(self, still: bool) -> None:
        """Pause all partitions and take part in rebalances, or resume. Records that still come are held for `poll`."""
        if not self._open:
            return
        if still != self._still:
            self._still = still
            (self._consumer.pause if still else self._consumer.resume)(_partitions(self._lanes.places))
        if not still:
            return
        self._receive(1, 0.0)
        self._look_after()

    def wake(self) -> None:
        """See `Source.wake`; takes up to 0.1 s."""
        self._woken = True

    def transaction_token(self) -> TransactionToken:
        """See `Source.transaction_token`. Its `member` is a `Member`."""
        places = {progress.lane: (*progress.place, progress.metadata.text()) for progress in self._lanes}
        return TransactionToken(
            frozenset(places),
            Member(self._consumer.consumer_group_metadata(), self._cluster, places),
            {one.lane: one.passed for one in self._lanes if one.passed > one.acknowledged >= one.delivered},
        )

    def lag(self) -> Mapping[Place, int]:
        """Records behind the end, as of the last poll, at most half a second earlier; for partitions without records
        for 10 s, by an answer of the brokers that is at most 10 s old."""
        return self._lag.by_place if self._open else {}

    def close(self) -> None:
        """Leave the group (a static member does not leave, so that it can come back). Gives up waiting after 15 s."""
        if not self._open:
            return
        self._open = False
        self._leaving = True
        # First: the client would wait for records that were received and not taken.
        self._reading.close()
        with suppress(TimeoutError):
            self._deadline_calls.run(self._consumer.close, _CLOSE_WAIT)
        self._end(list(self._lanes.places))

    def _fill(self, max_records: int, max_bytes: int, deadline: float) -> None:
        """Receive until there are enough records, or the deadline has passed."""
        while True:
            held = self._reading.held
            lacking = max_records - held
            room = max_bytes - held * self._mean_size
            if lacking <= 0 or room <= 0 or self._failure is not None:
                return
            rest = deadline - time.monotonic()
            # As many as fit by their mean size: more would be held here, in addition to those that the client holds.
            wanted = min(lacking, int(room / self._mean_size) + 1, _AT_ONCE)
            self._receive(wanted, min(max(rest, 0.0), _SLICE))
            if rest <= _SLICE or self._woken:
                self._woken = False
                return

    def _receive(self, count: int, timeout: float) -> None:
        before = self._reading.held
        try:
            found = self._reading.receive(count, timeout)
        except KafkaException as exception:
            self._fail(self._explained(exception, f"source {self.name}"))
            return
        except ConnectorError as error:
            self._fail(error)
            return
        for one in found:
            self._note(one)
        if not found and self._reading.held == before:
            return
        self._met = True
        if self._reach.reason is not None and self._reach.answered():
            self._tell_reachability()

    def _take(self, max_records: int, max_bytes: int) -> Records:
        records = self._reading.take(self.name, max_records, max_bytes, self._lane_of)
        if len(records):
            self._mean_size = max(1.0, records.byte_count / len(records))
        repeated: list[tuple[int, int]] = []
        now = time.monotonic()
        for topic, partition, span in zip(records.topics, records.partitions, records.spans, strict=True):
            progress = self._lanes.places[topic, partition]
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
                self.name,
                stop - start,
                records.topic_of(start),
            )
        kept = np.flatnonzero(rows)
        return records.take(kept) if len(kept) else Records.empty(self.name)

    def _pass_over(self) -> None:
        """Acknowledge what lies behind the last record and is never delivered. A producer commits that itself."""
        passed = self._passing.look()
        if not (passed and self._commits_itself):
            return
        for progress in passed:
            progress.acknowledged = progress.delivered = progress.passed
        self._commits.later(passed)

    def _lane_of(self, place: Place, first: int) -> Lane | None:
        progress = self._lanes.places.get(place)
        if progress is None:
            return None
        if first < progress.delivered and self._config.out_of_range != "stop":
            # The topic was created again or truncated, and `out_of_range` says to go on: a new lane.
            _log.warning(
                "source %s: %s, partition %d goes on at offset %d instead of %d: the topic was deleted and created "
                "again, or its records are gone (out_of_range: %s)",
                self.name,
                *place,
                first,
                progress.delivered,
                self._config.out_of_range,
            )
            self._lanes.next_epoch()
            # These records may be of a new topic, so that the id of the former one would have them read again.
            progress = self._begin(place, first, -1, CommitMetadata())
            self._queries.ask_ids(topic for topic, _ in self._lanes.places)
        return progress.lane

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._joining.assigned()
        places = [(one.topic, one.partition) for one in partitions]
        assign = consumer.incremental_assign if self._incremental else consumer.assign
        try:
            found = self._beginnings.of(places)
        except KafkaException as exception:
            assign([])
            self._fail(self._explained(exception, f"source {self.name}: where to begin cannot be found out"))
            return
        except ConnectorError as error:
            assign([])
            self._fail(error)
            return
        self._met = True
        if not self._commits_itself and not self._commit_first(found):
            assign([])
            return
        self._reading.begin(places)
        assign([TopicPartition(*place, beginning.position) for place, beginning in found.items()])
        # The client remembers a pause over a revocation: a partition that was revoked while paused comes back paused.
        (consumer.pause if self._still else consumer.resume)(_partitions(places))
        self._lanes.next_epoch()
        begun = [self._begin_at(place, found[place]) for place in places]
        if self._commits_itself:
            self._commits.later(progress for progress in begun if progress.committed < 0)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = [place for one in partitions if (place := (one.topic, one.partition)) in self._lanes.places]
        try:
            if places and not self._leaving:
                self._hand_over(places)
        finally:
            self._end(places)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions and not self._leaving:
            _log.warning(
                "source %s: %d partitions were given to others without asking, as this member was silent too long; "
                "records that were in flight are delivered again",
                self.name,
                len(partitions),
            )
        self._end([(one.topic, one.partition) for one in partitions])

    def _hand_over(self, places: list[Place]) -> None:
        """Wait for records in flight and commit, in `revoke_timeout` altogether (longer if the coordinator hangs)."""
        poll_interval = float(str(self._config.client.get("max.poll.interval.ms", 300_000))) / 1000
        budget = min(0.2 * poll_interval, self._config.revoke_timeout)
        deadline = time.monotonic() + budget
        progresses = [self._lanes.places[place] for place in places]
        if self._settle is not None:
            self._move(self._settle([one.lane for one in progresses], deadline - 0.2 * budget))
        if not self._commits_itself:
            return
        behind = [one for one in progresses if one.committed < one.acknowledged]
        try:
            self._commits.now(behind, max(0.5, deadline - time.monotonic()))
        except ConnectorError as error:
            _log.warning("%s; records that were done are delivered again to the next owner", error)

    def _commit_first(self, found: Mapping[Place, Beginning]) -> bool:
        """Commit first positions (latest, a time) before any record is delivered: a transaction commits only positions
        after records. No commit of a transaction can interfere, as the brokers had none pending just now.
        """
        try:
            if self._cluster is None:
                self._cluster = self._queries.cluster()
            first = {place: one for place, one in found.items() if not one.is_committed and one.position >= 0}
            self._commits.first(
                [TopicPartition(*place, one.position, one.metadata.text()) for place, one in first.items()],
                _FIRST_COMMIT_WAIT,
            )
        except KafkaException as exception:
            self._fail(self._explained(exception, f"source {self.name}: the cluster is not known"))
            return False
        except ConnectorError as error:
            self._fail(error)
            return False
        return True

    def _rewind_to_committed(self, places: list[Place]) -> None:
        try:
            found = self._beginnings.of(places)
        except KafkaException as exception:
            self._fail(self._explained(exception, f"source {self.name}: where to go on cannot be found out"))
            self._end(places)
            return
        except ConnectorError as error:
            self._fail(error)
            self._end(places)
            return
        self._lanes.next_epoch()
        for place, beginning in found.items():
            self._reading.forget([place])
            self._seek(place, beginning.position)
            self._begin_at(place, beginning)

    def _move(self, positions: Mapping[Lane, int]) -> list[Progress]:
        moved = []
        for lane, position in positions.items():
            progress = self._lanes.find(lane)
            if progress is not None and position > progress.acknowledged:
                progress.acknowledged = position
                moved.append(progress)
        return moved

    def _begin_at(self, place: Place, beginning: Beginning) -> Progress:
        committed = beginning.position if beginning.is_committed else -1
        return self._begin(place, beginning.position, committed, beginning.metadata)

    def _begin(self, place: Place, position: int, committed: int, metadata: CommitMetadata) -> Progress:
        if (ended := self._lanes.end(place)) is not None:
            self._events.append(LaneEnded(ended))
        progress = self._lanes.begin(place, position, committed, metadata)
        progress.heard_at = time.monotonic()
        self._passing.begin(progress)
        self._events.append(LaneBegan(progress.lane, *place, max(position, -1)))
        return progress

    def _end(self, places: Iterable[Place]) -> None:
        gone = list(places)
        self._events += [LaneEnded(lane) for place in gone if (lane := self._lanes.end(place)) is not None]
        self._reading.end(gone)
        self._lag.drop(gone)

    def _seek(self, place: Place, position: int) -> None:
        # For some milliseconds after its assignment a partition cannot be moved.
        for attempt in stamina.retry_context(KafkaException, attempts=None, timeout=_SEEK_WAIT, wait_initial=0.02):
            with attempt:
                self._consumer.seek(TopicPartition(*place, position))

    def _look_after(self) -> None:
        self._commits.try_again()
        if self._reach.check():
            self._tell_reachability()
        self._joining.check(answering=not self._reach.suspected)
        self._lag.look()
        self._tell_open_transactions()
        if ids := self._queries.ids():
            self._check_ids(ids)
        if (now := time.monotonic()) >= self._ask_at:
            topics = {topic for topic, _ in self._lanes.places}
            self._ask_at = now + min(_IDS_AFTER * max(1.0, len(topics) / 10), _MOST_IDS_AFTER)
            self._queries.ask_ids(topics)

    def _tell_open_transactions(self) -> None:
        places = self._lag.open_transactions()
        waits = None
        if places:
            more = f" and {len(places) - 1} more partitions" if len(places) > 1 else ""
            waits = (
                f"{places[0][0]}[{places[0][1]}]{more}: a producer's transaction is open, its records cannot be read"
            )
        if waits is not None and self.waits is None:
            _log.info("source %s: %s", self.name, waits)
        self.waits = waits

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
        try:
            for progress in anew:
                self._beginnings.refuse_anew(progress.place, progress.delivered)
            found = self._beginnings.first_after_creation([progress.place for progress in anew])
        except KafkaException as exception:
            self._fail(self._explained(exception, f"source {self.name}: where to go on cannot be found out"))
            return
        except ConnectorError as error:
            self._fail(error)
            return
        self._lanes.next_epoch()
        for place, position in found.items():
            _log.warning(
                "source %s: %s, partition %d goes on at %s: the topic was deleted and created again; records "
                "of the new one that were read before this was noticed come again",
                self.name,
                *place,
                f"offset {position}" if position >= 0 else "its first record",
            )
            self._reading.forget([place])
            self._seek(place, position)
            self._begin(place, position, -1, CommitMetadata(ids[place[0]]))

    def _tell_reachability(self) -> None:
        reason = self._reach.reason
        self._events.append(SourceDown(self.name, reason is not None, reason or "the brokers answer"))

    def _check_topics(self) -> None:
        for topic in self._config.topics:
            if topic.startswith("^"):
                continue
            if check_topic(self._consumer, topic, f"source {self.name}", self._is_hopeless) is not None:
                self._met = True
                continue
            if self._failure is not None:
                raise self._failure
            self._reach.suspect(f"{self._config.brokers} does not answer")
            return

    def _subscription(self) -> list[str]:
        # By their own protocol the brokers look for the topics, else the client does.
        return [whole(topic) if self._config.assignor == "consumer" else topic for topic in self._config.topics]

    def _is_hopeless(self) -> bool:
        # Serves `error_cb`, which gets the reason for a missing answer.
        self._receive(1, 0.0)
        return self._failure is not None or self._reach.suspected

    def _note(self, found: PartitionError) -> None:
        error, topic, partition, offset = found
        if error.code() == KafkaError._PARTITION_EOF:
            self._lag.reached_end((topic or "", partition), offset)
            return
        where = f"source {self.name}: {topic or ', '.join(self._config.topics)}"
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._fail(
                ConnectorError(
                    f"{where}, partition {partition}: {self._scrub(error.str())}; the records from the "
                    f"group's position on are gone or never were: set out_of_range to earliest or latest to go on, or "
                    f"start with --from"
                )
            )
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            _log.warning("%s: %s", where, error.str())
        elif error.code() in NO_SUCH_TOPIC and self._only_patterns:
            _log.info("%s: %s", where, error.str())
        elif is_passing(error):
            _log.info("%s: %s", where, self._scrub(error.str()))
        else:
            self._fail(explained(error, where, self._scrub))

    def _on_error(self, error: KafkaError) -> None:
        text = self._scrub(error.str())
        if error.fatal() or (error.code() in REFUSED_LOGIN and not self._met):
            self._fail(explained(error, f"source {self.name}", self._scrub))
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._reach.suspect(f"{self._config.brokers}: {text}")
        else:
            # The client logs this error itself.
            self._reach.heard(text)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._commits.answered(error, partitions)

    def _fail(self, failure: ConnectorError) -> None:
        self._failure = self._failure or failure

    def _explained(self, exception: KafkaException, doing: str) -> ConnectorError:
        return explained(error_of(exception), doing, self._scrub)


def _partitions(places: Iterable[Place]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in places]
