"""The long forms of test_exactly_once (`make soak`), each also with `at_least_once`, which repeats but loses nothing.

They tell how far they are, and in the end what came of it. SOAK_ROUNDS is how often each disturbs its service (by
default as often as each says), SOAK_OUTAGE how many seconds brokers stand still.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from exactlyonce import EXACTLY_ONCE, read_letters, wait_for, write_poison

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(7200)]

DELIVERIES = {"exactly_once": EXACTLY_ONCE, "at_least_once": "delivery: at_least_once"}
MOST_GROWN = (64 + 2 * 64 + 36) << 20
"""Records in flight, what the sink's client and the sink hold, and what the source's client fetches ahead."""
OUTAGE = float(os.environ.get("SOAK_OUTAGE", "120"))


def rounds(count: int) -> int:
    return int(os.environ.get("SOAK_ROUNDS", str(count)))


@dataclass
class Fire:
    """Records go through services that are disturbed, round by round."""

    name: str
    delivery: str
    ledger: Any
    made: Any
    sleep: float = 0.02
    poison: int = 0
    members: list[Any] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    seed: int = 0

    def feed(self, count: int, *, poisoned: bool = False) -> None:
        self.seed += 1
        self.ledger.write(count, self.seed)
        if poisoned:
            share = max(1, count // 100)
            self.poison += write_poison(self.ledger, share, share, self.seed)

    def start(self) -> Any:
        member = self.made.start(self.sleep)
        self.members.append(member)
        return member

    def kill(self, member: Any) -> None:
        member.kill()
        self.members.remove(member)

    def stop(self, member: Any) -> None:
        assert member.stop() == 0, member.text()
        self.members.remove(member)

    @property
    def written(self) -> int:
        return int(self.ledger.total()) + self.poison

    def progress(self, at: int, of: int) -> None:
        committed = self.ledger.sample()
        for member in self.members:
            assert member.process.poll() is None, member.text()
        took = time.monotonic() - self.began
        print(
            f"  {self.name}, {self.delivery}: {at} of {of}, {committed} of {self.written} records, {took:.0f} s",
            flush=True,
        )

    def until(self, count: int, seconds: float = 240) -> None:
        """Until so many records are committed, or all."""
        wait_for(self.ledger, min(count, self.written), seconds, *self.members)

    def finish(self) -> None:
        """Everything is read to its end; checks that nothing is lost, and repeated only where that is allowed."""
        # The last members have something to do, so that they are seen to run before they are stopped.
        self.feed(500)
        if not self.members:
            self.start()
        self.until(self.written, 600)
        for member in list(self.members):
            self.stop(member)
        repeated = self.ledger.check()
        took = time.monotonic() - self.began
        print(
            f"\n{self.name}, {self.delivery}: {self.written} records, 0 lost, "
            f"{round(repeated * self.ledger.total())} repeated ({repeated:.2%}), {took:.0f} s",
            flush=True,
        )
        if self.delivery == "exactly_once":
            assert repeated == 0, "results were repeated"


@pytest.fixture(params=DELIVERIES)
def delivery(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("instance", ["", "one"], ids=["random", "instance"])
def test_fifty_kills(ledger: Any, bench: Callable[..., Any], delivery: str, instance: str) -> None:
    made = bench(ledger, DELIVERIES[delivery], instance=instance)
    fire = Fire(f"kills{' of an instance' if instance else ''}", delivery, ledger, made)
    chance = random.Random(50)
    count = rounds(50)
    for turn in range(count):
        fire.feed(2000)
        member = fire.start()
        fire.until(ledger.sample() + 1, 120)
        time.sleep(chance.uniform(0.0, 0.5))
        fire.kill(member)
        fire.progress(turn + 1, count)
    fire.finish()


def test_ten_restarts_of_the_broker(
    private_kafka: Any, ledger_on: Callable[[str], Any], bench: Callable[..., Any], delivery: str
) -> None:
    ledger = ledger_on(private_kafka.bootstrap)
    fire = Fire("broker restarts", delivery, ledger, bench(ledger, DELIVERIES[delivery]))
    fire.start()
    count = rounds(10)
    for turn in range(count):
        fire.feed(3000)
        fire.until(ledger.sample() + 1)
        private_kafka.kill()
        private_kafka.restart()
        fire.progress(turn + 1, count)
    fire.finish()


def test_leaders_and_coordinators_change(
    start_kafka: Any, ledger_on: Callable[..., Any], bench: Callable[..., Any], delivery: str
) -> None:
    cluster = start_kafka(nodes=3)
    ledger = ledger_on(cluster.bootstrap, replication=3)
    fire = Fire("three brokers", delivery, ledger, bench(ledger, DELIVERIES[delivery]))
    fire.start()
    count = rounds(9)
    for turn in range(count):
        fire.feed(3000)
        fire.until(ledger.sample() + 1)
        # Each node leads partitions, and coordinates groups and transactions, in turn.
        node = turn % 3 + 1
        cluster.kill(node)
        fire.until(ledger.sample() + 500)
        cluster.restart(node)
        fire.progress(turn + 1, count)
    fire.finish()


@pytest.mark.parametrize("assignor", ["range", "consumer"])
def test_two_to_four_members_come_and_go(ledger: Any, bench: Callable[..., Any], delivery: str, assignor: str) -> None:
    made = bench(ledger, DELIVERIES[delivery], assignor=assignor)
    fire = Fire(f"members with {assignor}", delivery, ledger, made)
    chance = random.Random(7)
    fire.start()
    fire.start()
    count = rounds(30)
    for turn in range(count):
        fire.feed(2000)
        some = chance.choice(fire.members)
        if len(fire.members) < 3 or (len(fire.members) < 4 and chance.random() < 0.5):
            fire.start()
        elif chance.random() < 0.5:
            fire.kill(some)
        else:
            fire.stop(some)
        time.sleep(chance.uniform(0.5, 4.0))
        fire.progress(turn + 1, count)
    fire.finish()


def test_members_stand_still_for_longer_than_a_transaction(
    ledger: Any, bench: Callable[..., Any], delivery: str
) -> None:
    fire = Fire("SIGSTOP", delivery, ledger, bench(ledger, DELIVERIES[delivery]))
    chance = random.Random(3)
    fire.start()
    fire.start()
    # A client is replaced three times in ten minutes, then the service stops: each member stands still once or twice.
    count = rounds(4)
    for turn in range(count):
        fire.feed(4000)
        fire.until(ledger.sample() + 500)
        with stopped(fire.members[turn % 2]):
            time.sleep(chance.uniform(6.0, 25.0))
        fire.progress(turn + 1, count)
    fire.finish()


@contextmanager
def stopped(member: Any) -> Iterator[None]:
    member.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        member.process.send_signal(signal.SIGCONT)


def test_brokers_stand_still(
    private_kafka: Any, ledger_on: Callable[[str], Any], bench: Callable[..., Any], delivery: str
) -> None:
    ledger = ledger_on(private_kafka.bootstrap)
    fire = Fire("frozen brokers", delivery, ledger, bench(ledger, DELIVERIES[delivery]))
    fire.start()
    count = rounds(2)
    for turn in range(count):
        fire.feed(6000)
        fire.until(ledger.sample() + 500)
        before = rss(fire.members[0])
        private_kafka.freeze()
        time.sleep(OUTAGE)
        grown = rss(fire.members[0]) - before
        private_kafka.thaw()
        assert grown < MOST_GROWN, f"{grown >> 20} MiB more in the outage"
        fire.progress(turn + 1, count)
    fire.finish()


def rss(member: Any) -> int:
    """Bytes of memory that a member has."""
    status = Path(f"/proc/{member.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024


def test_poison_and_kills(ledger: Any, bench: Callable[..., Any], topics: Any, delivery: str) -> None:
    dead = topics(1, "ledger-dead")
    extra = f"{DELIVERIES[delivery]}\ndead_letter: {{type: kafka, topic: {dead}}}"
    limit = "max_message: 3000"
    fire = Fire("poison", delivery, ledger, bench(ledger, extra, sink=limit))
    count = rounds(10)
    for turn in range(count):
        member = fire.start()
        fire.feed(3000, poisoned=True)
        fire.until(ledger.sample() + 1000)
        fire.kill(member)
        fire.progress(turn + 1, count)
    fire.finish()
    letters = [letter.key() for letter in read_letters(ledger, dead)]
    assert len(set(letters)) == fire.poison
    if delivery == "exactly_once":
        assert len(letters) == fire.poison, "dead letters were repeated"
