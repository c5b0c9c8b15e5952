"""The (key, seq, crc) ledger: records that go in, results that come out, and services in processes of their own."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import stamina
from confluent_kafka import KafkaException
from exactlyonce import wait_for_open_transactions

from pipelines import Data
from streamer.devbroker import create_topics

ANSWER = 60.0
"""Seconds that a broker on a busy machine may take for an answer."""

_SHOWN = 12_000
"""Characters of a member's output that are shown."""

STEPS = '''
"""The pipeline of the service under test."""
import os, time
import pipelines

SLEEP = float(os.environ.get("STEP_SLEEP", "0"))


@pipelines.batched
def passed_on(batch):
    time.sleep(SLEEP)
    return batch.without(["filler"])
'''


@dataclass
class KeyLedger:
    """Writes records (key, seq, crc) to `source`, and checks a service's results in `sink`."""

    bootstrap: str
    source: str
    sink: str
    group: str
    keys: int = 500
    written: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    sampled: list[tuple[dict[int, int], dict[int, int]]] = field(default_factory=list)
    """Pairs by partition: the committed positions, and the ends of the sink's topic just after."""
    by_offset: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    poison: set[bytes] = field(default_factory=set)
    """Payloads that no codec can read."""

    def write(self, count: int, seed: int = 1, poison: float = 0.0, filler: int = 40) -> None:
        """Append `count` records of `filler` bytes and some; each key's `seq` goes up by one. As many more as `poison`
        says cannot be read."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20, "enable.idempotence": True})
        chance = random.Random(seed)

        def landed(key: str, seq: int) -> Callable[[Any, Any], None]:
            def report(error: Any, message: Any) -> None:
                assert error is None, error
                self.by_offset[message.partition(), message.offset()] = (key, seq)

            return report

        for _ in range(count):
            key = f"key-{chance.randrange(self.keys)}"
            seq = self.written[key]
            self.written[key] += 1
            value = Data({"key": key, "seq": seq, "crc": crc(key, seq), "filler": b"x" * filler}).to_bytes()
            while True:
                try:
                    producer.produce(self.source, value, key, on_delivery=landed(key, seq))
                    break
                except BufferError:
                    producer.poll(0.1)
            if chance.random() < poison:
                self.poison.add(bad := b"\xff poison %d" % len(self.poison))
                producer.produce(self.source, bad, key)
            producer.poll(0)
        assert producer.flush(120) == 0

    def sample(self) -> int:
        """Note the committed positions, then the end of the sink's topic; returns how many records are committed."""
        # Brokers that are killed under the client make its calls fail in many ways.
        for attempt in stamina.retry_context(KafkaException, attempts=None, timeout=ANSWER, wait_max=2):
            with attempt:
                total = self._sample()
        return total

    def _sample(self) -> int:
        from confluent_kafka import Consumer, TopicPartition

        # Of a transaction that is committed some results may become visible a moment after its positions.
        properties = {"group.id": self.group, "isolation.level": "read_uncommitted"}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **properties})
        try:
            partitions = consumer.list_topics(self.source, ANSWER).topics[self.source].partitions
            found = consumer.committed([TopicPartition(self.source, number) for number in partitions], ANSWER)
            committed = {one.partition: max(one.offset, 0) for one in found}
            outputs = consumer.list_topics(self.sink, ANSWER).topics[self.sink].partitions
            ends = {n: consumer.get_watermark_offsets(TopicPartition(self.sink, n), ANSWER)[1] for n in outputs}
        finally:
            consumer.close()
        self.sampled.append((committed, ends))
        return sum(committed.values())

    def committed(self) -> int:
        """How many records are committed."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})
        try:
            partitions = consumer.list_topics(self.source, ANSWER).topics[self.source].partitions
            found = consumer.committed([TopicPartition(self.source, number) for number in partitions], ANSWER)
            return sum(max(one.offset, 0) for one in found)
        finally:
            consumer.close()

    def total(self) -> int:
        """How many records were written that can be read."""
        return sum(self.written.values())

    def read_results(self) -> list[tuple[int, int, str, int]]:
        """All results, those of transactions if they are committed: partition, offset, key, seq, in the order of each
        partition. Checks every crc."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        wait_for_open_transactions(self.bootstrap, self.sink)
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.group}-reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.queue.backoff.ms": 5,
                "enable.partition.eof": True,
            }
        )
        try:
            partitions = [
                TopicPartition(self.sink, number, 0)
                for number in consumer.list_topics(self.sink, ANSWER).topics[self.sink].partitions
            ]
            consumer.assign(partitions)
            found: list[tuple[int, int, str, int]] = []
            deadline = time.monotonic() + 2 * ANSWER
            # Decided by the last committed record, not by a count of offsets: markers of transactions have some, too.
            open_still = {one.partition for one in partitions}
            while open_still:
                assert time.monotonic() < deadline, "the results could not be read"
                for message in consumer.consume(5000, 0.5):
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        open_still.discard(message.partition())
                        continue
                    assert error is None, error
                    partition, offset, value = message.partition(), message.offset(), message.value()
                    assert partition is not None
                    assert offset is not None
                    assert value is not None
                    data = Data.from_bytes(value)
                    key, seq = data["key"], data["seq"]
                    assert data["crc"] == crc(key, seq)
                    assert message.key() == key.encode()
                    found.append((partition, offset, key, seq))
            results = sorted(set(found))
            if len(results) < len(found):
                # One message is one result, however often the reader's own client delivers it.
                print(f"{len(found) - len(results)} messages of {self.sink} were delivered to the reader again")
            return results
        finally:
            consumer.close()

    def check(self, once: Sequence[Member] | None = None) -> float:
        """Nothing lost, order per key up to redelivery, no commit ahead of its results; the share of duplicates.

        `once`: every result is there once; if one is repeated, the error says of which records, and what these members
        said.
        """
        results = self.read_results()
        seen: dict[str, int] = defaultdict(lambda: -1)
        for _, _, key, seq in sorted(results):
            assert seq <= seen[key] + 1, f"{key}: {seq} came before {seen[key] + 1}"
            seen[key] = max(seen[key], seq)
        assert {key: last + 1 for key, last in seen.items()} == dict(self.written), "records were lost"
        where: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for partition, offset, key, seq in results:
            where[key, seq].append((partition, offset))
        # The sink's topic only grows: the first sample in which a record is committed says the most of it.
        checked: dict[int, int] = defaultdict(int)
        for committed, ends in self.sampled:
            for partition, position in committed.items():
                for offset in range(checked[partition], position):
                    record = self.by_offset.get((partition, offset))
                    assert record is None or any(at < ends.get(number, 0) for number, at in where[record]), (
                        f"offset {offset} of partition {partition} was committed before its result was there"
                    )
                checked[partition] = max(checked[partition], position)
        if once is not None and len(results) > self.total():
            times = {record: len(places) for record, places in where.items()}
            logs = [f"{member.log.name}:\n{member.text()[-_SHOWN:]}" for member in once]
            raise AssertionError("\n".join(["results were repeated", *self._repeats(times), *logs]))
        return len(results) / self.total() - 1

    def _repeats(self, times: dict[tuple[str, int], int]) -> Iterator[str]:
        """Which records have more than one result, and the committed positions on the way."""
        again: dict[int, list[int]] = defaultdict(list)
        for (partition, offset), record in self.by_offset.items():
            if times[record] > 1:
                again[partition].append(offset)
        for partition, offsets in sorted(again.items()):
            yield f"partition {partition}: {len(offsets)} repeated, offsets {min(offsets)} to {max(offsets)}"
        for number, (committed, _) in enumerate(self.sampled):
            yield f"sample {number}, committed: {committed}"


def crc(key: str, seq: int) -> int:
    """The checksum of a record with this key and number."""
    return zlib.crc32(f"{key}:{seq}".encode())


class Member:
    """One service in a process of its own: `streamer run`, or another command of Python's."""

    def __init__(self, folder: Path, command: Sequence[str], sleep: float) -> None:
        self.log = folder / f"member-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=folder,
                env={**os.environ, "STEP_SLEEP": str(sleep)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.process.wait(30)

    def stop(self, timeout: float = 90) -> int:
        """SIGTERM, which a program that has said something listens to; the exit code."""
        deadline = time.monotonic() + timeout
        while not self.text() and self.process.poll() is None:
            assert time.monotonic() < deadline, "it says nothing"
            time.sleep(0.05)
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def text(self) -> str:
        """Its output."""
        return self.log.read_text(errors="replace")


@dataclass
class Bench:
    """A folder with a service file, and the members that run it."""

    folder: Path
    file: Path
    members: list[Member] = field(default_factory=list)

    def start(self, sleep: float = 0.0, *options: str) -> Member:
        """One more member, with these options of `streamer run`."""
        member = Member(self.folder, ["-m", "streamer", "run", str(self.file), "--log-json", *options], sleep)
        self.members.append(member)
        return member


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., Member]]:
    """`running(file, *options)` is a process that runs a service file; it is gone at the end.

    `program` is the file of another program with the commands of `streamer`.
    """
    members: list[Member] = []

    def start(file: Path, *options: str, program: str = "") -> Member:
        command = [program] if program else ["-m", "streamer"]
        members.append(Member(tmp_path, [*command, "run", str(file), "--log-json", *options], 0.0))
        return members[-1]

    yield start
    for member in members:
        if member.process.poll() is None:
            member.kill()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """`bench(ledger, **client)` writes a service over a ledger's topics; its members are gone at the end."""
    benches: list[Bench] = []

    def make(
        ledger: KeyLedger,
        extra: str = "",
        assignor: str = "range",
        instance: str = "",
        sink: str = "",
        source: str = "",
        **client: object,
    ) -> Bench:
        (tmp_path / "ledger_steps.py").write_text(STEPS)
        # In the brokers' own protocol these are the brokers' to set.
        quick = {} if assignor == "consumer" else {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        settings = {**quick, **client}
        file = tmp_path / "service.yaml"
        file.write_text(
            f"""
name: ledger
source:
  type: kafka
  bootstrap: {ledger.bootstrap}
  topics: [{ledger.source}]
  group: {ledger.group}
  assignor: {assignor}
  {f"instance: {instance}" if instance else ""}
  {source}
  client: {{{", ".join(f"{key}: {value}" for key, value in settings.items())}}}
pipeline:
  steps: [{{"@type": FUNCTION, function: "ledger_steps:passed_on"}}]
batch: {{max_records: 200}}
sink: {{type: kafka, topic: {ledger.sink}, {sink}}}
{extra}
"""
        )
        benches.append(Bench(tmp_path, file))
        return benches[-1]

    yield make
    for made in benches:
        for member in made.members:
            if member.process.poll() is None:
                member.kill()


@pytest.fixture
def ledger_on(topic_name: Any) -> Callable[..., KeyLedger]:
    """`ledger_on(bootstrap)` is a ledger over new topics of 8 and 4 partitions on this broker.

    `replication` is of both topics, `results` of the sink's if it differs.
    """

    def make(bootstrap: str, replication: int = 1, results: int = 0) -> KeyLedger:
        source, sink = topic_name("ledger-in"), topic_name("ledger-out")
        create_topics(bootstrap, {source: 8}, replication)
        create_topics(bootstrap, {sink: 4}, results or replication)
        return KeyLedger(bootstrap, source, sink, topic_name("ledger"))

    return make


@pytest.fixture
def ledger(kafka: Any, topics: Any, topic_name: Any) -> KeyLedger:
    """A ledger over new topics of 8 partitions."""
    return KeyLedger(kafka.bootstrap, topics(8, "ledger-in"), topics(4, "ledger-out"), topic_name("ledger"))
