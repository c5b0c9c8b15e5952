"""`Lag`: how many records of each partition are not delivered yet."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, TopicPartition

from connectors.kafka.client.queries import Queries
from connectors.kafka.consumer.lanes import Lanes, Place, Progress

_LOOK_AFTER = 0.5
_ASK_AFTER = 10.0
_OPEN_AFTER = 5.0
"""Seconds after which a transaction that is still open is told of."""


class Lag:
    """The number of records between the last delivered one of a partition and its end.

    The client learns a partition's end by fetching. A partition that is not fetched would seem to have no lag, so the
    brokers are asked if no record has come for 10 s. The offset at which the client reached the end counts as
    delivered: after the last record there may be markers of transactions, and records of aborted ones, which are never
    delivered.
    """

    def __init__(self, consumer: Consumer, lanes: Lanes, queries: Queries) -> None:
        self.by_place: Mapping[Place, int] = {}
        """The lag of each partition: at most half a second old, or 10 s for a partition without new records."""
        self._consumer = consumer
        self._lanes = lanes
        self._queries = queries
        self._look_at = self._ask_at = 0.0
        self._open_since: dict[Place, float] = {}

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
        for place, end in self._queries.ends().items():
            if (progress := self._lanes.places.get(place)) is not None:
                progress.end = end
        self.by_place = dict(self._behind(self._lanes))
        if now >= self._ask_at:
            self._ask_at = now + _ASK_AFTER
            self._queries.ask_ends(progress.place for progress in self._lanes if progress.heard_at < now - _ASK_AFTER)

    def open_transactions(self) -> list[Place]:
        """The partitions that are read up to records of a transaction that has been open for some seconds."""
        now = time.monotonic()
        return [place for place, since in self._open_since.items() if now - since > _OPEN_AFTER]

    def _watch_open(self, progress: Progress, high: int) -> None:
        """`high`: the offset behind the last record, of a partition that is read up to the last one that can be."""
        if high > max(progress.ended, progress.end):
            self._open_since.setdefault(progress.place, time.monotonic())
        else:
            self._open_since.pop(progress.place, None)

    def drop(self, places: Iterable[Place]) -> None:
        """Remove partitions that were revoked."""
        gone = set(places)
        self._open_since = {place: since for place, since in self._open_since.items() if place not in gone}
        self.by_place = {place: behind for place, behind in self.by_place.items() if place not in gone}

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
