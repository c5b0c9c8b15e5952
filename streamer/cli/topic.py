"""Reading a topic without being a member of any group, for looking and for replaying."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connectors.kafka.client.errors import error_of, explained
from connectors.kafka.client.properties import admin_properties, scrubber, source_properties
from connectors.kafka.client.queries import Queries
from connectors.kafka.config import KafkaSourceConfig, Position
from connectors.kafka.consumer.block import block, by_place
from connectors.kafka.consumer.lanes import Lanes
from connectors.records import Records
from pipelines.errors import ConnectorError, nearest
from streamer.cli.brokers import PATIENCE, Trouble, answered, unanswered

Answer = TypeVar("Answer")

AT_ONCE = 1000
"""Records of one block at most."""
_SHOWN = 5


class TopicReader:
    """Assigns itself all partitions of one topic. A context manager; used by one thread.

    `group` names what `committed` and `commit` work on; a reader that uses neither leaves no trace on the brokers.
    """

    def __init__(self, bootstrap: str, topic: str, client: Mapping[str, Any] | None = None, *, group: str) -> None:
        """Connects when it is entered. Raises `ConnectorError` for brokers that do not answer and unknown topics."""
        self._config = KafkaSourceConfig(
            bootstrap=bootstrap, topics=(topic,), group=group, client=dict(client or {}), out_of_range="earliest"
        )
        self.topic = topic
        self._scrub = scrubber(self._config)
        self._lanes = Lanes("kafka")
        self.ended: set[int] = set()
        """Partitions that have been read to their end at some time."""
        self.partitions: list[int] = []
        """Numbers of the topic's partitions."""
        self._trouble = Trouble()
        self._consumer: Consumer | None = None
        self._queries: Queries

    def __enter__(self) -> TopicReader:
        try:
            self._consumer = Consumer(source_properties(self._config, {"error_cb": self._trouble}))
            self._queries = Queries(admin_properties(self._config))
        except KafkaException as error:
            raise explained(error_of(error), "Kafka", self._scrub) from error
        try:
            self.partitions = self._found()
        except BaseException:
            self._consumer.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def at_end(self) -> bool:
        """Whether all partitions are among `ended`."""
        return len(self.ended) == len(self.partitions)

    def committed(self) -> list[TopicPartition]:
        """What the group has committed, for each partition; offsets below 0: nothing."""
        return self._asked(lambda: self._open.committed(self._places(), PATIENCE))

    def commit(self, offsets: list[TopicPartition]) -> None:
        """Commit these for the group. Raises `ConnectorError`."""
        self._asked(lambda: self._open.commit(offsets=offsets, asynchronous=False))

    def starts(self, position: Position) -> dict[int, int]:
        """The offset of earliest, latest or a time in each partition."""
        places = [(self.topic, number) for number in self.partitions]
        found = self._asked(lambda: self._queries.positions(places, position))
        return {number: offset for (_, number), offset in found.items()}

    def range(self) -> tuple[dict[int, int], dict[int, int]]:
        """The first offset that is there and the one after the last, in each partition, now."""
        return self.starts("earliest"), self.starts("latest")

    def begin(self, starts: Mapping[int, int]) -> None:
        """Read on from these offsets, by partition."""
        for number, offset in starts.items():
            self._lanes.begin((self.topic, number), offset, -1)
        self._open.assign([TopicPartition(self.topic, number, offset) for number, offset in starts.items()])

    def poll(self, timeout: float, at_most: int = AT_ONCE) -> Records:
        """What has come, waiting for a first record at most `timeout` seconds. Raises `ConnectorError`."""
        found = self._open.consume(1, timeout)
        if found and at_most > 1:
            found += self._open.consume(at_most - 1, 0.0)
        messages = [message for message in found if self._is_record(message)]
        if not messages:
            return Records.empty("kafka")
        lanes = {place: progress.lane for place, progress in self._lanes.places.items()}
        return block("kafka", by_place(messages, self.topic), lanes)

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            self.ended.add(int(message.partition() or 0))
            return False
        if error.retriable():
            return False
        raise explained(error, f'topic "{self.topic}"', self._scrub)

    def _found(self) -> list[int]:
        consumer = self._open
        listed = self._asked(
            lambda: answered(consumer, self._trouble, lambda patience: consumer.list_topics(timeout=patience))
        )
        topics = listed.topics
        if self.topic not in topics:
            raise ConnectorError(
                f'there is no topic "{self.topic}" on {self._config.bootstrap}'
                f"{nearest(self.topic, topics) or _offered(topics)}"
            )
        return sorted(topics[self.topic].partitions)

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in self.partitions]

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except KafkaException as error:
            raise unanswered(self._config, error, self._trouble) from error

    @property
    def _open(self) -> Consumer:
        if self._consumer is None:
            raise ConnectorError("the reader is not open")
        return self._consumer


def _offered(topics: Iterable[str]) -> str:
    own = sorted(name for name in topics if not name.startswith("__"))
    if not own:
        return "; there is none yet: create it, or send a record to it"
    more = "" if len(own) <= _SHOWN else f" and {len(own) - _SHOWN} more"
    return f"; there are {', '.join(own[:_SHOWN])}{more}"
