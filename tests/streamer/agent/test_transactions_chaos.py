"""`delivery: exactly_once` while members come, go, die and are fenced, and topics are cut off, lose and refuse, all at
random: every result is visible once, in the order of its key, and no position is committed before its result."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter, defaultdict
from typing import Any

import pytest
from mortal import Mortal, fate, pipeline

from connectors.memory import Faults, MemoryTopic, MemoryTransactionalSink, MemoryTransactions
from connectors.message import Message
from pipelines import Data

KEYS = 30
PARTITIONS = 4
_identities = itertools.count()


def wanted(number: int) -> int:
    """How many results of this record each output has."""
    return {"fails": 0, "dropped": 0, "doubled": 2, "passed": 1}[fate(number)]


def number_of(message: Message) -> int:
    number: int = Data.from_bytes(message.value)["number"]
    return number


class World:
    """One input topic, two output topics, one for dead letters, and the members of a group between them."""

    def __init__(self, seed: int, define: Any, serve: Any) -> None:
        self.chance = random.Random(seed)
        self.input = MemoryTopic("in", PARTITIONS)
        self.outputs = [MemoryTopic("a"), MemoryTopic("b")]
        self.letters = MemoryTopic("dead")
        self.faults = Faults()
        self.members: list[Any] = []
        self.fenced: Counter[str] = Counter()
        self.written = 0
        self._define = define
        self._serve = serve

    @property
    def topics(self) -> list[MemoryTopic]:
        return [*self.outputs, self.letters]

    def write(self, count: int) -> None:
        """Each record has a number of its own, and counts up for its key."""
        for number in range(self.written, self.written + count):
            payload = Data({"number": number, "filler": b"." * 50}).to_bytes()
            self.input.append(Message(payload, f"key-{number % KEYS}".encode()))
        self.written += count

    def join(self) -> None:
        """One more member."""
        batch: dict[str, Any] = {"max_records": self.chance.choice([1, 7, 30]), "max_bytes": "4KiB"}
        if self.chance.random() < 0.3:
            batch |= {"type": "hard", "max_age": "50ms"}
        interval = self.chance.choice(["1ms", "20ms", "200ms"])
        definition = self._define(
            pipeline,
            sink=[{"type": "memory", "topic": topic.name, "name": topic.name} for topic in self.outputs],
            batch=batch,
            limits={"in_flight": "16KiB", "confirm": "300ms"},
            errors={"stop_ratio": 1.0},
            delivery="exactly_once",
            transaction={"interval": interval, "max_records": self.chance.choice([10, 1000]), "timeout": "60s"},
        )
        shared = MemoryTransactions(self.faults, f"chaos-{next(_identities)}")
        self.members.append(
            self._serve(
                definition,
                {"memory": Mortal(topic=self.input, name="memory")},
                {
                    topic.name: MemoryTransactionalSink(topic, transactions=shared, name=topic.name, max_in_flight=2048)
                    for topic in self.outputs
                },
                MemoryTransactionalSink(self.letters, transactions=shared, name="dead_letter"),
            )
        )

    def die(self) -> None:
        """A member is killed."""
        member = self.members.pop(self.chance.randrange(len(self.members)))
        member.source.die()
        # It could wait for a commit otherwise, as the topics may be cut off.
        self.faults.mend()
        assert member.agent.join(60).reason == "failed"

    def leave(self) -> None:
        """The first member is stopped in good order."""
        self.mend()
        assert self.members.pop(0).stop().error is None

    def fence(self) -> None:
        """Another process takes the identity of a member over, though not so often that the member gives up."""
        identity = self.chance.choice(self.members).sink.transactions._identity
        if self.fenced[identity] < 3:
            self.fenced[identity] += 1
            MemoryTransactionalSink(transactions=MemoryTransactions(Faults(), identity)).open()

    def mend(self) -> None:
        """Nothing goes wrong any more."""
        self.faults.mend()
        self.faults.silent = 0
        for topic in self.topics:
            topic.faults.mend()
            topic.faults.lose = topic.faults.refuse = topic.faults.refuse_late = None
            topic.faults.delay = 0.0

    def check(self) -> int:
        """What is visible is so once, and with it its position; returns how many records are acknowledged."""
        with self.input.changed:
            acknowledged = list(self.input.group("default").acknowledged)
        found = [Counter(map(number_of, topic.messages())) for topic in self.outputs]
        buried = Counter(map(number_of, self.letters.messages()))
        assert set(buried.values()) <= {1}, buried.most_common(3)
        for counts in found:
            for number, count in counts.items():
                assert count <= wanted(number), f"{number} is visible {count} times"
        for partition, position in enumerate(acknowledged):
            for message in self.input.read(partition, 0, position, 2**40)[1]:
                number = number_of(message)
                if number not in buried:
                    assert fate(number) != "fails", f"{number} is committed, and nowhere"
                    assert [counts[number] for counts in found] == [wanted(number)] * 2, f"{number} is not visible"
        for member in self.members:
            assert member.agent.summary is None, member.agent.summary
        return sum(acknowledged)

    def watch(self, seconds: float) -> None:
        """Check again and again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            time.sleep(0.02)

    def finish(self) -> None:
        """Mend everything and wait until all is committed; then stop, and look at everything."""
        self.mend()
        if not self.members:
            self.join()
        deadline = time.monotonic() + 120
        while self.check() < self.written:
            assert time.monotonic() < deadline, f"{self.check()} of {self.written} records are committed"
            time.sleep(0.02)
        while self.members:
            assert self.members.pop().stop().error is None
        self.check()
        for topic in self.outputs:
            last: dict[bytes | None, int] = defaultdict(lambda: -1)
            for message in topic.messages():
                assert number_of(message) >= last[message.key], f"{number_of(message)} after {last[message.key]}"
                last[message.key] = number_of(message)


TROUBLES = ["lose", "refuse", "refuse late", "refuse late", "cut", "silent", "die", "expel", "fence", "leave", "slow"]


def trouble(kind: str, world: World, topic: MemoryTopic) -> None:
    """One thing that goes wrong."""
    chance = world.chance
    match kind:
        case "lose":
            topic.faults.lose = lambda message: chance.random() < 0.005
        case "refuse" if topic is not world.letters:
            topic.faults.refuse = lambda message: "no" if number_of(message) % 41 == 0 else None
        case "refuse late" if topic is not world.letters:
            topic.faults.refuse_late = lambda message: "too large" if number_of(message) % 97 == 0 else None
        case "cut":
            world.faults.cut()
        case "silent":
            world.faults.silent = 2
        case "slow":
            topic.faults.delay = 0.01
        case "fence":
            world.fence()
        case "expel":
            chance.choice(world.members).source.expel()
        case "die":
            world.die()
        case "leave" if len(world.members) > 1:
            world.leave()


def mischief(seed: int, rounds: int, define: Any, serve: Any) -> None:
    world = World(seed, define, serve)
    chance = world.chance
    # Dealt like cards, so that each comes up.
    dealt = itertools.cycle(chance.sample(TROUBLES, len(TROUBLES)))
    for _ in range(rounds):
        while len(world.members) < chance.choice([1, 2, 3]):
            world.join()
        world.write(150)
        for topic in chance.sample(world.topics, 2):
            if world.members:
                trouble(next(dealt), world, topic)
        world.watch(chance.uniform(0.1, 0.4))
        if chance.random() < 0.7:
            world.mend()
        world.faults.mend()
    world.finish()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.slow
def test_every_result_is_visible_once_whatever_goes_wrong(seed: int, define: Any, serve: Any) -> None:
    mischief(seed, 5, define, serve)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 120))
def test_every_result_is_visible_once_whatever_goes_wrong_for_long(seed: int, define: Any, serve: Any) -> None:
    mischief(seed, 25, define, serve)
