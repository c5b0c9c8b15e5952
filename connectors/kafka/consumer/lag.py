"""`Lag`: the number of undelivered records of each partition, and offsets without a record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

from connectors.kafka.client.queries import EndsAsked, Queries
from connectors.kafka.consumer.lanes import Lanes, Place, Progress

_LOOK_AFTER = 0.5
_ASK_AFTER = 10.0
_OPEN_AFTER = 5.0
"""Seconds after which a transaction that is still open is logged."""


class Lag:
    """The number of records between the last delivered one of a partition and its end.

    The client learns a partition's end by fetching. A partition that is not fetched would seem to have no lag, so the
    brokers are asked if no record has come for 10 s. The offset at which the client reached the end counts as
    delivered: after the last record there may be markers of transactions, and records of aborted ones, which are never
    delivered. How far the client has passed these is noted in each `Progress`, by the client's own position: it is
    behind everything that was handed out, and behind the markers that were dropped meanwhile.
    """

    def __init__(self, consumer: Consumer, lanes: Lanes, queries: Queries) -> None:
        self.by_place: Mapping[Place, int] = {}
        """The lag of each partition: at most half a second old, or 10 s for a partition without new records."""
        self._consumer = consumer
        self._lanes = lanes
        self._queries = queries
        self._asked: EndsAsked = {}
        self._look_at = self._ask_at = self._pass_at = 0.0
        self._open_since: dict[Place, float] = {}

    def begin(self, progress: Progress) -> None:
        """A lane begins. Until the client's position changes, it is that of a former lane of the partition."""
        progress.former = self._positions([progress.place]).get(progress.place, -1)

    def reached_end(self, place: Place, offset: int) -> None:
        """The client reached the end of this partition at `offset`."""
        if (progress := self._lanes.places.get(place)) is not None:
            progress.ended = offset
            progress.heard_at = time.monotonic()

    def look(self) -> None:
        """Update `by_place`. Called after each poll."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_AFTER
        for place, end in self._queries.ends(self._asked).items():
            if (progress := self._lanes.places.get(place)) is not None:
                progress.end = end
        self.by_place = dict(self._behind(self._lanes))
        if now >= self._ask_at:
            self._ask_at = now + _ASK_AFTER
            silent = [progress.place for progress in self._lanes if progress.heard_at < now - _ASK_AFTER]
            self._asked = self._queries.ask_ends(silent)

    def passed(self) -> list[Progress]:
        """The lanes whose records are all acknowledged, and that are passed beyond the last one.

        Called while no record is held back; looks at most twice a second.
        """
        now = time.monotonic()
        if now < self._pass_at:
            return []
        self._pass_at = now + _LOOK_AFTER
        done = {progress.place: progress for progress in self._lanes if progress.acknowledged >= progress.delivered}
        passed = []
        for place, position in self._positions(list(done)).items():
            progress = done[place]
            if position > progress.delivered and position != progress.former:
                progress.passed = position
                passed.append(progress)
        return passed

    def waits(self) -> str | None:
        """The producer's transaction that partitions wait for, if they are read up to its records and it has been open
        for some seconds."""
        now = time.monotonic()
        places = [place for place, since in self._open_since.items() if now - since > _OPEN_AFTER]
        if not places:
            return None
        more = f" and {len(places) - 1} more partitions" if len(places) > 1 else ""
        return f"{places[0][0]}[{places[0][1]}]{more}: a producer's transaction is open, its records cannot be read"

    def drop(self, places: Iterable[Place]) -> None:
        """Remove partitions that were revoked."""
        gone = set(places)
        self._open_since = {place: since for place, since in self._open_since.items() if place not in gone}
        self.by_place = {place: behind for place, behind in self.by_place.items() if place not in gone}

    def _watch_open(self, progress: Progress, high: int) -> None:
        """`high`: the offset behind the last record, of a partition that is read up to the last one that can be."""
        if high > max(progress.ended, progress.end):
            self._open_since.setdefault(progress.place, time.monotonic())
        else:
            self._open_since.pop(progress.place, None)

    def _behind(self, progresses: Iterable[Progress]) -> Iterable[tuple[Place, int]]:
        for progress in progresses:
            with suppress(KafkaException):
                low, high = self._consumer.get_watermark_offsets(TopicPartition(*progress.place), cached=True)
                # Behind the end that was reached there may be records of an open transaction: none of them can be
                # delivered yet, and the end by the brokers' answers is the last one that can be.
                at_end = progress.ended >= max(progress.delivered, low)
                end = max(progress.ended, progress.end) if at_end else max(high, progress.end)
                self._watch_open(progress, high if at_end else -1)
                if end >= 0:
                    yield progress.place, max(0, end - max(progress.delivered, progress.ended, low))

    def _positions(self, places: list[Place]) -> dict[Place, int]:
        if not places:
            return {}
        try:
            answers = self._consumer.position([TopicPartition(*place) for place in places])
        except KafkaException:
            return {}
        return {
            (answer.topic, answer.partition): answer.offset
            for answer in answers
            if answer.error is None and answer.offset >= 0
        }
