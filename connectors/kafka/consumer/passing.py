"""`Passing`: finds what lies behind the last record of a partition and is never delivered."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from connectors.kafka.consumer.lanes import Lanes, Place, Progress

_LOOK_AFTER = 0.5


class Passing:
    """Notes in each `Progress` how far the client has passed markers of transactions, and records of aborted ones.

    The client's position is behind everything that it handed out, and behind the markers that it dropped meanwhile. So
    it is looked at only while no record that was handed out is held back.
    """

    def __init__(self, consumer: Consumer, lanes: Lanes) -> None:
        self._consumer = consumer
        self._lanes = lanes
        self._look_at = 0.0

    def begin(self, progress: Progress) -> None:
        """A lane begins. Until the client's position changes, it is that of a former lane of the partition."""
        progress.former = self._positions([progress.place]).get(progress.place, -1)

    def look(self) -> list[Progress]:
        """The lanes whose records are all acknowledged, and that are passed beyond the last one.

        Called while no record is held back; looks at most twice a second.
        """
        now = time.monotonic()
        if now < self._look_at:
            return []
        self._look_at = now + _LOOK_AFTER
        done = {one.place: one for one in self._lanes if one.acknowledged >= one.delivered}
        found = []
        for place, position in self._positions(list(done)).items():
            progress = done[place]
            if position > progress.delivered and position != progress.former:
                progress.passed = position
                found.append(progress)
        return found

    def _positions(self, places: list[Place]) -> dict[Place, int]:
        if not places:
            return {}
        try:
            answers = self._consumer.position([TopicPartition(*place) for place in places])
        except KafkaException:
            return {}
        return {(one.topic, one.partition): one.offset for one in answers if one.error is None and one.offset >= 0}
