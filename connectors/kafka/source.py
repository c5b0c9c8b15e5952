"""`KafkaSource`: records of Kafka topics, as a member of a consumer group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException

from connectors.daemonpool import DaemonPool
from connectors.kafka.client.bridge import join, report
from connectors.kafka.client.hints import with_hints
from connectors.kafka.client.properties import admin_properties, source_properties
from connectors.kafka.client.queries import Queries
from connectors.kafka.client.reachability import Reachability
from connectors.kafka.client.topics import check_topic
from connectors.kafka.config import KafkaSourceConfig
from connectors.kafka.consumer.caughtup import CaughtUp
from connectors.kafka.consumer.commits import Commits
from connectors.kafka.consumer.failures import Failures
from connectors.kafka.consumer.lag import Lag
from connectors.kafka.consumer.lanes import Lanes, Place
from connectors.kafka.consumer.membership import Membership
from connectors.kafka.consumer.partitions import Partitions
from connectors.kafka.consumer.reading import CompiledReading, PlainReading, Reading
from connectors.records import Lane, Records
from connectors.source import Event, Replays, Settle, Source, SourceDown, TransactionToken
from pipelines.errors import ConnectorError, DefinitionError
from pipelines.hotpath import HotPathReport, choose

_log = logging.getLogger(__name__)

_SLICE = 0.1
"""Timeout of a wait in the client library, in seconds: the longest time until `wake` has an effect."""
_LOOK_AFTER = 0.1
"""Seconds between two looks at what polling does not show: commits that failed, brokers that are away, ..."""
_COMMIT_WAIT = 10.0
_CLOSE_WAIT = 15.0
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
        if config.group is None:
            raise DefinitionError(f'source "{config.label}": group is missing; give the consumer group a name')
        self.name = config.label
        self._config = config
        self._only_topic = config.topics[0] if len(config.topics) == 1 and config.topics[0][0] != "^" else None
        self._lanes = Lanes(self.name, config.out_of_range)
        self._choice = choose()
        self._hot_path: HotPathReport | None = None
        self._mean_size = _FIRST_GUESS
        self._look_at = 0.0
        self._woken = False
        self._together = False
        self._open = False
        # Set by `open`.
        self._consumer: Consumer
        self._calls: DaemonPool
        """Runs calls that may be late, one after the other: the client must not be closed during a call."""
        self._reading: Reading
        self._failures: Failures
        self._commits: Commits
        self._lag: Lag
        self._caught_up: CaughtUp
        self._partitions: Partitions
        self._membership: Membership

    @property
    def hot_path(self) -> HotPathReport:
        """See `Source.hot_path`. Raises `HotPathError` if `native` is required and cannot be used."""
        return self._hot_path or report(self._choice)

    @property
    def cluster(self) -> str | None:
        """The id of the cluster, of a source that commits nothing itself; `None` until brokers have answered."""
        return self._membership.cluster if self._open else None

    def keep_together(self) -> None:
        """See `Source.keep_together`."""
        self._together = True

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Join the group. Waits up to 5 s for brokers to report wrong topics or logins; absent brokers are an event.

        Raises `ConnectorError` for an unknown property or topic, and a login that is refused.
        """
        failures = Failures(
            self._config,
            Reachability(lambda seconds: self._consumer.list_topics(self._only_topic, timeout=seconds)),
        )
        callbacks: dict[str, Callable[..., None]] = {
            "error_cb": failures.on_error,
            "on_commit": lambda error, partitions: self._commits.answered(error, partitions),
        }
        try:
            consumer, reader, self._hot_path = join(
                Consumer,
                lambda extension: extension.KafkaReader(),
                source_properties(self._config, callbacks),
                self._choice,
                failures.label,
                failures.scrub,
            )
            isolation = str(self._config.client.get("isolation.level", "read_committed"))
            queries = Queries(admin_properties(self._config), isolation)
        except (KafkaException, ValueError, TypeError) as error:
            text = failures.scrub(str(error.args[0].str() if isinstance(error, KafkaException) else error))
            raise ConnectorError(f"{failures.label}: client: {with_hints(text)}") from None
        self._open = True
        self._consumer, self._failures, lanes = consumer, failures, self._lanes
        self._calls = DaemonPool(1, f"kafka {self.name}")
        self._reading = (
            PlainReading(consumer, self._only_topic, headers=self._config.reads_headers)
            if reader is None
            else CompiledReading(consumer, reader, headers=self._config.reads_headers)
        )
        group = str(self._config.group)
        self._commits = Commits(consumer, lanes, group, failures.scrub, lambda: self.noted, by_producer=not commits)
        self._lag = Lag(consumer, lanes, queries)
        self._caught_up = CaughtUp(lanes, queries)
        incremental = self._config.assignor in ("consumer", "cooperative-sticky")
        self._partitions = Partitions(consumer, self._reading, lanes, self._lag, incremental=incremental)
        self._membership = Membership(
            self._config,
            consumer,
            lanes,
            self._partitions,
            self._commits,
            queries,
            failures,
            settle,
            together=self._together,
        )
        try:
            self._check_topics()
            self._membership.join()
            # Told before the first poll: a service whose brokers never answered has not been ready for a moment.
            if self._failures.reach.check():
                self._tell_reachability()
        except KafkaException as error:
            self.close()
            raise failures.explained(error) from error
        except ConnectorError:
            self.close()
            raise

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """See `Source.poll`. Rows are grouped by partition; headers and timestamps are read when asked for.

        Raises `ConnectorError` for a position that is out of range (unless `out_of_range` says where to go on),
        a topic that is gone, a login or access that is refused, and fatal errors of the client.
        """
        self._fill(max_records, max_bytes, time.monotonic() + timeout)
        if looks := time.monotonic() >= self._look_at:
            self._look_after()
        if self._failures.first is not None:
            self._failures.raise_first()
        records = self._take(max_records, max_bytes) if self._reading.held else Records.empty(self.name)
        if looks and not self._reading.held:
            self._pass_over()
        return records

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """See `Source.acknowledge`. With `wait` raises `ConnectorError` without an answer of the brokers in 10 s."""
        if not self._open:
            return
        if not wait or self._commits.by_producer:
            self._commits.acknowledge(positions)
            return
        self._commits.move(positions)
        try:
            self._calls.submit(self._commits.now, self._lanes, _COMMIT_WAIT).result(_COMMIT_WAIT + 1)
        except TimeoutError as error:
            raise ConnectorError(
                f"source {self.name}: the brokers do not answer, so the last positions may not be committed; "
                "records after the last commit will be delivered again",
                retriable=True,
            ) from error

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """See `Source.rewind`. Without `commits` it asks the brokers for the positions; if they do not answer, `poll`
        raises that error."""
        if self._open:
            self._membership.rewind(lanes)

    def events(self) -> list[Event]:
        if not self._lanes.events:
            return []
        events, self._lanes.events = self._lanes.events, []
        return events

    def standing_still(self, still: bool) -> None:
        """Pause all partitions and take part in rebalances, or resume. Records that still come are held for `poll`."""
        if not self._open:
            return
        self._partitions.stand_still(still)
        if not still:
            return
        self._receive(1, 0.0)
        self._look_after()

    def wake(self) -> None:
        """See `Source.wake`; takes up to 0.1 s."""
        self._woken = True

    def transaction_token(self) -> TransactionToken:
        """See `Source.transaction_token`. Its `member` is a `Member`."""
        return self._membership.token()

    def caught_up(self, emptied_at: float) -> float:
        """See `Source.caught_up`. By answers of the brokers, which are asked once a second: a client has fetched some
        of what waits, and a poll without records says nothing of the rest."""
        if self._membership.has_joined:
            self._caught_up.look(holds_any=self._reading.held > 0)
        return self._caught_up.moment

    def lag(self) -> Mapping[Place, int]:
        """Records behind the end, as of the last poll, at most half a second earlier; for partitions without records
        for 10 s, by an answer of the brokers that is at most 10 s old."""
        return self._lag.by_place if self._open else {}

    def close(self) -> None:
        """Leave the group (a static member does not leave, so that it can come back). Gives up waiting after 15 s."""
        if not self._open:
            return
        self._open = False
        self._membership.leave()
        # A rebalance that waits to be answered: answered while it closes, the client may hang for ever, and the
        # interpreter with it (librdkafka issue 4884).
        self._receive(1, 0.0)
        # First: the client would wait for records that were received and not taken.
        self._reading.close()
        with suppress(TimeoutError):
            self._calls.submit(self._consumer.close).result(_CLOSE_WAIT)
        self._calls.shutdown()
        self._partitions.end(self._lanes.places)

    def _fill(self, max_records: int, max_bytes: int, deadline: float) -> None:
        """Receive until there are enough records, or the deadline has passed."""
        while True:
            held = self._reading.held
            lacking = max_records - held
            room = max_bytes - held * self._mean_size
            if lacking <= 0 or room <= 0 or self._failures.first is not None:
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
            errors = self._reading.receive(count, timeout)
        except KafkaException as exception:
            self._failures.add(self._failures.explained(exception))
            return
        except ConnectorError as error:
            self._failures.add(error)
            return
        for partition_error in errors:
            if partition_error.error.code() == KafkaError._PARTITION_EOF:
                self._lag.reached_end((partition_error.topic or "", partition_error.partition), partition_error.offset)
            else:
                self._failures.note(partition_error)
        if not errors and self._reading.held == before:
            return
        self._failures.met = True
        reach = self._failures.reach
        if reach.reason is not None and reach.answered():
            self._tell_reachability()

    def _take(self, max_records: int, max_bytes: int) -> Records:
        records = self._reading.take(self.name, max_records, max_bytes, self._lanes.lane_of)
        if self._lanes.restarted:
            restarted, self._lanes.restarted = self._lanes.restarted, []
            self._membership.note_restarted(restarted)
        if len(records):
            self._mean_size = max(1.0, records.byte_count / len(records))
        return self._lanes.deliver(records)

    def _pass_over(self) -> None:
        """Acknowledge what lies behind the last record and is never delivered. A producer commits that itself."""
        passed = self._lag.passed()
        if not passed or self._commits.by_producer:
            return
        for progress in passed:
            progress.acknowledged = progress.delivered = progress.passed
        self._commits.later(passed)

    def _look_after(self) -> None:
        self._look_at = time.monotonic() + _LOOK_AFTER
        self._commits.try_again()
        if self._failures.reach.check():
            self._tell_reachability()
        self._membership.look_after()
        self._lag.look()
        waits = self._lag.waits()
        if waits is not None and self.waits is None:
            _log.info("source %s: %s", self.name, waits)
        self.waits = waits

    def _tell_reachability(self) -> None:
        reason = self._failures.reach.reason
        self._lanes.events.append(SourceDown(self.name, reason is not None, reason or "the brokers answer"))

    def _check_topics(self) -> None:
        for topic in self._config.topics:
            if topic.startswith("^"):
                continue
            if check_topic(self._consumer, topic, f"source {self.name}", self._is_hopeless) is not None:
                self._failures.met = True
                continue
            self._failures.raise_first()
            self._failures.reach.suspect(f"{self._config.brokers} does not answer")
            return

    def _is_hopeless(self) -> bool:
        # Serves `error_cb`, which gets the reason for a missing answer.
        self._receive(1, 0.0)
        return self._failures.first is not None or self._failures.reach.suspected
