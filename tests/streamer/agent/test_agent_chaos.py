"""Members of a group come, go and die, sinks lose and refuse, steps fail, all at random: nothing may be lost."""

from __future__ import annotations

import itertools
import random
import time
from collections import defaultdict
from typing import Any

import pytest
from mortal import Mortal, fate, pipeline

from connectors.memory import MemorySink, MemoryTopic
from connectors.message import Message
from pipelines import Data
from pipelines.errors import ConnectorError

KEYS = 40
PARTITIONS = 4
LIMIT = 16 * 1024


class MortalSink(MemorySink):
    """A sink whose process can die: nothing is sent from then on. Or it breaks, and what it has stays confirmed."""

    dead = broken = False

    def send(self, *arguments: Any) -> Any:
        self._check()
        if self.broken:
            raise ConnectorError("broken")
        return super().send(*arguments)

    def barrier(self, deadline: float) -> Any:
        self._check()
        return super().barrier(deadline)

    def _check(self) -> None:
        if self.dead:
            raise ConnectorError("dead")


class World:
    """One input topic, two output topics, one for dead letters, and the members of a group between them."""

    def __init__(self, seed: int, define: Any, serve: Any) -> None:
        self.chance = random.Random(seed)
        self.input = MemoryTopic("in", PARTITIONS)
        self.outputs = [MemoryTopic("a"), MemoryTopic("b")]
        self.letters = MemoryTopic("dead")
        self.members: list[Any] = []
        self.written = 0
        self.refused: set[int] = set()
        self._define = define
        self._serve = serve

    def write(self, count: int) -> None:
        """Each record has a number of its own, and counts up for its key."""
        for number in range(self.written, self.written + count):
            payload = Data({"number": number, "key": number % KEYS, "filler": b"." * 50}).to_bytes()
            self.input.append(Message(payload, f"key-{number % KEYS}".encode()))
        self.written += count

    def join(self) -> None:
        """One more member."""
        sinks = [{"type": "memory", "topic": topic.name, "name": topic.name} for topic in self.outputs]
        batch = {"max_records": self.chance.choice([1, 7, 30]), "max_bytes": "4KiB"}
        if self.chance.random() < 0.3:
            batch |= {"type": "hard", "max_age": "50ms"}
        definition = self._define(
            pipeline,
            sink=sinks,
            batch=batch,
            limits={"in_flight": LIMIT, "confirm": "300ms"},
            errors={"stop_ratio": 1.0},
        )
        self.members.append(
            self._serve(
                definition,
                {"memory": Mortal(topic=self.input, name="memory")},
                {topic.name: MortalSink(topic, name=topic.name, max_in_flight=2048) for topic in self.outputs},
                MortalSink(self.letters, name="dead_letter"),
            )
        )

    def leave(self) -> None:
        """The first member is stopped in good order."""
        member = self.members.pop(0)
        assert member.stop().error is None

    def die(self) -> None:
        """A member is killed."""
        member = self.members.pop(self.chance.randrange(len(self.members)))
        for sink in [*member.sinks.values(), member.dead]:
            sink.dead = True
        member.source.die()
        assert member.agent.join(60).reason == "failed"

    def break_down(self) -> None:
        """The second sink of a member is broken for good, after the first has its batch: the member gives up."""
        member = self.members.pop(self.chance.randrange(len(self.members)))
        member.sinks["b"].broken = True
        self.write(50)
        assert member.agent.join(60).reason == "failed"

    def check(self) -> int:
        """What is acknowledged is where it belongs; returns how many records are."""
        group = self.input.group("default")
        with self.input.changed:
            acknowledged = list(group.acknowledged)
        found = [self.found(topic) for topic in self.outputs]
        buried = self.found(self.letters)
        for partition, position in enumerate(acknowledged):
            for message in self.input.read(partition, 0, position, 2**40)[1]:
                number = Data.from_bytes(message.value)["number"]
                if number in buried or fate(number) == "dropped":
                    continue
                assert fate(number) != "fails", f"{number} is acknowledged, and nowhere"
                wanted = 2 if fate(number) == "doubled" else 1
                for topic in found:
                    assert topic[number] >= wanted, f"{number} is acknowledged, and not in every sink"
        for member in self.members:
            assert member.agent.meters.in_flight() <= LIMIT
            assert member.agent.summary is None, member.agent.summary
        return sum(acknowledged)

    @staticmethod
    def found(topic: MemoryTopic) -> dict[int, int]:
        """How often each number is in the topic."""
        counts: dict[int, int] = defaultdict(int)
        for message in topic.messages():
            counts[Data.from_bytes(message.value)["number"]] += 1
        return counts

    def watch(self, seconds: float) -> None:
        """Check again and again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            time.sleep(0.02)

    def finish(self) -> None:
        """Mend everything and wait until all is acknowledged."""
        for topic in [*self.outputs, self.letters]:
            topic.faults.mend()
            topic.faults.lose = topic.faults.refuse = None
            topic.faults.delay = 0.0
        if not self.members:
            self.join()
        deadline = time.monotonic() + 120
        while self.check() < self.written:
            assert time.monotonic() < deadline, f"{self.check()} of {self.written} records are acknowledged"
            time.sleep(0.02)

    def order(self, topic: MemoryTopic) -> None:
        """Each key's records come in their order, but for what comes again."""
        last: dict[int, int] = {}
        for message in topic.messages():
            data = Data.from_bytes(message.value)
            number, key = data["number"], data["key"]
            between = range(last.get(key, key - KEYS) + KEYS, number, KEYS)
            skipped = [one for one in between if fate(one) in ("passed", "doubled")]
            assert not skipped, f"{number} came before {skipped}"
            last[key] = max(number, last.get(key, number))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.slow
def test_members_that_come_and_go_lose_nothing_and_keep_the_order_of_each_key(
    seed: int, define: Any, serve: Any
) -> None:
    world = World(seed, define, serve)
    world.join()
    for _ in range(4):
        world.write(300)
        world.join()
        world.watch(0.3)
        world.leave()
        world.watch(0.1)
    world.finish()
    for topic in world.outputs:
        world.order(topic)


TROUBLES = ["lose", "lose", "refuse", "cut", "slow", "die", "break", "leave"]


def trouble(kind: str, world: World, topic: MemoryTopic) -> None:
    """One thing that goes wrong."""
    chance = world.chance
    match kind:
        case "lose":
            topic.faults.lose = lambda message: chance.random() < 0.02
        case "refuse" if topic is not world.letters:
            topic.faults.refuse = lambda message: "no" if Data.from_bytes(message.value)["number"] % 41 == 0 else None
        case "cut":
            topic.faults.cut()
        case "slow":
            topic.faults.delay = 0.01
        case "die" if world.members:
            world.die()
        case "break" if world.members:
            # Nobody else mends them while this waits: a member that gives up a partition would wait half a minute for
            # its dead letters, and so would the one that is to break.
            for one in [*world.outputs, world.letters]:
                one.faults.mend()
            world.break_down()
        case "leave" if len(world.members) > 1:
            for one in [*world.outputs, world.letters]:
                one.faults.mend()
            world.leave()


def mischief(seed: int, rounds: int, define: Any, serve: Any) -> None:
    world = World(seed, define, serve)
    chance = world.chance
    # Dealt like cards, so that each comes up.
    dealt = itertools.cycle(chance.sample(TROUBLES, len(TROUBLES)))
    for _ in range(rounds):
        while len(world.members) < chance.choice([1, 2, 3]):
            world.join()
        world.write(250)
        for topic in chance.sample([*world.outputs, world.letters], chance.choice([1, 2])):
            trouble(next(dealt), world, topic)
        world.watch(chance.uniform(0.1, 0.6))
        for topic in [*world.outputs, world.letters]:
            if chance.random() < 0.7:
                topic.faults.mend()
                topic.faults.lose, topic.faults.delay = None, 0.0
    world.finish()
    buried = world.found(world.letters)
    for topic in world.outputs:
        found = world.found(topic)
        for number in range(world.written):
            assert found[number] or number in buried or fate(number) == "dropped"


@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.slow
def test_nothing_is_lost_whatever_goes_wrong(seed: int, define: Any, serve: Any) -> None:
    mischief(seed, 6, define, serve)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 120))
def test_nothing_is_lost_whatever_goes_wrong_for_long(seed: int, define: Any, serve: Any) -> None:
    mischief(seed, 25, define, serve)
