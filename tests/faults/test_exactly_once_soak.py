"""The long forms of test_exactly_once (`make soak`), each also with `at_least_once`, which repeats but loses nothing.

They print their progress, and in the end the results. SOAK_ROUNDS is how often each disturbs its service (by default as
often as each says), SOAK_OUTAGE how many seconds brokers stand still.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from exactlyonce import EXACTLY_ONCE, read_letters, stand_still_and_die, wait_for, write_poison
from waiting import until

from streamer.devbroker import create_topics

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(7200)]

DELIVERIES = {"exactly_once": EXACTLY_ONCE, "at_least_once": "delivery: at_least_once"}
MOST_GROWN = (64 + 2 * 64 + 36) << 20
"""Records in flight, messages that the sink and its client hold, and records that the source's client fetches ahead."""
OUTAGE = float(os.environ.get("SOAK_OUTAGE", "120"))


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
    at: str = ""

    def feed(self, count: int, *, poisoned: bool = False, filler: int = 40) -> None:
        self.seed += 1
        self.ledger.write(count, self.seed, filler=filler)
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

    def progress(self, *, sampled: bool = True) -> None:
        """Tell how far it is. `sampled`: and note where the results end, which all their leaders have to tell."""
        committed = self.ledger.sample() if sampled else self.ledger.committed()
        for member in self.members:
            assert member.process.poll() is None, member.text()
        took = time.monotonic() - self.began
        print(
            f"  {self.name}, {self.delivery}: {self.at}, {committed} of {self.written} records, {took:.0f} s",
            flush=True,
        )

    def results(self) -> int:
        """How many messages the topic of the results has, committed or not."""
        self.ledger.sample()
        return sum(self.ledger.sampled[-1][1].values())

    def more_than(self, results: int) -> bool:
        """Whether the topic of the results has more than so many messages."""
        return self.results() > results

    def until(self, count: int, seconds: float = 240) -> None:
        """Until so many records are committed, or all."""
        wait_for(self.ledger, min(count, self.written), seconds, *self.members)

    def more(self, count: int = 1) -> None:
        """Until so many more records are committed."""
        self.until(self.ledger.sample() + count)

    def rounds(self, count: int) -> Iterator[int]:
        """So many rounds, or SOAK_ROUNDS, with the progress after each; then everything is read to its end."""
        count = int(os.environ.get("SOAK_ROUNDS", str(count)))
        for turn in range(count):
            self.at = f"round {turn + 1} of {count}"
            yield turn
            self.progress()
        self.finish()

    def finish(self) -> None:
        """Everything is read to its end; checks that nothing is lost, and repeated only where that is allowed."""
        # The last members have something to do, so that they are seen to run before they are stopped.
        self.feed(500)
        if not self.members:
            self.start()
        self.until(self.written, 600)
        for member in list(self.members):
            self.stop(member)
        repeated = self.ledger.check(once=self.made.members if self.delivery == "exactly_once" else None)
        took = time.monotonic() - self.began
        print(
            f"\n{self.name}, {self.delivery}: {self.written} records, 0 lost, "
            f"{round(repeated * self.ledger.total())} repeated ({repeated:.2%}), {took:.0f} s",
            flush=True,
        )


@pytest.fixture(params=DELIVERIES)
def delivery(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def on_fire(bench: Callable[..., Any], delivery: str) -> Callable[..., Fire]:
    """`on_fire(name, ledger, extra, sleep=0.02, **bench)` makes a service between a ledger's topics."""

    def make(name: str, ledger: Any, extra: str = "", sleep: float = 0.02, **fields: Any) -> Fire:
        return Fire(name, delivery, ledger, bench(ledger, DELIVERIES[delivery] + extra, **fields), sleep)

    return make


@pytest.mark.parametrize("instance", ["", "one"], ids=["random", "instance"])
def test_the_guarantee_holds_through_fifty_kills(ledger: Any, on_fire: Callable[..., Fire], instance: str) -> None:
    fire = on_fire(f"kills{' of an instance' if instance else ''}", ledger, instance=instance)
    chance = random.Random(50)
    for _ in fire.rounds(50):
        fire.feed(2000)
        before = fire.results()
        member = fire.start()
        # Not until something is committed: at_least_once does that once a second, when these records are all done.
        until(partial(fire.more_than, before), "a first result")
        time.sleep(chance.uniform(0.0, 0.5))
        fire.kill(member)


def test_the_guarantee_holds_through_ten_restarts_of_the_broker(
    private_kafka: Any, ledger_on: Callable[[str], Any], on_fire: Callable[..., Fire]
) -> None:
    ledger = ledger_on(private_kafka.bootstrap)
    fire = on_fire("broker restarts", ledger)
    fire.start()
    for _ in fire.rounds(10):
        fire.feed(3000)
        fire.more()
        private_kafka.kill()
        private_kafka.restart()


def test_leaders_and_coordinators_change(
    start_kafka: Any, ledger_on: Callable[..., Any], on_fire: Callable[..., Fire]
) -> None:
    cluster = start_kafka(nodes=3)
    ledger = ledger_on(cluster.bootstrap, replication=3)
    fire = on_fire("three brokers", ledger)
    fire.start()
    for turn in fire.rounds(9):
        fire.feed(3000)
        fire.more()
        # Each node leads partitions, and coordinates groups and transactions, in turn.
        node = turn % 3 + 1
        cluster.kill(node)
        fire.more(500)
        cluster.restart(node)


@pytest.mark.parametrize("assignor", ["range", "consumer"])
def test_two_to_four_members_come_and_go(ledger: Any, on_fire: Callable[..., Fire], assignor: str) -> None:
    fire = on_fire(f"members with {assignor}", ledger, assignor=assignor)
    chance = random.Random(7)
    fire.start()
    fire.start()
    for _ in fire.rounds(30):
        fire.feed(2000)
        some = chance.choice(fire.members)
        if len(fire.members) < 3 or (len(fire.members) < 4 and chance.random() < 0.5):
            fire.start()
        elif chance.random() < 0.5:
            fire.kill(some)
        else:
            fire.stop(some)
        time.sleep(chance.uniform(0.5, 4.0))


def test_members_stand_still_for_longer_than_a_transaction(ledger: Any, on_fire: Callable[..., Fire]) -> None:
    fire = on_fire("SIGSTOP", ledger)
    chance = random.Random(3)
    fire.start()
    fire.start()
    # A client is replaced three times in ten minutes, then the service stops: each member stands still once or twice.
    for turn in fire.rounds(4):
        fire.feed(4000)
        fire.more(500)
        with stopped(fire.members[turn % 2]):
            time.sleep(chance.uniform(6.0, 25.0))


@contextmanager
def stopped(member: Any) -> Iterator[None]:
    member.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        member.process.send_signal(signal.SIGCONT)


def test_the_guarantee_holds_while_brokers_stand_still(
    private_kafka: Any, ledger_on: Callable[[str], Any], on_fire: Callable[..., Fire]
) -> None:
    ledger = ledger_on(private_kafka.bootstrap)
    fire = on_fire("frozen brokers", ledger)
    fire.start()
    for _ in fire.rounds(2):
        fire.feed(6000)
        fire.more(500)
        before = rss(fire.members[0])
        private_kafka.freeze()
        time.sleep(OUTAGE)
        grown = rss(fire.members[0]) - before
        private_kafka.thaw()
        assert grown < MOST_GROWN, f"{grown >> 20} MiB more in the outage"


def test_partitions_whose_leader_is_away_hold_up_no_other(
    start_kafka: Any, ledger_on: Callable[..., Any], on_fire: Callable[..., Fire]
) -> None:
    cluster = start_kafka(nodes=3)
    # Each partition of the records is on one node alone.
    ledger = ledger_on(cluster.bootstrap, replication=1, results=3)
    fire = on_fire("leaders away", ledger, sleep=0.1)
    fire.feed(20_000)
    fire.start()
    for turn in fire.rounds(3):
        node = turn % 3 + 1
        away = led_by(ledger, node)
        assert away
        fire.more()
        cluster.kill(node)
        began, before = time.monotonic(), rss(fire.members[0])
        # Another member takes part in between, and has to find its place in partitions that nobody can tell it of.
        fire.start()
        elsewhere = ends(ledger, but=away)
        deadline = time.monotonic() + 240
        while committed(ledger, but=away) < elsewhere:
            fire.progress()
            assert time.monotonic() < deadline, "partitions that are there are held up by those that are not"
            time.sleep(2)
        time.sleep(max(began + OUTAGE - time.monotonic(), 0.0))
        assert rss(fire.members[0]) - before < MOST_GROWN
        cluster.restart(node)
        fire.stop(fire.members[-1])
        fire.feed(10_000)


def test_an_outage_of_partitions_of_the_results(
    start_kafka: Any, ledger_on: Callable[..., Any], on_fire: Callable[..., Fire]
) -> None:
    cluster = start_kafka(nodes=3)
    # Each partition of the results is on one node alone, while records are there all the time: they fill all buffers.
    ledger = ledger_on(cluster.bootstrap, replication=3, results=1)
    fire = on_fire("results away", ledger, sleep=0.0)
    fire.feed(2000, filler=4000)
    fire.start()
    fire.until(2000)
    before = rss(fire.members[0])
    for turn in fire.rounds(1):
        cluster.kill(turn % 3 + 1)
        fire.feed(40_000, filler=4000)
        deadline = time.monotonic() + OUTAGE
        while time.monotonic() < deadline:
            time.sleep(5)
            grown = rss(fire.members[0]) - before
            assert grown < MOST_GROWN, f"{grown >> 20} MiB more in the outage"
            fire.progress(sampled=False)
        aborted, replaced = (fire.members[0].text().count(text) for text in ("is aborted", "is replaced"))
        print(
            f"  {grown >> 20} MiB more after {OUTAGE:.0f} s, {aborted} aborts, {replaced} clients replaced", flush=True
        )
        cluster.restart(turn % 3 + 1)
        fire.until(fire.written)


@pytest.mark.usefixtures("hot_path")
def test_a_broker_that_stands_still_dies_and_comes_back(
    start_kafka: Any, ledger_on: Callable[..., Any], on_fire: Callable[..., Fire]
) -> None:
    cluster = start_kafka()
    ledger = ledger_on(cluster.bootstrap)
    fire = on_fire("frozen and killed", ledger)
    fire.feed(2000)
    fire.start()
    fire.until(2000)
    for _ in fire.rounds(20):
        for frozen, thawed in ((25, 9), (9, 0), (20, 2), (12, 10)):
            fire.feed(10_000)
            stand_still_and_die(cluster, frozen, thawed)
            time.sleep(10)
        # It goes on by itself, and within a minute.
        fire.until(fire.written)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "created again"])
def test_the_sinks_topic_is_deleted(ledger: Any, bench: Callable[..., Any], delivery: str, again: bool) -> None:
    made = bench(ledger, DELIVERIES[delivery], sink="timeout: 30s, client: {allow.auto.create.topics: false}")
    ledger.write(3000)
    member = made.start(0.01)
    wait_for(ledger, 3000, 120, member)
    # Its messages are gone with the topic.
    ledger.check()
    before = dict(ledger.written)
    admin = AdminClient({"bootstrap.servers": ledger.bootstrap})
    admin.delete_topics([ledger.sink])[ledger.sink].result()
    ledger.write(3000, seed=2)
    if again:
        time.sleep(10)
        create_topics(ledger.bootstrap, {ledger.sink: 4})
        wait_for(ledger, 6000, 240, member)
        assert member.stop() == 0, member.text()
        results = Counter((key, seq) for _, _, key, seq in ledger.read_results())
        wanted = {(key, seq) for key, end in ledger.written.items() for seq in range(before.get(key, 0), end)}
        assert wanted <= results.keys(), "records were lost"
        if delivery == "exactly_once":
            assert max(results.values()) == 1, "results were repeated"
    else:
        assert member.process.wait(300) == 1
        assert ledger.committed() == 3000


def led_by(ledger: Any, node: int) -> set[int]:
    """The partitions of the records that this node leads."""
    admin = AdminClient({"bootstrap.servers": ledger.bootstrap})
    found = admin.list_topics(ledger.source, 60).topics[ledger.source].partitions
    return {number for number, partition in found.items() if partition.leader == node}


def ends(ledger: Any, but: set[int]) -> int:
    """How many records are in the other partitions."""
    return sum(partition not in but for partition, _ in ledger.by_offset)


def committed(ledger: Any, but: set[int]) -> int:
    """How many records of the other partitions are committed."""
    ledger.sample()
    return sum(offset for partition, offset in ledger.sampled[-1][0].items() if partition not in but)


def rss(member: Any) -> int:
    """Bytes of memory that a member has."""
    status = Path(f"/proc/{member.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024


def test_the_guarantee_holds_through_kills_and_bad_records(
    ledger: Any, topics: Any, on_fire: Callable[..., Fire]
) -> None:
    dead = topics(1, "ledger-dead")
    fire = on_fire("poison", ledger, f"\ndead_letter: {{type: kafka, topic: {dead}}}", sink="max_message: 3000")
    for _ in fire.rounds(10):
        member = fire.start()
        fire.feed(3000, poisoned=True)
        fire.more(1000)
        fire.kill(member)
    letters = [letter.key for letter in read_letters(ledger, dead)]
    assert len(set(letters)) == fire.poison
    if fire.delivery == "exactly_once":
        assert len(letters) == fire.poison, "dead letters were repeated"
