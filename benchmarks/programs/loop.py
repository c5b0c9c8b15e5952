"""The consumer, the producer and the loop that the hand-written programs share.

At least once as one would do it by hand: every second everything sent is flushed, and if no error came back the
offsets are committed. Errors only are reported, so that this costs next to nothing.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Message, Producer

from benchmarks.programs.job import PARTITIONER, FirstRecord, Job

COMMIT_INTERVAL = 1.0
"""Seconds between commits."""
CONSUMER = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    # The default of a second stops a fast consumer for a second whenever its queue was full.
    "fetch.queue.backoff.ms": 5,
}
PRODUCER = {"enable.idempotence": True, "delivery.report.only.error": True, "partitioner": PARTITIONER}


class Failures:
    """The first error of a message that the brokers refused."""

    def __init__(self) -> None:
        self.first: Any = None

    def report(self, error: Any, message: Message) -> None:
        """To be given to `produce` as `on_delivery`."""
        if error is not None and self.first is None:
            self.first = error


def loop(job: Job, step: Callable[[list[Message], Producer, Failures], None]) -> None:
    """Run `step` on batches of records until SIGTERM."""
    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": job.group, **CONSUMER})
    producer = Producer({"bootstrap.servers": job.bootstrap, "linger.ms": job.linger * 1000, **PRODUCER})
    consumer.subscribe([job.source])
    failures = Failures()
    first = FirstRecord()
    going = _until_sigterm()
    next_commit = time.monotonic() + COMMIT_INTERVAL
    dirty = False
    while going():
        # `consume(n, t)` alone would keep a lone record waiting for all of `t`, however long it has been idle.
        messages = consumer.consume(1, 0.1)
        if messages:
            first.tell()
            if job.batch > 1:
                messages += consumer.consume(job.batch - 1, job.max_wait)
            step([message for message in messages if message.error() is None], producer, failures)
            producer.poll(0)
            dirty = True
        if dirty and time.monotonic() >= next_commit:
            _commit(consumer, producer, failures)
            next_commit, dirty = time.monotonic() + COMMIT_INTERVAL, False
    _commit(consumer, producer, failures)
    consumer.close()


def send(
    producer: Producer, failures: Failures, topic: str, value: bytes | None, key: bytes | None, headers: Any
) -> None:
    """Produce one message, waiting while the queue is full."""
    while True:
        try:
            if headers:
                producer.produce(topic, value, key, headers=headers, on_delivery=failures.report)
            else:
                producer.produce(topic, value, key, on_delivery=failures.report)
            return
        except BufferError:
            producer.poll(0.01)


def _commit(consumer: Consumer, producer: Producer, failures: Failures) -> None:
    if producer.flush(30.0) or failures.first is not None:
        raise RuntimeError(f"results were lost: {failures.first or 'no answer from the broker'}")
    if consumer.assignment():
        try:
            consumer.commit(asynchronous=False)
        except Exception as error:
            # Nothing new to commit is an error of this client.
            if "_NO_OFFSET" not in str(error):
                raise


def _until_sigterm() -> Callable[[], bool]:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    return lambda: not stopped
