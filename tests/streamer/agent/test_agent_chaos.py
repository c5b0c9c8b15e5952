"""Members of a group come, go and die, sinks lose and refuse, steps fail, all at random: nothing may be lost."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
from mortal import KEYS, World, fate, number_of

from connectors.memory import MemorySink, MemoryTopic
from pipelines.errors import ConnectorError

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


class MortalWorld(World):
    """Nothing that is acknowledged is missing, in no sink."""

    TROUBLES: ClassVar = ["lose", "lose", "refuse", "cut", "slow", "die", "break", "leave"]

    def join(self) -> None:
        sinks = {topic.name: MortalSink(topic, name=topic.name, max_in_flight=2048) for topic in self.outputs}
        self.serve(sinks, MortalSink(self.letters, name="dead_letter"), LIMIT)

    def die(self) -> None:
        member = self.picked()
        for sink in [*member.sinks.values(), member.dead]:
            sink.dead = True
        member.source.die()
        assert member.agent.join(60).reason == "failed"

    def break_down(self) -> None:
        """The second sink of a member is broken for good, after the first has its batch: the member gives up."""
        member = self.picked()
        member.sinks["b"].broken = True
        self.write(50)
        assert member.agent.join(60).reason == "failed"

    def trouble(self, kind: str, topic: MemoryTopic) -> None:
        chance = self.chance
        match kind:
            case "lose":
                topic.faults.lose = lambda message: chance.random() < 0.02
            case "refuse" if topic is not self.letters:
                topic.faults.refuse = lambda message: "no" if number_of(message) % 41 == 0 else None
            case "cut":
                topic.faults.cut()
            case "slow":
                topic.faults.delay = 0.01
            case "die":
                self.die()
            case "break":
                # Nobody else mends them while this waits: a member that gives up a partition would wait half a minute
                # for its dead letters, and so would the one that is to break.
                self.uncut()
                self.break_down()
            case "leave" if len(self.members) > 1:
                self.uncut()
                self.leave()

    def uncut(self) -> None:
        """All topics can be reached."""
        for topic in self.topics:
            topic.faults.mend()

    def check(self) -> int:
        acknowledged = self.acknowledged()
        results = [self.counts(topic) for topic in self.outputs]
        buried = self.counts(self.letters)
        for number in self.numbers(acknowledged):
            if number not in buried and fate(number) != "dropped":
                assert fate(number) != "fails", f"{number} is acknowledged, and nowhere"
                wanted = 2 if fate(number) == "doubled" else 1
                for counts in results:
                    assert counts[number] >= wanted, f"{number} is acknowledged, and not in every sink"
        for member in self.members:
            assert member.agent.meters.in_flight() <= LIMIT
            assert member.agent.summary is None, member.agent.summary
        return sum(acknowledged)

    @staticmethod
    def counts(topic: MemoryTopic) -> Counter[int]:
        """How often each number is in the topic."""
        return Counter(map(number_of, topic.messages()))

    def finish(self) -> None:
        super().finish()
        buried = self.counts(self.letters)
        for topic in self.outputs:
            counts = self.counts(topic)
            for number in range(self.written):
                assert counts[number] or number in buried or fate(number) == "dropped"

    def order(self, topic: MemoryTopic) -> None:
        """Each key's records come in their order, but for what comes again."""
        last: dict[int, int] = {}
        for message in topic.messages():
            number = number_of(message)
            key = number % KEYS
            between = range(last.get(key, key - KEYS) + KEYS, number, KEYS)
            skipped = [one for one in between if fate(one) in ("passed", "doubled")]
            assert not skipped, f"{number} came before {skipped}"
            last[key] = max(number, last.get(key, number))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.slow
def test_members_that_come_and_go_lose_nothing_and_keep_the_order_of_each_key(
    seed: int, define: Any, serve: Any
) -> None:
    world = MortalWorld(seed, define, serve)
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


@pytest.mark.parametrize("seed", [11, 12, 13])
@pytest.mark.slow
def test_nothing_is_lost_whatever_goes_wrong(seed: int, define: Any, serve: Any) -> None:
    MortalWorld(seed, define, serve).mischief(6)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 120))
def test_nothing_is_lost_whatever_goes_wrong_for_long(seed: int, define: Any, serve: Any) -> None:
    MortalWorld(seed, define, serve).mischief(25)
