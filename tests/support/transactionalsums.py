"""Services that save sums in the transactions of their results, on memory topics: each record has to be in one sum."""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from mortal import Mortal
from savedsums import SumFactory, Sums, SumStep, WithSums

from connectors.memory import (
    Faults,
    MemoryTopic,
    MemoryTransactionalSink,
    MemoryTransactions,
)
from connectors.message import Message
from connectors.sink import TransactionalSink
from connectors.statetopic import StateRecord, StateTopic
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.definition.settings import StateTopicSettings
from streamer.state.topicstore import TopicStore

_identities = itertools.count()


class MemoryStateTopic(StateTopic):
    """State in a memory topic, in the transactions of memory sinks."""

    name, id, longest = "state", "memory", 1 << 20
    partitions = ()

    def __init__(self, topic: MemoryTopic, transactions: MemoryTransactions) -> None:
        self._topic = topic
        self._transactions = transactions

    def share(self, first: TransactionalSink) -> None: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def number(self, partition: str) -> int:
        return int(partition)

    def read(self, partition: int, tell: Callable[[], None]) -> dict[bytes, bytes]:
        tell()
        last = {
            message.key or b"": message.value for message in self._topic.messages() if message.partition == partition
        }
        return {key: value for key, value in last.items() if value is not None}

    def write(self, *arguments: Any) -> None:
        raise AssertionError("it has no transactions of its own")

    def sending(self, records: Sequence[StateRecord]) -> Callable[[float], None]:
        rest = [Message(record.value, record.key, partition=record.partition) for record in records]

        def send(deadline: float) -> None:
            self._transactions.add(self._topic, rest[:])
            rest.clear()

        return send

    def forget(self) -> None: ...

    def look(self) -> None:
        raise AssertionError("nobody looks into it")

    def checked(self) -> str:
        raise AssertionError("nobody checks it")

    def each(self, partition: int) -> Iterator[tuple[bytes, bytes | None]]:
        raise AssertionError("nobody looks into it")

    def check_unused(self) -> None:
        raise AssertionError("nobody looks into it")

    def clear(self, partition: int, keys: Sequence[bytes]) -> None:
        raise AssertionError("nobody looks into it")


class SummingMember:
    """One service of the group."""

    def __init__(self, agent: Agent, source: Mortal, sums: Sums, identity: str) -> None:
        self.agent, self.source, self.sums, self.identity = agent, source, sums, identity
        self.fenced = 0


class SummingWorld:
    """Topics, and the services of one group that sum up numbers: of each key 1, 2, 3 and so on, three to a sum."""

    def __init__(self, define: Any, monkeypatch: pytest.MonkeyPatch, partitions: int = 1) -> None:
        self.input, self.output = MemoryTopic("in", partitions), MemoryTopic("out")
        self.letters, self.state = MemoryTopic("dead"), MemoryTopic("state", partitions)
        self.faults = Faults()
        self.members: list[SummingMember] = []
        self._define = define
        self._factory = SumFactory()
        monkeypatch.setattr(WithSums, "factory", self._factory)
        self._written: dict[str, int] = defaultdict(int)

    def feed(self, *keys: str) -> None:
        """The next number of each of these keys."""
        for key in keys:
            self._written[key] += 1
            payload = Data({"k": key, "x": self._written[key]}).to_bytes()
            self.input.append(Message(payload, key.encode()), 1e18)

    def start(self, **settings: Any) -> SummingMember:
        """One more member."""
        identity = f"sums-{next(_identities)}"
        given = {"batch": {"max_records": 4}, "errors": {"stop_ratio": 1.0, "first": 0}, **settings}
        given = {"transaction": {"interval": "20ms", "timeout": "30s"}, **given}
        service = self._define(delivery="exactly_once", **given).model_copy(
            update={"pipeline": WithSums([SumStep()]), "state": StateTopicSettings(topic="state")}
        )
        shared = MemoryTransactions(self.faults, identity, timeout=service.transactions.timeout)
        source = Mortal(topic=self.input)
        assembly = build(
            service,
            sources={"memory": source},
            sinks={"memory": MemoryTransactionalSink(self.output, transactions=shared)},
            dead=MemoryTransactionalSink(self.letters, transactions=shared, name="dead_letter"),
        )
        assembly.state = TopicStore(MemoryStateTopic(self.state, shared), "sums")
        agent = Agent(service, assembly=assembly)
        agent.start()
        self.members.append(SummingMember(agent, source, self._factory.runners[-1], identity))
        return self.members[-1]

    def stop(self, member: SummingMember) -> None:
        """It ends in order."""
        self.faults.mend()
        self.members.remove(member)
        member.agent.stop()
        summary = member.agent.join(60)
        assert summary.error is None, summary.error

    def kill(self, member: SummingMember) -> None:
        """It ends as a process that is killed."""
        self.members.remove(member)
        member.source.die()
        # It could wait for a commit otherwise, as the topics may be cut off.
        self.faults.mend()
        assert member.agent.join(60).reason == "failed"

    def fence(self, member: SummingMember) -> None:
        """Another process takes its identity over, though not so often that it gives up."""
        if member.fenced < 3:
            member.fenced += 1
            MemoryTransactionalSink(transactions=MemoryTransactions(Faults(), member.identity)).open()

    def end(self) -> None:
        """End all members, however."""
        self.faults.mend()
        for member in self.members:
            member.agent.stop()
            member.agent.join(60)

    @property
    def acknowledged(self) -> int:
        """How many records are committed."""
        with self.input.changed:
            return sum(self.input.group("default").acknowledged)

    def wait(self, count: int | None = None) -> None:
        """Until so many records are committed, or all."""
        wanted = sum(self._written.values()) if count is None else count
        deadline = time.monotonic() + 60
        while self.acknowledged < wanted:
            for member in self.members:
                assert member.agent.summary is None, member.agent.summary
            assert time.monotonic() < deadline, f"{self.acknowledged} of {wanted}"
            time.sleep(0.005)

    @property
    def sums(self) -> dict[str, list[int]]:
        """The sums of each key that readers see, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for message in self.output.messages():
            data = Data.from_bytes(message.value)
            found[data["k"]].append(data["y"])
        return found

    @property
    def open(self) -> dict[str, list[int]]:
        """The numbers of the open sums of each key, as the topic of the state has them."""
        found: dict[str, list[int]] = {}
        last = {(message.partition, message.key): message.value for message in self.state.messages()}
        for (_, key), value in last.items():
            kind, *rest = json.loads(key or b"")
            if kind == "item" and value is not None:
                found[rest[1]] = json.loads(value)[0]
        return found

    @property
    def saved_positions(self) -> list[int]:
        """The position that the state of each partition has seen."""
        found = [0] * self.state.partitions
        for message in self.state.messages():
            if message.key == b'["position"]':
                found[message.partition or 0] = json.loads(message.value)["position"]
        return found

    def check(self, buried: int = 0) -> None:
        """Each record is in one sum, or in the state; positions are the same; `buried` sums are dead letters."""
        sums, left = self.sums, self.open
        lacking = 0
        for key, count in self._written.items():
            full = [9 * at + 6 for at in range(count // 3)]
            lacking += len(set(full) - set(sums[key]))
            assert [one for one in full if one in sums[key]] == sums[key], key
            assert left.get(key, []) == list(range(count - count % 3 + 1, count + 1)), key
        assert lacking == buried == len(self.letters.messages())
        with self.input.changed:
            assert self.saved_positions == list(self.input.group("default").acknowledged)

    def check_in_order(self) -> None:
        """Each record is in one sum, of one to three of them, or in the state, in the order of its key."""
        sums, left = self.sums, self.open
        for key, count in self._written.items():
            following = 1
            for each in sums[key]:
                sizes = {sum(range(following, following + size)): size for size in (1, 2, 3)}
                assert each in sizes, f"{each} of {key} is no sum that begins with {following}: {sums[key]}"
                following += sizes[each]
            assert left.get(key, []) == list(range(following, count + 1)), key
        with self.input.changed:
            assert self.saved_positions == list(self.input.group("default").acknowledged)
