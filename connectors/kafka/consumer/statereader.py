"""`StateReader`: reads a partition of a compacted topic from its beginning to an offset, outside of any group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from connectors.kafka.client.errors import error_of, explained, is_passing
from connectors.kafka.client.properties import scrubber, source_properties
from connectors.kafka.config import KafkaSourceConfig
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

_AT_ONCE = 5000
_WAIT = 0.5
_TELL = 5.0
"""Seconds between two lines of the log."""


class StateReader:
    """A consumer that assigns itself one partition at a time, and commits nothing."""

    def __init__(self, topic: str, source: KafkaSourceConfig) -> None:
        """`source` has the brokers and the login."""
        self._topic = topic
        self._config = source.model_copy(
            update={"topics": (topic,), "instance": None, "assignor": "range", "out_of_range": "earliest"}
        )
        self._scrub = scrubber(source)
        self._consumer: Consumer | None = None

    def open(self) -> None:
        """Make the client."""
        self._consumer = Consumer(source_properties(self._config, {}))

    def close(self) -> None:
        """Disconnect. Idempotent."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def read(self, partition: int, end: int, tell: Callable[[], None]) -> dict[bytes, bytes]:
        """The last value of each key before the offset `end`, of committed transactions alone.

        Waits for transactions that are open, however long. `tell` is called again and again meanwhile. Raises
        `ConnectorError`.
        """
        values: dict[bytes, bytes] = {}
        for key, value in self.each(partition, end, tell):
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        return values

    def each(self, partition: int, end: int, tell: Callable[[], None]) -> Iterator[tuple[bytes, bytes | None]]:
        """As `read`, all of the records one after the other, `None` where a key is gone."""
        if self._consumer is None:
            raise ConnectorError("the reader is not open")
        reached, count = 0, 0
        began = logged_at = time.monotonic()
        try:
            self._consumer.assign([TopicPartition(self._topic, partition, OFFSET_BEGINNING)])
            while reached < end:
                for message in self._consumer.consume(_AT_ONCE, _WAIT):
                    error, offset = message.error(), message.offset()
                    if error is not None:
                        # Behind the last record there may be markers of transactions: the client's end says that.
                        if error.code() == KafkaError._PARTITION_EOF and offset is not None:
                            reached = max(reached, offset)
                        elif not is_passing(error):
                            raise explained(error, f'state: topic "{self._topic}"', self._scrub)
                        continue
                    assert offset is not None
                    reached = max(reached, offset + 1)
                    count += 1
                    key, value = message.key(), message.value()
                    if isinstance(key, bytes):
                        yield key, value if isinstance(value, bytes) else None
                tell()
                if time.monotonic() - logged_at > _TELL:
                    logged_at = time.monotonic()
                    _log.warning("state of %s[%d]: read to offset %d of %d", self._topic, partition, reached, end)
            self._consumer.unassign()
        except KafkaException as error:
            raise explained(error_of(error), f'state: topic "{self._topic}"', self._scrub) from error
        seconds = time.monotonic() - began
        _log.info("state of %s[%d]: %d records in %.1f s", self._topic, partition, count, seconds)
