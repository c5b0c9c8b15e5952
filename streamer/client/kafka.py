"""Requests over Kafka: to a topic that a service reads, and answers from a reply topic."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from pydantic import ValidationError

from connectors.kafka.client.answers import ConnectionErrors, answered, unanswered
from connectors.kafka.client.properties import (
    admin_properties,
    require_client,
    scrubber,
    sink_properties,
    source_properties,
)
from connectors.kafka.client.userproperties import is_connection
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.message import Message
from connectors.records import Header
from pipelines.definitions.document import Document
from pipelines.definitions.validation import definition_error
from pipelines.errors import ConnectorError, DefinitionError, nearest
from streamer.client.errors import RequestError
from streamer.client.topictransport import TURN, TopicTransport

REPLY_TO: Final = "reply-to"
"""The header with the topic of the answer."""
CORRELATION: Final = "correlation-id"
"""The header with the id of the call, which the answer repeats."""
_AT_ONCE: Final = 500
_KEPT: Final = "3600000"
"""Milliseconds for which a reply topic that a client makes keeps answers: nobody reads them later."""
_PATIENCE: Final = 5.0
_SHORT: Final = 1.0
_LOOKS: Final = 0.1
_BETWEEN_COUNTS: Final = 10.0
"""Seconds between two looks for new partitions, as nothing is received meanwhile."""

T = TypeVar("T")


class KafkaTransport(TopicTransport):
    """A producer of requests, and a consumer of all partitions of the reply topic, assigned from their ends.

    The consumer is in no group, so that each client receives all answers and takes its own.
    """

    def __init__(
        self,
        url: str,
        *,
        codec: str | Mapping[str, Any] | None,
        reply_to: str | None,
        options: Mapping[str, Any] | None,
        pending: int,
        timeout: float,
    ) -> None:
        """Arguments are those of `streamer.Client`. Raises `DefinitionError`."""
        brokers, topic = _split(url)
        super().__init__(f"kafka://{brokers}", topic, codec, pending)
        self._replies = reply_to or f"{topic}.replies"
        self._sink, self._source = _configs(brokers, topic, self._replies, dict(options or {}))
        self._timeout = timeout
        self._scrub = scrubber(self._sink)
        self._errors = ConnectionErrors()
        self._next_count = 0.0
        self._producer: Any = None
        self._consumer: Any = None

    def _connect(self, deadline: float) -> None:
        require_client()
        from confluent_kafka import Consumer, KafkaException, Producer

        self._errors = ConnectionErrors()
        try:
            self._producer = Producer(self._of_producer())
            self._consumer = Consumer(self._of_consumer())
        except KafkaException as error:
            raise self._explained(error) from error
        topics = self._listed()
        if self._topic not in topics:
            raise RequestError(
                f'there is no topic "{self._topic}" on {self._address}{nearest(self._topic, topics)}; create it, or '
                "start the service that reads it"
            )
        if self._replies not in topics:
            self._make_replies()
        self._begin_at_the_end(deadline)

    def _disconnect(self) -> None:
        producer, consumer, self._producer, self._consumer = self._producer, self._consumer, None, None
        if producer is not None:
            # Requests that were not sent yet belong to calls that have failed.
            producer.purge()
            producer.poll(0)
        if consumer is not None:
            consumer.close()

    def _send(self, number: bytes, payload: bytes, headers: Sequence[Header], deadline: float) -> None:
        from confluent_kafka import KafkaException

        producer = self._producer
        if producer is None:
            raise RequestError("the client was closed")
        try:
            producer.produce(
                self._topic,
                payload,
                headers=[(REPLY_TO, self._replies.encode()), (CORRELATION, number), *headers],
                on_delivery=partial(self._delivered, number),
            )
        except BufferError:
            raise RequestError(
                "more requests wait to be sent than the client's queue holds; lower pending, or send smaller requests"
            ) from None
        except KafkaException as error:
            raise RequestError(str(self._explained(error))) from error

    def _turn(self) -> None:
        from confluent_kafka import KafkaException

        try:
            # The first answer does not wait for others, which may be none.
            if first := self._consumer.consume(1, TURN):
                self._take(first)
                self._take(self._consumer.consume(_AT_ONCE, 0))
            self._producer.poll(0)
        except KafkaException as error:
            raise self._explained(error) from error

    def _take(self, messages: Sequence[Any]) -> None:
        answers = []
        for message in messages:
            if message.error() is None:
                answers.append(_answer(message))
            else:
                self._check(message.error())
        if answers:
            self._received(answers)

    def _after_timeouts(self) -> None:
        """Answers may be in partitions that the reply topic has got meanwhile."""
        from confluent_kafka import KafkaException, TopicPartition

        if (now := time.monotonic()) < self._next_count:
            return
        self._next_count = now + _BETWEEN_COUNTS
        try:
            listed = self._consumer.list_topics(self._replies, timeout=_SHORT).topics[self._replies].partitions
            new = set(listed).difference(place.partition for place in self._consumer.assignment())
            if new:
                self._consumer.incremental_assign([TopicPartition(self._replies, number, 0) for number in new])
        except KafkaException:
            # Brokers that do not answer are the reason by themselves; it is looked again after the next timeout.
            return

    def _wake(self) -> None:
        """Nothing: a turn is short."""

    def _check(self, error: Any) -> None:
        from connectors.kafka.client.errors import explained, is_passing

        if not is_passing(error):
            raise explained(error, f'topic "{self._replies}"', self._scrub)

    def _delivered(self, number: bytes, error: Any, message: Any) -> None:
        """The producer's callback. Called for messages that were lost."""
        from connectors.kafka.client.errors import explained

        if error is not None:
            failure = explained(error, f'the request could not be sent to the topic "{self._topic}"', self._scrub)
            self._calls.fail(number, RequestError(str(failure)))

    def _of_producer(self) -> dict[str, Any]:
        return {
            **sink_properties(self._sink, {"error_cb": self._errors}),
            # A call waits for its answer: nothing is gained by waiting for others.
            "linger.ms": 0,
            "message.timeout.ms": max(1, round(self._timeout * 1000)),
        }

    def _of_consumer(self) -> dict[str, Any]:
        return {
            **source_properties(self._source, {"error_cb": self._errors}),
            "enable.partition.eof": False,
            # Where answers have been deleted that nobody waited for.
            "auto.offset.reset": "latest",
        }

    def _listed(self) -> dict[str, Any]:
        from confluent_kafka import KafkaException

        consumer = self._consumer
        try:
            listed = answered(consumer, self._errors, lambda patience: consumer.list_topics(timeout=patience))
        except KafkaException as error:
            raise unanswered(self._sink, error, self._errors) from error
        topics: dict[str, Any] = listed.topics
        return topics

    def _make_replies(self) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient(admin_properties(self._sink))
        topic = NewTopic(self._replies, num_partitions=1, config={"retention.ms": _KEPT})
        try:
            admin.create_topics([topic], request_timeout=_PATIENCE)[self._replies].result()
        except KafkaException as error:
            # Another client may have made it meanwhile.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise RequestError(
                    f'the topic for answers, "{self._replies}", does not exist and cannot be made: '
                    f"{self._explained(error)}; create it, or name another by reply_to"
                ) from error

    def _begin_at_the_end(self, deadline: float) -> None:
        """Read from the ends of all partitions on.

        Their offsets are looked up now: "the end" is looked up by the client later, when the first answer may be there.
        """
        from confluent_kafka import KafkaException, TopicPartition

        while True:
            try:
                partitions = (
                    self._consumer.list_topics(self._replies, timeout=_PATIENCE).topics[self._replies].partitions
                )
                places = [TopicPartition(self._replies, number) for number in partitions]
                for place in places:
                    place.offset = self._consumer.get_watermark_offsets(place, timeout=_PATIENCE, cached=False)[1]
            except KafkaException as error:
                # The partitions of a new topic are led after a moment.
                if time.monotonic() + _LOOKS >= deadline:
                    raise self._explained(error) from error
            else:
                if places:
                    self._consumer.assign(places)
                    return
                if time.monotonic() + _LOOKS >= deadline:
                    raise RequestError(f'the topic "{self._replies}" on {self._address} has no partitions yet')
            time.sleep(_LOOKS)

    def _explained(self, error: Exception) -> ConnectorError:
        from connectors.kafka.client.errors import error_of, explained

        return explained(error_of(error), f"Kafka on {self._address}", self._scrub)  # type: ignore[arg-type]


def _answer(message: Any) -> tuple[bytes | None, Message]:
    headers = tuple(message.headers() or ())
    number = next((value for name, value in headers if name == CORRELATION), None)
    return number, Message(message.value(), message.key(), headers)


def _split(url: str) -> tuple[str, str]:
    brokers, _, topic = url.partition("://")[2].partition("/")
    topic = unquote(topic)
    if "@" in brokers:
        raise DefinitionError("the address holds a login, which errors would show; give it as properties in options")
    if not brokers or not topic or "/" in topic:
        raise DefinitionError(f'"{url}" names no topic; write kafka://host:9092/TOPIC')
    return brokers, topic


def _configs(
    brokers: str, topic: str, replies: str, options: dict[str, Any]
) -> tuple[KafkaSinkConfig, KafkaSourceConfig]:
    """The sink of requests and the source of answers; properties that are not about the connection are the sink's."""
    of_both = {name: value for name, value in options.items() if is_connection(name)}
    fields: dict[str, Any] = {"bootstrap": brokers, "topic": topic, "name": "client", "client": options}
    others: dict[str, Any] = {"bootstrap": brokers, "topics": replies, "name": "client", "client": of_both}
    # The group is a name only: its consumer assigns itself, and commits nothing.
    others["group"] = "streamer-client"
    try:
        return KafkaSinkConfig.model_validate(fields), KafkaSourceConfig.model_validate(others)
    except ValidationError as error:
        raise definition_error(error, Document(fields), KafkaSinkConfig) from None
