"""Where partitions begin: at what the group has committed, else where the configuration says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import stamina
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaException, TopicPartition

from connectors.kafka.errors import error_of, is_passing
from connectors.kafka.lanes import Place

Start = Literal["earliest", "latest"] | int

_PATIENCE = 30.0
_ATTEMPT = 5.0


def begins(consumer: Consumer, places: Iterable[Place], start: Start) -> tuple[dict[Place, int], set[Place]]:
    """The position of each place, and those for which the group has committed nothing.

    Positions are offsets, or `OFFSET_BEGINNING` for earliest. Waits for the brokers up to half a minute, then
    raises `KafkaException`.
    """
    found = {_place(one): one.offset for one in _patiently(lambda limit: consumer.committed(_asked(places, 0), limit))}
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


def _offsets_at(consumer: Consumer, places: Sequence[Place], when: int) -> dict[Place, int]:
    # Asked for the times -1 and -2, brokers tell the end and the beginning.
    answers = _patiently(lambda limit: consumer.offsets_for_times(_asked(places, when), limit))
    return {_place(one): one.offset for one in answers}


def _patiently(ask: Callable[[float], list[TopicPartition]]) -> list[TopicPartition]:
    for attempt in stamina.retry_context(_passing, attempts=None, timeout=_PATIENCE, wait_initial=0.1, wait_max=1.0):
        with attempt:
            answers = ask(_ATTEMPT)
            for one in answers:
                if one.error is not None:
                    raise KafkaException(one.error)
    return answers


def _passing(error: Exception) -> bool:
    return isinstance(error, KafkaException) and is_passing(error_of(error))


def _asked(places: Iterable[Place], offset: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for topic, partition in places]


def _place(one: TopicPartition) -> Place:
    return (one.topic, one.partition)
