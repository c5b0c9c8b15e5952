"""Chaos for services on memory topics: members of a group that come, go and die, and a fate for each record."""

from __future__ import annotations

import itertools
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from connectors.memory import MemorySource, MemoryTopic
from connectors.message import Message
from connectors.records import Lane
from pipelines import Data
from pipelines.errors import ConnectorError


class Mortal(MemorySource):
    """A source whose process can die: its group expels it, so that it can commit nothing either."""

    dead = False

    def poll(self, *arguments: Any) -> Any:
        self._check()
        return super().poll(*arguments)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        self._check()
        super().acknowledge(positions, wait=wait)

    def standing_still(self, still: bool) -> None:
        if not self.dead:
            super().standing_still(still)

    def die(self) -> None:
        self.dead = True
        self.expel()

    def expel(self) -> None:
        """Its session is over; it does not know yet."""
        with self.topic.changed:
            self.group.expel(self)
            self.topic.changed.notify_all()

    def _check(self) -> None:
        if self.dead:
            raise ConnectorError("dead")


def fate(number: int) -> str:
    """What the pipeline does with the record of this number."""
    if number % 53 == 0:
        return "fails"
    if number % 31 == 0:
        return "dropped"
    return "doubled" if number % 17 == 0 else "passed"


def pipeline(data: Data) -> Any:
    number = data["number"]
    match fate(number):
        case "fails":
            raise ValueError("poison")
        case "dropped":
            return None
        case "doubled":
            return [data, data]
    if number % 7 == 0:
        time.sleep(0.001)
    return data


KEYS = 40


def number_of(message: Message) -> int:
    """The number of the record that this message, or its result, or its dead letter, was made of."""
    number: int = Data.from_bytes(message.value)["number"]
    return number


class World(ABC):
    """One input topic, two output topics, one for dead letters, and the members of a group between them.

    `define` and `serve` are the fixtures. A class derived from this says what a member is, and what has to hold.
    """

    TROUBLES: ClassVar[list[str]]
    """The kinds of trouble, each as often as it comes up in a round of all."""

    def __init__(self, seed: int, define: Any, serve: Any) -> None:
        self.chance = random.Random(seed)
        self.input = MemoryTopic("in", 4)
        self.outputs = [MemoryTopic("a"), MemoryTopic("b")]
        self.letters = MemoryTopic("dead")
        self.topics = [*self.outputs, self.letters]
        self.members: list[Any] = []
        self.written = 0
        self._define = define
        self._serve = serve

    @abstractmethod
    def join(self) -> None:
        """One more member."""

    @abstractmethod
    def die(self) -> None:
        """A member is killed."""

    @abstractmethod
    def trouble(self, kind: str, topic: MemoryTopic) -> None:
        """Something goes wrong, with this topic if it is of a kind that befalls topics."""

    @abstractmethod
    def check(self) -> int:
        """Check that what is acknowledged is where it belongs; returns how many records are acknowledged."""

    def write(self, count: int) -> None:
        """Each record has a number of its own, and counts up for its key."""
        for number in range(self.written, self.written + count):
            payload = Data({"number": number, "filler": b"." * 50}).to_bytes()
            self.input.append(Message(payload, f"key-{number % KEYS}".encode()))
        self.written += count

    def serve(self, sinks: dict[str, Any], letters: Any, limit: Any = "16KiB", **fields: Any) -> None:
        """Start a member with these sinks and fields of its service."""
        batch: dict[str, Any] = {"max_records": self.chance.choice([1, 7, 30]), "max_bytes": "4KiB"}
        if self.chance.random() < 0.3:
            batch |= {"type": "hard", "max_age": "50ms"}
        definition = self._define(
            pipeline,
            sink=[{"type": "memory", "topic": name, "name": name} for name in sinks],
            batch=batch,
            limits={"in_flight": limit, "confirm": "300ms"},
            errors={"stop_ratio": 1.0},
            **fields,
        )
        source = Mortal(topic=self.input, name="memory")
        self.members.append(self._serve(definition, {"memory": source}, sinks, letters))

    def leave(self) -> None:
        """The first member is stopped in good order."""
        assert self.members.pop(0).stop().error is None

    def picked(self) -> Any:
        """A member by chance, which takes part no longer."""
        return self.members.pop(self.chance.randrange(len(self.members)))

    def mend(self) -> None:
        """Nothing goes wrong any more."""
        for topic in self.topics:
            topic.faults.mend()
            topic.faults.lose = topic.faults.refuse = topic.faults.refuse_late = None
            topic.faults.delay = 0.0

    def acknowledged(self) -> list[int]:
        """The acknowledged positions, by partition."""
        with self.input.changed:
            return list(self.input.group("default").acknowledged)

    def numbers(self, acknowledged: list[int]) -> list[int]:
        """The numbers of the records before these positions."""
        return [
            number_of(message)
            for partition, position in enumerate(acknowledged)
            for message in self.input.read(partition, 0, position, 2**40)[1]
        ]

    def watch(self, seconds: float) -> None:
        """Check again and again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.check()
            time.sleep(0.02)

    def finish(self) -> None:
        """Mend everything and wait until all is acknowledged."""
        self.mend()
        if not self.members:
            self.join()
        deadline = time.monotonic() + 120
        while (done := self.check()) < self.written:
            assert time.monotonic() < deadline, f"{done} of {self.written} records are acknowledged"
            time.sleep(0.02)

    def mischief(self, rounds: int) -> None:
        """So many rounds of records and trouble, then an end in peace."""
        # Dealt like cards, so that each comes up.
        dealt = itertools.cycle(self.chance.sample(self.TROUBLES, len(self.TROUBLES)))
        for _ in range(rounds):
            while len(self.members) < self.chance.choice([1, 2, 3]):
                self.join()
            self.write(200)
            for topic in self.chance.sample(self.topics, 2):
                if self.members:
                    self.trouble(next(dealt), topic)
            self.watch(self.chance.uniform(0.1, 0.5))
            if self.chance.random() < 0.7:
                self.mend()
        self.finish()
