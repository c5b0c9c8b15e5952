"""`KafkaStateTopic`: a compacted topic of Kafka with the state of a service's steps."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic, ResourceType

from connectors.kafka.client.errors import error_of, explained
from connectors.kafka.client.member import Member
from connectors.kafka.client.properties import admin_properties, scrubber
from connectors.kafka.client.queries import PATIENCE, Queries, patiently
from connectors.kafka.client.userproperties import queue_room
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.kafka.consumer.groupmembers import members_of
from connectors.kafka.consumer.statereader import StateReader
from connectors.kafka.producer.topiclimits import BATCH_OVERHEAD, RECORD_OVERHEAD
from connectors.kafka.transactionalsink import KafkaTransactionalSink
from connectors.records import Lane, Messages
from connectors.sink import TransactionalSink, Voided
from connectors.source import TransactionToken
from connectors.statetopic import StateRecord, StateTopic
from pipelines.errors import ConnectorError, DefinitionError

_log = logging.getLogger(__name__)

_TIMEOUT: Final = 10.0
"""Seconds after which brokers abort a transaction that a killed process left open: others wait so long for its
partitions."""
_SLICE: Final = 0.5
"""Seconds of one call, between which the caller serves its sources."""
_AT_ONCE: Final = 10_000
"""Records of one call, so that few are refused, each with an error of its own, if the client's queue is full."""
_TELL: Final = 5.0
"""Seconds between two lines of the log while an outcome is not known."""
_LOOK: Final = 0.1
_SILENCE: Final = 60.0
"""Seconds for which somebody who looks into the topic waits for the next record: brokers that are there end a
transaction that a killed service left open long before."""
_SHOWN: Final = 3
"""Members of the group in an error."""
_NO_POSITIONS: Final = TransactionToken(frozenset(), Member(None, None, {}))

_CONFIG: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 << 20),
    "max.message.bytes": str(16 << 20),
}
"""Of a topic that is created. The segment that is being written is never compacted, and is read whole with a partition:
a tenth of the usual size is what the brokers' own topic of offsets has, too. What a step keeps of a record may take
more bytes than the record, and brokers take records of 1 MiB by default."""


class _Missing(ConnectorError):
    """There is no such topic."""


class KafkaStateTopic(StateTopic):
    """See `StateTopic`. Its transactions are of the source's group and `instance`, unless it shares those of a sink."""

    def __init__(self, topic: str, source: KafkaSourceConfig) -> None:
        """`source` names its topics, and has the brokers and login of all."""
        self.name = topic
        self.id = ""
        self.longest = 0
        self.partitions: list[str] = []
        self._source = source
        self._label = f'state: topic "{topic}"'
        self._scrub = scrubber(source)
        self._config = KafkaSinkConfig(topic=topic, name="state", max_message=queue_room({})).in_service("", [source])
        self._sink = KafkaTransactionalSink.first(self._config, source, _TIMEOUT, setting=None)
        self._queries = Queries(admin_properties(source), "read_uncommitted")
        self._reader = StateReader(topic, source)
        self._counts: dict[str, int] = {}
        """How many partitions each topic of the source has. The state's are numbered through them, by name: the order
        in which a service names its topics means nothing."""

    def share(self, first: TransactionalSink) -> None:
        """See `StateTopic.share`."""
        if not isinstance(first, KafkaTransactionalSink):
            raise DefinitionError(f'{self._label}: the sink "{first.name}" does not send in transactions of Kafka')
        self._sink = first.beside(self._config)

    def open(self) -> None:
        """See `StateTopic.open`."""
        self._connect(creates=True)
        self._sink.open()

    def look(self) -> None:
        """See `StateTopic.look`."""
        self._connect(creates=False)

    def checked(self) -> str:
        """See `StateTopic.checked`."""
        try:
            self._connect(creates=False)
        except _Missing:
            return f"{self.name} is created at the first start"
        else:
            return f"{self.name} has a partition for each of the source's, {len(self.partitions)}"
        finally:
            self.close()

    def _connect(self, *, creates: bool) -> None:
        try:
            self._counts = self._agreed_counts(creates=creates)
            self._check_settings()
            self.id = self._queries.ids_now([self.name]).get(self.name, self.name)
        except KafkaException as error:
            raise explained(error_of(error), self._label, self._scrub) from error
        self.partitions = [f"{topic}-{at}" for topic in sorted(self._counts) for at in range(self._counts[topic])]
        self._reader.open()

    def close(self) -> None:
        """See `StateTopic.close`."""
        self._sink.close()
        self._reader.close()

    def number(self, partition: str) -> int:
        """See `StateTopic.number`."""
        topic, _, number = partition.rpartition("-")
        if int(number) >= self._counts.get(topic, 0):
            raise self._other_count(sum(self._counts.values()), {**self._counts, topic: int(number) + 1})
        return sum(count for name, count in self._counts.items() if name < topic) + int(number)

    def read(self, partition: int, tell: Callable[[], None]) -> dict[bytes, bytes]:
        """See `StateTopic.read`."""
        now = self._queries.ids_now([self.name]).get(self.name, self.id)
        if now != self.id:
            raise DefinitionError(
                f"{self._label} was deleted and created again, and the state with it; start the service once with "
                "--from (earliest, latest or a time), from where it begins anew"
            )
        while True:
            try:
                end = self._end(partition)
                break
            except ConnectorError as error:
                if not error.retriable:
                    raise
                _log.warning("%s: partition %d cannot be read yet: %s", self._label, partition, error)
            tell()
        return self._reader.read(partition, end, tell)

    def each(self, partition: int) -> Iterator[tuple[bytes, bytes | None]]:
        """See `StateTopic.each`."""
        heard = time.monotonic()

        def tell() -> None:
            if time.monotonic() - heard > _SILENCE:
                raise ConnectorError(
                    f"{self._label}: nothing came for {_SILENCE:g} s, and there is more in partition {partition}: the "
                    "brokers do not answer, or a transaction is open in it; try again"
                )

        for record in self._reader.each(partition, self._end(partition), tell):
            yield record
            heard = time.monotonic()

    def write(
        self,
        records: Sequence[StateRecord],
        positions: Mapping[Lane, int],
        token: TransactionToken,
        wait: Callable[[], None],
    ) -> None:
        """See `StateTopic.write`."""
        try:
            self._until_known(self._sink.begin, wait)
            self._until_known(self.sending(records), wait)
            self._until_known(partial(self._sink.commit, positions, token), wait)
        except Voided as error:
            self._until_known(self._sink.abort, wait)
            raise ConnectorError(str(error), retriable=True) from error
        self.forget()

    def sending(self, records: Sequence[StateRecord]) -> Callable[[float], None]:
        """See `StateTopic.sending`."""
        blocks = deque(_block(records[first : first + _AT_ONCE]) for first in range(0, len(records), _AT_ONCE))

        def send(deadline: float) -> None:
            while blocks:
                refused = self._sink.send(blocks[0], deadline)
                if refused:
                    blocks[0] = blocks[0].take(np.array(sorted(refused), np.int64))
                    raise next(iter(refused.values()))
                blocks.popleft()

        return send

    def forget(self) -> None:
        """See `StateTopic.forget`. Nobody asks the sink what is confirmed, until which it keeps all that was sent."""
        self._sink.forget()

    def check_unused(self) -> None:
        """See `StateTopic.check_unused`: while its group has members."""
        if members := members_of(self._source, self._label):
            raise ConnectorError(
                f"{self._label} is in use by the group {self._source.group}: {', '.join(members[:_SHOWN])}"
                f"{' and more' if len(members) > _SHOWN else ''}. Stop the service first; a process that was killed "
                "leaves the group once its session is over"
            )

    def clear(self, partition: int, keys: Sequence[bytes]) -> None:
        """See `StateTopic.clear`. A member that comes while the group is looked at reads its state only once this
        transaction has ended, as its records are in the topic by then."""
        deadline = time.monotonic() + PATIENCE

        def wait() -> None:
            if time.monotonic() > deadline:
                raise ConnectorError(f"{self._label}: the brokers do not answer; see what is left, and try again")

        self._sink.open()
        try:
            self._until_known(self._sink.begin, wait)
            self._until_known(self.sending([StateRecord(partition, key, None) for key in keys]), wait)
            if lost := self._sink.barrier(deadline):
                raise next(iter(lost.values()))
            self.check_unused()
            self._until_known(partial(self._sink.commit, {}, _NO_POSITIONS), wait)
            self._sink.forget()
        except ConnectorError:
            with suppress(ConnectorError):
                self._sink.abort(time.monotonic() + _SLICE)
            raise
        finally:
            self._sink.close()

    def _until_known(self, call: Callable[[float], None], wait: Callable[[], None]) -> None:
        """Make this call, with its deadline, again until its outcome is known."""
        tell_at = time.monotonic() + _TELL
        while True:
            try:
                call(time.monotonic() + _SLICE)
                return
            except ConnectorError as error:
                if isinstance(error, Voided) or not error.retriable:
                    raise
                if time.monotonic() >= tell_at:
                    tell_at = time.monotonic() + _TELL
                    _log.warning("%s: a transaction waits: %s", self._label, error)
                wait()

    def _end(self, partition: int) -> int:
        try:
            # Also what transactions have written whose ends are on their way yet.
            return self._queries.positions([(self.name, partition)], "latest")[self.name, partition]
        except KafkaException as error:
            raise explained(error_of(error), self._label, self._scrub) from error

    def _agreed_counts(self, *, creates: bool) -> dict[str, int]:
        """How many partitions each topic of the source has; ours are as many. With `creates`, the topic is
        created if it does not exist."""
        deadline = time.monotonic() + PATIENCE
        created = False
        while True:
            known = self._queries.topics()
            if missing := [topic for topic in self._source.topics if topic not in known]:
                raise ConnectorError(f'{self._label}: the topic "{missing[0]}" of its source does not exist; create it')
            counts = {topic: len(known[topic]) for topic in self._source.topics}
            if self.name in known:
                break
            if not creates:
                raise _Missing(f"{self._label} does not exist: nothing was saved in it yet")
            if not created:
                self._create(sum(counts.values()))
                created = True
            if time.monotonic() > deadline:
                raise ConnectorError(f"{self._label}: it was created, and brokers do not show it; start again")
            time.sleep(_LOOK)
        if len(known[self.name]) != sum(counts.values()):
            raise self._other_count(len(known[self.name]), counts)
        return counts

    def _other_count(self, ours: int, theirs: Mapping[str, int]) -> DefinitionError:
        counts = ", ".join(f"{topic}: {count}" for topic, count in theirs.items())
        return DefinitionError(
            f"{self._label} has {ours} partitions, and what its source reads has {sum(theirs.values())} ({counts}), "
            "each of which needs one of its own: topics or partitions were added since, or left out. Name another "
            "topic, which is created with the right number, and start the service once with --from (earliest, latest "
            "or a time), from where its state begins anew"
        )

    def _create(self, partitions: int) -> None:
        admin = AdminClient(admin_properties(self._source))
        topic = NewTopic(self.name, partitions, replication_factor=-1, config=_CONFIG)
        try:
            admin.create_topics([topic], request_timeout=PATIENCE)[self.name].result()
        except KafkaException as error:
            # Another process of the group was quicker.
            if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _check_settings(self) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self.name)

        def ask(limit: float) -> dict[str, ConfigEntry]:
            # A client that once saw no controller, as while brokers roll, waits for one and does not ask again.
            admin = AdminClient(admin_properties(self._source))
            entries: dict[str, ConfigEntry] = admin.describe_configs([resource], request_timeout=limit)[
                resource
            ].result()
            return entries

        settings = patiently(ask)
        policy = settings["cleanup.policy"].value
        if policy != "compact":
            raise DefinitionError(
                f"{self._label} has the cleanup.policy {policy}, which deletes state that has not changed for long; "
                "set it to compact"
            )
        # The sink has no limit of its own but the client's queue.
        limit = int(str(settings["max.message.bytes"].value)) - BATCH_OVERHEAD
        self.longest = min(limit, self._sink.longest) - RECORD_OVERHEAD


def _block(records: Sequence[StateRecord]) -> Messages:
    return Messages(
        np.arange(len(records)),
        [record.value for record in records],
        [record.key for record in records],
        partitions=np.array([record.partition for record in records], np.int64),
    )
