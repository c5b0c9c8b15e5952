"""For the tests of `delivery: exactly_once`: waiting, records that cannot be delivered, and their dead letters."""

from __future__ import annotations

import random
import time
from typing import Any

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafkatopics import read

from connectors.message import Message
from pipelines import Data

EXACTLY_ONCE = "delivery: exactly_once\ntransaction: {interval: 100ms, timeout: 5s}"
"""Lines of a service file."""
_ANSWER = 60.0


def wait_for(ledger: Any, count: int, seconds: float, *members: Any) -> None:
    """Until `count` records are committed; samples on the way. Fails if a member ends."""
    deadline = time.monotonic() + seconds
    while (committed := ledger.sample()) < count:
        for member in members:
            assert member.process.poll() is None, member.text()
        assert time.monotonic() < deadline, f"{committed} of {count} records are committed"
        time.sleep(0.3)


def write_poison(ledger: Any, undecodable: int, too_large: int, seed: int) -> int:
    """Write records that no codec reads, and records whose results have 5000 bytes; returns how many."""
    producer = Producer({"bootstrap.servers": ledger.bootstrap, "linger.ms": 5, "enable.idempotence": True})
    chance = random.Random(seed)
    for number in range(undecodable):
        producer.produce(ledger.source, b"\xff not a message", f"bad-{seed}-{number}")
    for number in range(too_large):
        key = f"large-{seed}-{number}"
        value = Data({"key": key, "seq": 0, "crc": 0, "large": chance.randbytes(5000)}).to_bytes()
        producer.produce(ledger.source, value, key)
    assert producer.flush(_ANSWER) == 0
    return undecodable + too_large


def wait_for_open_transactions(bootstrap: str, topic: str) -> None:
    """Until readers of committed messages may read to the end of the topic.

    What a killed member left open stays so until its transaction runs out, and holds back all messages behind it.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = admin.list_topics(topic, _ANSWER).topics[topic].partitions
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in partitions}  # type: ignore[no-untyped-call]

    def ends(level: IsolationLevel) -> dict[int, int]:
        found = admin.list_offsets(asked, isolation_level=level, request_timeout=_ANSWER)
        return {one.partition: answer.result().offset for one, answer in found.items()}

    deadline = time.monotonic() + _ANSWER
    while True:
        # The written end first: it may grow meanwhile.
        written, readable = ends(IsolationLevel.READ_UNCOMMITTED), ends(IsolationLevel.READ_COMMITTED)
        if all(readable[number] >= end for number, end in written.items()):
            return
        assert time.monotonic() < deadline, f"transactions stay open: {written} written, {readable} readable"
        time.sleep(0.5)


def read_letters(ledger: Any, topic: str) -> list[Message]:
    """All dead letters that are committed."""
    wait_for_open_transactions(ledger.bootstrap, topic)
    return read(ledger.bootstrap, topic)


def error_of(letter: Message) -> str:
    """Why a record became this dead letter."""
    return b" ".join(value for _, value in letter.headers if value).decode(errors="replace")


def stand_still_and_die(broker: Any, frozen: float, thawed: float) -> None:
    """A broker stands still for `frozen` seconds, goes on for `thawed` seconds, and is killed and started again."""
    broker.freeze()
    time.sleep(frozen)
    broker.thaw()
    time.sleep(thawed)
    broker.kill()
    broker.restart()
