"""`delivery: exactly_once` while members come, go, die and are fenced, and topics are cut off, lose and refuse, all at
random: every result is visible once, in the order of its key, and no position is committed before its result."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import Any, ClassVar

import pytest
from mortal import World, fate, number_of

from connectors.memory import Faults, MemoryTopic, MemoryTransactionalSink, MemoryTransactions

_identities = itertools.count()


def wanted(number: int) -> int:
    """How many results of this record each output has."""
    return {"fails": 0, "dropped": 0, "doubled": 2, "passed": 1}[fate(number)]


class TransactionalWorld(World):
    """What is visible is so once, and with it its position."""

    TROUBLES: ClassVar = [
        *("lose", "refuse", "refuse late", "refuse late", "cut", "silent", "die", "expel", "fence", "leave", "slow")
    ]

    def __init__(self, seed: int, define: Any, serve: Any) -> None:
        super().__init__(seed, define, serve)
        self.faults = Faults()
        self.fenced: Counter[str] = Counter()

    def join(self) -> None:
        shared = MemoryTransactions(self.faults, f"chaos-{next(_identities)}")
        sinks = {
            topic.name: MemoryTransactionalSink(topic, transactions=shared, name=topic.name, max_in_flight=2048)
            for topic in self.outputs
        }
        interval = self.chance.choice(["1ms", "20ms", "200ms"])
        self.serve(
            sinks,
            MemoryTransactionalSink(self.letters, transactions=shared, name="dead_letter"),
            delivery="exactly_once",
            transaction={"interval": interval, "max_records": self.chance.choice([10, 1000]), "timeout": "60s"},
        )

    def die(self) -> None:
        member = self.picked()
        member.source.die()
        # It could wait for a commit otherwise, as the topics may be cut off.
        self.faults.mend()
        assert member.agent.join(60).reason == "failed"

    def leave(self) -> None:
        self.mend()
        super().leave()

    def fence(self) -> None:
        """Another process takes the identity of a member over, though not so often that the member gives up."""
        identity = self.chance.choice(self.members).sink.transactions._identity
        if self.fenced[identity] < 3:
            self.fenced[identity] += 1
            MemoryTransactionalSink(transactions=MemoryTransactions(Faults(), identity)).open()

    def trouble(self, kind: str, topic: MemoryTopic) -> None:
        chance = self.chance
        match kind:
            case "lose":
                topic.faults.lose = lambda message: chance.random() < 0.005
            case "refuse" if topic is not self.letters:
                topic.faults.refuse = lambda message: "no" if number_of(message) % 41 == 0 else None
            case "refuse late" if topic is not self.letters:
                topic.faults.refuse_late = lambda message: "too large" if number_of(message) % 97 == 0 else None
            case "cut":
                self.faults.cut()
            case "silent":
                self.faults.silent = 2
            case "slow":
                topic.faults.delay = 0.01
            case "fence":
                self.fence()
            case "expel":
                chance.choice(self.members).source.expel()
            case "die":
                self.die()
            case "leave" if len(self.members) > 1:
                self.leave()

    def mend(self) -> None:
        super().mend()
        self.faults.mend()
        self.faults.silent = 0

    def watch(self, seconds: float) -> None:
        super().watch(seconds)
        self.faults.mend()

    def check(self) -> int:
        acknowledged = self.acknowledged()
        results = [Counter(map(number_of, topic.messages())) for topic in self.outputs]
        buried = Counter(map(number_of, self.letters.messages()))
        assert set(buried.values()) <= {1}, buried.most_common(3)
        for counts in results:
            for number, count in counts.items():
                assert count <= wanted(number), f"{number} is visible {count} times"
        for number in self.numbers(acknowledged):
            if number not in buried:
                assert fate(number) != "fails", f"{number} is committed, and nowhere"
                assert [counts[number] for counts in results] == [wanted(number)] * 2, f"{number} is not visible"
        for member in self.members:
            assert member.agent.summary is None, member.agent.summary
        return sum(acknowledged)

    def finish(self) -> None:
        super().finish()
        while self.members:
            self.leave()
        self.check()
        for topic in self.outputs:
            last: dict[bytes | None, int] = defaultdict(lambda: -1)
            for message in topic.messages():
                number = number_of(message)
                assert number >= last[message.key], f"{number} after {last[message.key]}"
                last[message.key] = number


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.slow
def test_every_result_is_visible_once_whatever_goes_wrong(seed: int, define: Any, serve: Any) -> None:
    TransactionalWorld(seed, define, serve).mischief(5)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 120))
def test_every_result_is_visible_once_whatever_goes_wrong_for_long(seed: int, define: Any, serve: Any) -> None:
    TransactionalWorld(seed, define, serve).mischief(25)
