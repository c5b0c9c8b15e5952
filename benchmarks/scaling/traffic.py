"""Numbered records at a steady rate, and when their results come."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

_TICK = 0.01
_PATIENCE = 60.0


class Results(NamedTuple):
    """What became of the records."""

    sent: int
    lost: int
    repeated: int
    sent_at: np.ndarray
    """Seconds on `time.monotonic`, by number of the record."""
    delay: np.ndarray
    """Seconds from there until its first result; NaN: it has none."""

    def longest(self, start: float, end: float) -> float:
        """The longest that a record waited that was sent between the two."""
        inside = (self.sent_at >= start) & (self.sent_at < end)
        return float(np.nanmax(self.delay[inside])) if inside.any() else 0.0


class Traffic:
    """Sends to all partitions of a topic in turn, and reads all results. Threads do both."""

    def __init__(self, bootstrap: str, source: str, partitions: int, sink: str, sink_partitions: int) -> None:
        self._source, self._partitions = source, partitions
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "bench-scaling", "fetch.wait.max.ms": 20}
        )
        self._consumer.assign([TopicPartition(sink, number, OFFSET_BEGINNING) for number in range(sink_partitions)])
        self._sent_at: list[float] = []
        self._came: dict[int, float] = {}
        self._results = 0
        self._over = threading.Event()

    @contextmanager
    def flowing(self, rate: float) -> Iterator[None]:
        """Send so many records a second while the block lasts, then wait until all have results, or none came for a
        minute."""
        sending = threading.Event()
        sender = threading.Thread(target=self._send, args=(rate, sending), daemon=True)
        reader = threading.Thread(target=self._read, daemon=True)
        sender.start()
        reader.start()
        try:
            yield
        finally:
            sending.set()
            sender.join()
            self._producer.flush(_PATIENCE)
            last, moved = -1, time.monotonic()
            while len(self._came) < len(self._sent_at) and time.monotonic() - moved < _PATIENCE:
                if len(self._came) > last:
                    last, moved = len(self._came), time.monotonic()
                time.sleep(_TICK)
            # Repeated results may come after the first ones.
            time.sleep(1.0)
            self._over.set()
            reader.join()
            self._consumer.close()

    def results(self) -> Results:
        """What became of them, once nothing flows any more."""
        sent_at = np.array(self._sent_at)
        came = np.array([self._came.get(number, np.nan) for number in range(len(sent_at))])
        missing = int(np.isnan(came).sum())
        return Results(len(sent_at), missing, self._results - len(self._came), sent_at, came - sent_at)

    def _send(self, rate: float, over: threading.Event) -> None:
        began = time.monotonic()
        while not over.is_set():
            now = time.monotonic()
            while len(self._sent_at) < (now - began) * rate:
                number = len(self._sent_at)
                self._sent_at.append(now)
                self._producer.produce(self._source, b'{"n":%d}' % number, partition=number % self._partitions)
            self._producer.poll(0)
            over.wait(_TICK)

    def _read(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(1000, 0.05):
                if message.error() is None:
                    value = message.value() or b""
                    self._came.setdefault(int(value[value.index(b":") + 1 : value.index(b"}")]), time.monotonic())
                    self._results += 1
