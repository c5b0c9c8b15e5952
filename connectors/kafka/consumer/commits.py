"""`Commits`: commits positions for the group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import stamina
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from connectors.kafka.client.errors import error_of, explained, is_passing
from connectors.kafka.consumer.lanes import Lanes, Progress
from connectors.records import Lane
from connectors.secrets import Scrubber
from connectors.source import CheckpointNote

_log = logging.getLogger(__name__)

_AGAIN_AFTER = 1.0
_QUIET = 10.0


class Commits:
    """Commits the acknowledged positions of lanes, and commits them again after a failure.

    A failed commit loses nothing, as positions are acknowledged after the results: it is logged, and tried again
    after a second, or with the next acknowledgement.
    """

    def __init__(
        self,
        consumer: Consumer,
        lanes: Lanes,
        group: str,
        scrub: Scrubber,
        noted: Callable[[], CheckpointNote | None] = lambda: None,
        *,
        by_producer: bool = False,
    ) -> None:
        """`noted` gives what to commit with the positions of lanes that go forward. `by_producer`: a producer commits
        the positions, in transactions; only `first` commits any."""
        self.by_producer = by_producer
        self._consumer = consumer
        self._lanes = lanes
        self._doing = f'group "{group}" cannot commit its positions'
        self._scrub = scrub
        self.noted = noted
        self._again_at: float | None = None
        self._quiet_until = 0.0

    def acknowledge(self, positions: Mapping[Lane, int]) -> None:
        """Note that these positions are acknowledged, and commit them without waiting."""
        moved = self.move(positions)
        if self.by_producer:
            for progress in moved:
                progress.committed = progress.acknowledged
        else:
            self.later(moved)

    def move(self, positions: Mapping[Lane, int]) -> list[Progress]:
        """Note that these positions are acknowledged. Returns the lanes that go forward by that."""
        moved = []
        noted = self.noted()
        for lane, position in positions.items():
            progress = self._lanes.find(lane)
            if progress is not None and position > progress.acknowledged:
                progress.acknowledged = position
                if progress.metadata.noted != noted:
                    progress.metadata = replace(progress.metadata, noted=noted)
                moved.append(progress)
        return moved

    def later(self, progresses: Iterable[Progress]) -> None:
        """Commit the acknowledged positions of these lanes, without waiting."""
        offsets = _offsets(progresses)
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as exception:
            self._failed(error_of(exception))

    def now(self, progresses: Iterable[Progress], seconds: float) -> None:
        """Commit the acknowledged positions of these lanes that are not committed yet, and wait until the brokers have
        them.

        Tries again for up to `seconds`. Raises `ConnectorError`.
        """
        behind = [progress for progress in progresses if progress.committed < progress.acknowledged]
        self._arrived(self.first(_offsets(behind), seconds))

    def first(self, offsets: list[TopicPartition], seconds: float) -> list[TopicPartition]:
        """Commit these positions of partitions that may not be lanes yet, as `now`; returns the brokers' answer."""
        if not offsets:
            return []
        try:
            for attempt in stamina.retry_context(
                _passing, attempts=None, timeout=seconds, wait_initial=0.05, wait_max=1
            ):
                with attempt:
                    answers: list[TopicPartition] = self._consumer.commit(offsets=offsets, asynchronous=False)
                    for answer in answers:
                        if answer.error is not None:
                            raise KafkaException(answer.error)
        except KafkaException as exception:
            raise explained(error_of(exception), self._doing, self._scrub) from exception
        return answers

    def try_again(self) -> None:
        """Commit again a second after a commit has failed. Cheap if none has."""
        if self._again_at is None or time.monotonic() < self._again_at:
            return
        self._again_at = None
        self.later(progress for progress in self._lanes if progress.committed < progress.acknowledged)

    def answered(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """librdkafka's `on_commit`: the outcome of a commit by `later`."""
        wrong = error or next((partition.error for partition in partitions if partition.error is not None), None)
        if wrong is not None and wrong.code() != KafkaError._NO_OFFSET:
            self._failed(wrong)
        if error is None:
            self._arrived(partitions)

    def _arrived(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            progress = self._lanes.places.get((partition.topic, partition.partition))
            if progress is not None and partition.error is None:
                progress.committed = max(progress.committed, partition.offset)

    def _failed(self, error: KafkaError) -> None:
        now = time.monotonic()
        self._again_at = now + _AGAIN_AFTER
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET
            _log.warning("%s; it is tried again", explained(error, self._doing, self._scrub))


def _offsets(progresses: Iterable[Progress]) -> list[TopicPartition]:
    return [
        TopicPartition(*progress.place, progress.acknowledged, progress.metadata.text())
        for progress in progresses
        if progress.acknowledged >= 0
    ]


def _passing(error: Exception) -> bool:
    return isinstance(error, KafkaException) and is_passing(error_of(error))
