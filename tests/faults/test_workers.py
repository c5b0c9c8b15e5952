"""`streamer run --workers 2` on Kafka: records that kill the process become dead letters, and kills lose nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from exactlyonce import EXACTLY_ONCE, wait_for
from kafkatopics import read

from pipelines import Data

pytestmark = pytest.mark.slow

DEADLY = '''
"""The pipeline of the service under test: records say how they end the process."""
import ctypes, os, time
import pipelines

SLEEP = float(os.environ.get("STEP_SLEEP", "0"))
if os.path.exists("slow-" + os.environ["STREAMER_WORKER"]):
    time.sleep(10)


def end(how):
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "loop":
        # In C, without giving up the interpreter's lock; nor does it use the processor, which others need meanwhile.
        ctypes.PyDLL(None).sleep(600)
    elif how == "kill":
        os.kill(os.getpid(), 9)
        time.sleep(60)
    elif how == "eat":
        bytearray(8 << 30)


@pipelines.batched
def passed_on(batch):
    time.sleep(SLEEP * batch.size / 200)
    for how in batch.get("how").values() if "how" in batch else ():
        if how is not None:
            end(how)
    return batch.without(["filler", "how"])
'''


DIED = "a worker died, and is started again"
CONVICTED = "a record kills the process that runs it; from now on it fails without being run"


def started(made: Any, sleep: float = 0.0, workers: int = 2) -> Any:
    """A parent with so many workers, on the deadly steps."""
    (made.folder / "ledger_steps.py").write_text(DEADLY)
    return made.start(sleep, "--workers", str(workers))


def write_deadly(ledger: Any, *hows: str) -> None:
    """Write a record for each way to end the process."""
    producer = Producer({"bootstrap.servers": ledger.bootstrap})
    for how in hows:
        key = f"deadly-{how}"
        value = Data({"key": key, "seq": 0, "crc": zlib.crc32(f"{key}:0".encode()), "how": how}).to_bytes()
        producer.produce(ledger.source, value, key)
    assert producer.flush(60) == 0


def events(member: Any, event: str) -> list[dict[str, Any]]:
    """The lines of its log about this event."""
    lines = [json.loads(line) for line in member.text().splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == event]


def deaths(member: Any) -> Counter[str]:
    return Counter(str(line["reason"]) for line in events(member, DIED))


def letters(ledger: Any, topic: str) -> dict[str, dict[str, str]]:
    """The headers of the last dead letter of each record, by its key.

    A record has a second dead letter only if its worker died before the record's position was committed.
    """
    by_key: dict[str, dict[str, str]] = {}
    for message in read(ledger.bootstrap, topic):
        key = Data.from_bytes(message.value)["key"]
        headers = {name: (value or b"").decode() for name, value in message.headers or ()}
        before = by_key.get(key, headers)
        for name in ("streamer-partition", "streamer-offset"):
            assert headers[name] == before[name], f"dead letters of two records have the key {key}"
        by_key[key] = headers
    return by_key


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("parallel", "hows"),
    # Which of several calls has not ended, and which had the deadly record, is what is different with more than one.
    [(1, ("segfault", "loop", "kill")), (2, ("segfault", "loop"))],
    ids=["one at a time", "two at a time"],
)
def test_a_record_that_kills_its_process_becomes_a_dead_letter_and_all_others_have_results(
    ledger: Any, bench: Any, topics: Any, parallel: int, hows: tuple[str, ...]
) -> None:
    dead = topics(1, "ledger-dead")
    ledger.write(2500)
    write_deadly(ledger, *hows)
    ledger.write(2500, seed=2)
    limits = f"limits: {{stuck: 3s, parallel: {parallel}}}"
    member = started(bench(ledger, f"dead_letter: {{type: kafka, topic: {dead}}}\n{limits}"))
    wait_for(ledger, 5000 + len(hows), 240, member)
    assert member.stop() == 0, member.text()
    ledger.check()
    found = letters(ledger, dead)
    assert {key: headers["streamer-step"] for key, headers in found.items()} == {
        f"deadly-{how}": "process" for how in hows
    }
    said = {"segfault": "signal 11", "loop": "no end after 3 s", "kill": "signal 9"}
    for how in hows:
        assert said[how] in found[f"deadly-{how}"]["streamer-text"]
    if parallel == 1:
        assert sum(deaths(member).values()) <= 2 + 2 + 3, member.text()


@pytest.mark.timeout(300)
def test_a_record_that_eats_memory_fails_without_a_death(ledger: Any, bench: Any, topics: Any) -> None:
    dead = topics(1, "ledger-dead")
    ledger.write(500)
    write_deadly(ledger, "eat")
    ledger.write(500, seed=2)
    member = started(bench(ledger, f"dead_letter: {{type: kafka, topic: {dead}}}\nlimits: {{memory: 4GiB}}"))
    wait_for(ledger, 1001, 120, member)
    assert member.stop() == 0, member.text()
    ledger.check()
    assert {key: headers["streamer-error"] for key, headers in letters(ledger, dead).items()} == {
        "deadly-eat": "MemoryError"
    }
    assert not deaths(member)


@pytest.mark.timeout(300)
def test_the_worker_that_gets_the_partition_of_a_slow_one_does_not_die_of_a_convicted_record(
    ledger: Any, bench: Any, topics: Any
) -> None:
    dead = topics(1, "ledger-dead")
    ledger.write(1000)
    write_deadly(ledger, "segfault")
    ledger.write(1000, seed=2)
    made = bench(ledger, f"dead_letter: {{type: kafka, topic: {dead}}}")
    member = started(made)
    while not (convicted := events(member, CONVICTED)):
        assert member.process.poll() is None, member.text()
        time.sleep(0.05)
    while len(died := events(member, DIED)) < 2:
        assert member.process.poll() is None, member.text()
        time.sleep(0.05)
    # Longer than the brokers keep the partitions of a member that is away.
    (made.folder / f"slow-{died[-1]['worker']}").touch()
    wait_for(ledger, 2001, 120, member)
    assert member.stop() == 0, member.text()
    ledger.check()
    assert list(letters(ledger, dead)) == ["deadly-segfault"]
    (letter,) = events(member, "dead letter")
    assert letter["worker"] != died[-1]["worker"], "the slow worker was not slow enough"
    assert len(convicted) == 1
    assert sum(deaths(member).values()) == 2, member.text()


def workers_of(member: Any) -> list[int]:
    """The process ids of the workers that run at the moment."""
    listed = Path(f"/proc/{member.process.pid}/task/{member.process.pid}/children").read_text().split()
    return [pid for pid in map(int, listed) if b"STREAMER_WORKER=" in environment_of(pid)]


def environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("extra", ["", EXACTLY_ONCE], ids=["at_least_once", "exactly_once"])
@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(12, marks=pytest.mark.timeout(400)),
        pytest.param(300, marks=[pytest.mark.soak, pytest.mark.timeout(1200)]),
    ],
)
def test_workers_that_are_killed_lose_nothing_and_condemn_no_record(
    ledger: Any, bench: Any, topics: Any, extra: str, seconds: int
) -> None:
    dead = topics(1, "ledger-dead")
    made = bench(ledger, f"{extra}\ndead_letter: {{type: kafka, topic: {dead}}}")
    chance = random.Random(seconds)
    # More than they get done between the kills: a worker that dies often is started again only after half a minute.
    records = 12_000 + 200 * seconds
    ledger.write(records)
    member = started(made, sleep=0.2)
    wait_for(ledger, 1, 120, member)
    kills, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        if running := workers_of(member):
            os.kill(chance.choice(running), signal.SIGKILL)
            kills += 1
        time.sleep(3)
        ledger.sample()
    assert kills >= 3
    wait_for(ledger, records, 600, member)
    assert member.stop() == 0, member.text()
    ledger.check(once=made.members if extra else None)
    assert letters(ledger, dead) == {}
    assert not events(member, CONVICTED)
