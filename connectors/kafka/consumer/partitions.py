"""`Partitions`: begins, moves and ends the partitions that the group assigns to a consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import stamina
from confluent_kafka import Consumer, KafkaException, TopicPartition

from connectors.kafka.consumer.beginnings import Beginning
from connectors.kafka.consumer.lag import Lag
from connectors.kafka.consumer.lanes import Lanes, Place, Progress
from connectors.kafka.consumer.reading import Reading

_SEEK_WAIT = 5.0


class Partitions:
    """The assigned partitions of a consumer: each is a lane, from its beginning to its end."""

    def __init__(self, consumer: Consumer, reading: Reading, lanes: Lanes, lag: Lag, *, incremental: bool) -> None:
        """`incremental`: the group's protocol assigns partitions one by one."""
        self._consumer = consumer
        self._reading = reading
        self._lanes = lanes
        self._lag = lag
        self._assign = consumer.incremental_assign if incremental else consumer.assign
        self._still = False

    def refuse(self) -> None:
        """Assign none of the partitions that the group has assigned."""
        self._assign([])

    def begin(self, beginnings: Mapping[Place, Beginning]) -> list[Progress]:
        """Read these partitions, which the group has assigned, from there on."""
        self._reading.begin(beginnings)
        self._assign([TopicPartition(*place, beginning.position) for place, beginning in beginnings.items()])
        # The client remembers a pause over a revocation: a partition that was revoked while paused comes back paused.
        self._pause(self._still, beginnings)
        self._lanes.next_epoch()
        return [self._begin(place, beginning) for place, beginning in beginnings.items()]

    def move(self, beginnings: Mapping[Place, Beginning]) -> None:
        """Read these partitions from there on, in new lanes. Raises `KafkaException`."""
        self._lanes.next_epoch()
        for place, beginning in beginnings.items():
            self._reading.forget([place])
            self._seek(place, beginning.position)
            self._begin(place, beginning)

    def note(self, restarted: Iterable[Progress]) -> None:
        """These lanes have begun by themselves."""
        for progress in restarted:
            self._lag.begin(progress)

    def end(self, places: Iterable[Place]) -> None:
        """Read these partitions no more. Those that are not read are ignored."""
        gone = list(places)
        for place in gone:
            self._lanes.end(place)
        self._reading.end(gone)
        self._lag.drop(gone)

    def stand_still(self, still: bool) -> None:
        """Pause all partitions, those that are assigned later too, or resume them."""
        if still != self._still:
            self._still = still
            self._pause(still, self._lanes.places)

    def _pause(self, still: bool, places: Iterable[Place]) -> None:
        (self._consumer.pause if still else self._consumer.resume)([TopicPartition(*place) for place in places])

    def _begin(self, place: Place, beginning: Beginning) -> Progress:
        progress = self._lanes.begin(place, *beginning)
        self._lag.begin(progress)
        return progress

    def _seek(self, place: Place, position: int) -> None:
        # For some milliseconds after its assignment a partition cannot be moved.
        for attempt in stamina.retry_context(KafkaException, attempts=None, timeout=_SEEK_WAIT, wait_initial=0.02):
            with attempt:
                self._consumer.seek(TopicPartition(*place, position))
