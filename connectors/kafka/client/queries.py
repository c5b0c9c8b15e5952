"""`Queries`: requests to the brokers for the names and ids of topics, and the first and last offsets of partitions.

They do not go through the consumer: confluent-kafka aborts the process if a consumer's `list_topics` is called while it
serves a rebalance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cached_property
from typing import Any, Literal, TypeVar

import stamina
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from connectors.kafka.client.errors import NO_LEADER, error_of, is_passing
from connectors.kafka.consumer.lanes import Place

Start = Literal["earliest", "latest"] | int
"""The first record, the end, or the first record of a time in milliseconds since 1970."""
EndsAsked = dict[TopicPartition, Future[Any]]
"""The answers to `Queries.ask_ends` that are still to come, or to be read."""
Answer = TypeVar("Answer")

PATIENCE = 30.0
"""Timeout of a request, in seconds."""
_ATTEMPT = 5.0
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Sixteen bytes of zeros in base64: the id in answers of brokers before Kafka 2.8."""
_NOT_YET_KNOWN = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    # No broker leads the requested partitions.
    KafkaError._NOENT,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
_OUTDATED = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    # Also of a client that once saw no controller, and waits for one.
    KafkaError._TIMED_OUT,
)


class Queries:
    """Asks the brokers by an admin client. Used by one thread.

    Methods that begin with `ask_` do not wait: the answers are fetched later, and those that take more than 5 s are
    left out. A new request for ids replaces the last one. All other methods wait for up to half a minute and then raise
    `KafkaException`.
    """

    def __init__(self, properties: Mapping[str, Any], isolation: str = "read_committed") -> None:
        """`properties` are librdkafka's for an admin client, `isolation` is the consumer's `isolation.level`."""
        self._properties = properties
        committed = isolation == "read_committed"
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        self._ids: dict[str, Future[Any]] = {}

    @cached_property
    def _admin(self) -> AdminClient:
        # Made at the first request only: the admin client has its own threads and connections.
        return AdminClient(dict(self._properties))

    def topics(self) -> dict[str, list[int]]:
        """The numbers of the partitions of all topics, by name."""
        topics = self._patiently(lambda limit: self._admin.list_topics(timeout=limit)).topics
        return {name: sorted(topic.partitions) for name, topic in topics.items()}

    def cluster(self) -> str:
        """The id of the cluster."""
        return str(self._patiently(lambda limit: self._admin.list_topics(timeout=limit)).cluster_id)

    def positions(self, places: Iterable[Place], start: Start) -> dict[Place, int]:
        """The offset of `start` in each partition; the end if no record is as young as the given time."""
        wanted = list(places)
        offsets = self._offsets(wanted, start)
        missing = [place for place in wanted if offsets[place] < 0]
        return offsets | self._offsets(missing, "latest")

    def ids_now(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of these topics, as `ask_ids` and `ids`. Waits at most 5 s, and raises nothing."""
        self.ask_ids(topics)
        wait(self._ids.values(), _ATTEMPT)
        return self.ids()

    def ask_ids(self, topics: Iterable[str]) -> None:
        """Ask for the ids of these topics. One that is deleted and created again has another id."""
        names = sorted(set(topics))
        self._ids = {}
        if names:
            # The consumer reports such an error, too.
            with suppress(KafkaException):
                self._ids = self._admin.describe_topics(TopicCollection(names), request_timeout=_ATTEMPT)

    def ids(self) -> dict[str, str]:
        """The answers to `ask_ids` that came since the last call, by topic; topics without an id are left out."""
        answers = {topic: str(answer.topic_id) for topic, answer in _results(self._ids).items()}
        return {topic: topic_id for topic, topic_id in answers.items() if topic_id != _NO_ID}

    def ask_ends(self, places: Iterable[Place]) -> EndsAsked:
        """Request the end offsets of these partitions; `ends` reads the answers."""
        with suppress(KafkaException):
            return self._asked(places, "latest", _ATTEMPT)
        return {}

    def ends(self, asked: EndsAsked) -> dict[Place, int]:
        """The answers that have come: the offset of the next record. They are removed, and those that failed, too."""
        for answer in asked.values():
            if answer.done():
                self._renew_after(answer.exception())
        return {
            (partition.topic, partition.partition): int(answer.offset)
            for partition, answer in _results(asked).items()
            if answer.offset != OFFSET_INVALID
        }

    def _offsets(self, places: Iterable[Place], start: Start) -> dict[Place, int]:
        def ask(limit: float) -> dict[Place, int]:
            asked = self._asked(places, start, limit)
            return {
                (partition.topic, partition.partition): int(_result(partition, answer).offset)
                for partition, answer in asked.items()
            }

        return self._patiently(ask)

    def _patiently(self, ask: Callable[[float], Answer]) -> Answer:
        def attempt(limit: float) -> Answer:
            try:
                return ask(limit)
            except KafkaException as exception:
                self._renew_after(exception)
                raise

        return patiently(attempt)

    def _renew_after(self, error: BaseException | None) -> None:
        """Have another client make the next request, if this one knows the cluster as it was, and does not look again.

        Seen with librdkafka 2.16: requests for offsets have the epoch of a former leader, for ever.
        """
        if isinstance(error, KafkaException) and error_of(error).code() in _OUTDATED:
            self.__dict__.pop("_admin", None)

    def _asked(self, places: Iterable[Place], start: Start, limit: float) -> dict[TopicPartition, Future[Any]]:
        if isinstance(start, int):
            when = OffsetSpec.for_timestamp(start)
        else:
            when = (OffsetSpec.earliest if start == "earliest" else OffsetSpec.latest)()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(*place): when for place in places}
        if not wanted:
            return {}
        answers: dict[TopicPartition, Future[Any]] = self._admin.list_offsets(
            wanted, isolation_level=self._isolation, request_timeout=limit
        )
        return answers


def patiently(ask: Callable[[float], Answer], patience: float | None = None) -> Answer:
    """The answer of `ask`, which gets the seconds for one attempt and is called again for up to `patience` seconds
    (half a minute). Raises `KafkaException`.
    """
    seconds = PATIENCE if patience is None else patience
    for attempt in stamina.retry_context(_passing, attempts=None, timeout=seconds, wait_initial=0.1, wait_max=1.0):
        with attempt:
            answer = ask(_ATTEMPT)
    return answer


def _result(asked: TopicPartition, answer: Future[Any]) -> Any:
    """The answer to a request for an offset. Raises `KafkaException`."""
    try:
        result = answer.result()
        if result.offset == OFFSET_INVALID:
            # What the client makes of a leader that has just changed, and does not know yet what is replicated.
            raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "its leader does not know the offset yet"))
        return result
    except KafkaException as exception:
        error = error_of(exception)
        place = f"{asked.topic}[{asked.partition}]"
        text = f"no broker leads {place}" if error.code() in NO_LEADER else f"{place}: {error.str()}"
        raise KafkaException(KafkaError(error.code(), text)) from exception


def _results(asked: dict[Any, Future[Any]]) -> dict[Any, Any]:
    done = {key: asked.pop(key) for key in [key for key, answer in asked.items() if answer.done()]}
    return {key: answer.result() for key, answer in done.items() if answer.exception() is None}


def _passing(error: Exception) -> bool:
    return isinstance(error, KafkaException) and (
        is_passing(error_of(error)) or error_of(error).code() in _NOT_YET_KNOWN
    )
