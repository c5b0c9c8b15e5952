"""Where partitions begin: at what the group has committed, else where the configuration says; and where they end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

import stamina
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from connectors.kafka.errors import error_of, is_passing
from connectors.kafka.lanes import Place

Start = Literal["earliest", "latest"] | int
Answer = TypeVar("Answer")

_PATIENCE = 30.0
_ATTEMPT = 5.0


def begins(consumer: Consumer, places: Iterable[Place], start: Start) -> tuple[dict[Place, int], set[Place]]:
    """The position of each place, and those for which the group has committed nothing.

    Positions are offsets, or `OFFSET_BEGINNING` for earliest. Waits for the brokers up to half a minute, then
    raises `KafkaException`.
    """
    # It is not the partitions' leaders that are asked.
    committed = _patiently(consumer, (), lambda limit: _good(consumer.committed(_asked(places, 0), limit)))
    found = {_place(one): one.offset for one in committed}
    new = {place for place, offset in found.items() if offset < 0}
    return found | positions(consumer, new, start), new


def put_back(consumer: Consumer, topics: Sequence[str], start: Start) -> None:
    """Commit `start` as the group's position in all partitions of these topics (names or ^expressions).

    For a consumer that has not subscribed, and a group without members: else the brokers refuse it. Raises
    `KafkaException`.
    """
    known = consumer.list_topics(timeout=_PATIENCE).topics
    chosen = [name for name in known if any(_is(name, topic) for topic in topics)]
    places = [(name, number) for name in chosen for number in known[name].partitions]
    when = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}.get(str(start))
    found = _offsets_at(consumer, places, when) if when is not None else positions(consumer, places, start)
    if found:
        consumer.commit(offsets=[TopicPartition(*place, offset) for place, offset in found.items()], asynchronous=False)


def _is(name: str, topic: str) -> bool:
    return re.search(topic, name) is not None if topic.startswith("^") else name == topic


def positions(consumer: Consumer, places: Iterable[Place], start: Start) -> dict[Place, int]:
    """Where `start` is in each place. Raises `KafkaException`."""
    places = list(places)
    if start == "earliest" or not places:
        return dict.fromkeys(places, OFFSET_BEGINNING)
    when = OFFSET_END if start == "latest" else start
    found = _offsets_at(consumer, places, when)
    # Nothing is as young as the time asked for: what comes next is.
    missing = [place for place, offset in found.items() if offset < 0]
    return found | _offsets_at(consumer, missing, OFFSET_END) if missing else found


def bounds(consumer: Consumer, place: Place) -> tuple[int, int]:
    """The first offset that is there and the one after the last, now. Raises `KafkaException`."""
    return _patiently(
        consumer, [place], lambda limit: consumer.get_watermark_offsets(TopicPartition(*place), timeout=limit)
    )


def _offsets_at(consumer: Consumer, places: Sequence[Place], when: int) -> dict[Place, int]:
    # Asked for the times -1 and -2, brokers tell the end and the beginning.
    answers = _patiently(
        consumer, places, lambda limit: _good(consumer.offsets_for_times(_asked(places, when), timeout=limit))
    )
    return {_place(one): one.offset for one in answers}


def _patiently(consumer: Consumer, places: Sequence[Place], ask: Callable[[float], Answer]) -> Answer:
    """What `ask` says, given seconds, about these places of whose leaders it asks it."""
    for attempt in stamina.retry_context(_passing, attempts=None, timeout=_PATIENCE, wait_initial=0.1, wait_max=1.0):
        with attempt:
            if attempt.num > 1:
                _look_for_leaders(consumer, places)
            answer = ask(_ATTEMPT)
    return answer


def _look_for_leaders(consumer: Consumer, places: Sequence[Place]) -> None:
    # A client that knew of no leader once asks nobody, and calls the partition unknown until it is told anew.
    for topic in {topic for topic, _ in places}:
        known = consumer.list_topics(topic, timeout=_ATTEMPT).topics[topic]
        if known.error is not None:
            raise KafkaException(known.error)
        led = {number for number, partition in known.partitions.items() if partition.leader >= 0}
        unled = {number for name, number in places if name == topic} - led
        if unled:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"no broker leads {topic}[{min(unled)}]"))


def _good(answers: list[TopicPartition]) -> list[TopicPartition]:
    for one in answers:
        if one.error is not None:
            raise KafkaException(one.error)
    return answers


def _passing(error: Exception) -> bool:
    return isinstance(error, KafkaException) and (
        is_passing(error_of(error)) or error_of(error).code() in _NOT_YET_KNOWN
    )


def _asked(places: Iterable[Place], offset: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for topic, partition in places]


def _place(one: TopicPartition) -> Place:
    return (one.topic, one.partition)


_NOT_YET_KNOWN = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
