"""`KafkaTopicReader`: reading a topic without being a member of any group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connectors.browser import AT_ONCE, Mark, TopicReader
from connectors.kafka.client.answers import PATIENCE, ConnectionErrors, answered, unanswered
from connectors.kafka.client.brokers import Brokers
from connectors.kafka.client.errors import error_of, explained
from connectors.kafka.client.properties import admin_properties, scrubber, source_properties
from connectors.kafka.client.queries import Queries
from connectors.kafka.config import KafkaSourceConfig
from connectors.kafka.consumer.block import block, by_place
from connectors.kafka.consumer.lanes import Lanes
from connectors.records import Records
from connectors.units import Position
from pipelines.errors import ConnectorError, nearest

Answer = TypeVar("Answer")

_SHOWN = 5


class KafkaTopicReader(TopicReader):
    """Assigns itself all partitions of the topic."""

    def __init__(self, brokers: Brokers, topic: str, client: Mapping[str, Any] | None = None, *, group: str) -> None:
        super().__init__(topic)
        config = KafkaSourceConfig(topics=(topic,), group=group, client=dict(client or {}), out_of_range="earliest")
        self._config = config.with_brokers(brokers)
        self._scrub = scrubber(self._config)
        self._lanes = Lanes("kafka")
        self._errors = ConnectionErrors()
        self._consumer: Consumer | None = None
        self._queries: Queries

    def __enter__(self) -> KafkaTopicReader:
        try:
            self._consumer = Consumer(source_properties(self._config, {"error_cb": self._errors}))
            self._queries = Queries(admin_properties(self._config))
        except KafkaException as error:
            raise explained(error_of(error), "Kafka", self._scrub) from error
        try:
            self.partitions = self.partitions_now()
        except BaseException:
            self._consumer.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def partitions_now(self) -> list[int]:
        consumer = self._open
        listed = self._asked(
            lambda: answered(consumer, self._errors, lambda patience: consumer.list_topics(timeout=patience))
        )
        topics = listed.topics
        if self.topic not in topics:
            raise ConnectorError(
                f'there is no topic "{self.topic}" on {self._config.brokers}'
                f"{nearest(self.topic, topics) or _offered(topics)}"
            )
        return sorted(topics[self.topic].partitions)

    def topic_id(self) -> str:
        return self._queries.ids_now([self.topic]).get(self.topic, "")

    def committed(self) -> dict[int, Mark]:
        committed = self._asked(lambda: self._open.committed(self._places(), PATIENCE))
        return {partition.partition: Mark(partition.offset, partition.metadata or "") for partition in committed}

    def commit(self, marks: Mapping[int, Mark]) -> None:
        offsets = [TopicPartition(self.topic, number, mark.position, mark.text) for number, mark in marks.items()]
        self._asked(lambda: self._open.commit(offsets=offsets, asynchronous=False))

    def starts(self, position: Position) -> dict[int, int]:
        places = [(self.topic, number) for number in self.partitions]
        offsets = self._asked(lambda: self._queries.positions(places, position))
        return {number: offset for (_, number), offset in offsets.items()}

    def begin(self, starts: Mapping[int, int]) -> None:
        for number, offset in starts.items():
            self._lanes.begin((self.topic, number), offset, -1)
        self._open.assign([TopicPartition(self.topic, number, offset) for number, offset in starts.items()])

    def poll(self, timeout: float, at_most: int = AT_ONCE) -> Records:
        consumed = self._open.consume(1, timeout)
        if consumed and at_most > 1:
            consumed += self._open.consume(at_most - 1, 0.0)
        messages = [message for message in consumed if self._is_record(message)]
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

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in self.partitions]

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except KafkaException as error:
            raise unanswered(self._config, error, self._errors) from error

    @property
    def _open(self) -> Consumer:
        if self._consumer is None:
            raise ConnectorError("the reader is not open")
        return self._consumer


def _offered(topics: Iterable[str]) -> str:
    names = sorted(name for name in topics if not name.startswith("__"))
    if not names:
        return "; there is none yet: create it, or send a record to it"
    more = "" if len(names) <= _SHOWN else f" and {len(names) - _SHOWN} more"
    return f"; there are {', '.join(names[:_SHOWN])}{more}"
