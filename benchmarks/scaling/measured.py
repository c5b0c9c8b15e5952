"""A consumer group on a real broker: members that idle, that come and go under load, and that work off a backlog."""

from __future__ import annotations

import contextlib
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.contestants import Contestant
from benchmarks.process import Program, ProgramFailed
from benchmarks.programs.job import Job
from benchmarks.scaling.traffic import Traffic
from streamer.devbroker import create_topics

MAX_RECORDS: Final = 256
MAX_WAIT: Final = 0.005
RATE: Final = 1_000.0
"""Records a second while members come and go."""
SINK_PARTITIONS: Final = 4
SETTLED: Final = 8.0
"""Seconds that a change of the members is watched."""
BEGINNING: Final = 4.0
"""Seconds that members may take, once they have partitions, until they read all of them."""
_PATIENCE: Final = 120.0
_LOOK: Final = 0.05


class Moved(NamedTuple):
    """What a group did while a member came and one went."""

    joined: float
    """The longest that a record waited for its result when a member came, in seconds."""
    left: float
    """The same when one went, by SIGTERM."""
    usual: float
    """The same before."""
    sent: int
    lost: int
    repeated: int
    idle: float
    """The part of a core that a member needs that gets no records."""


class Group:
    """Members of one group on topics of their own."""

    def __init__(self, bootstrap: str, folder: Path, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.name = f"bench-scaling-{uuid.uuid4().hex[:8]}"
        self.sink = f"{self.name}-out"
        self.partitions = partitions
        self.programs: list[Program] = []
        self._folder = folder
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._stack = ExitStack()

    def __enter__(self) -> Group:
        counts = {self.name: self.partitions, self.sink: SINK_PARTITIONS, f"{self.name}-dead": 1}
        create_topics(self.bootstrap, counts)
        return self

    def __exit__(self, *reason: object) -> None:
        self._stack.close()
        names = [self.name, self.sink, f"{self.name}-dead"]
        for future in self._admin.delete_topics(names, operation_timeout=10.0).values():
            with contextlib.suppress(KafkaException):
                future.result(10.0)

    def start(self) -> Program:
        """A member more."""
        number = len(self.programs)
        own = self._folder / f"{self.name}-{number}"
        own.mkdir()
        job = Job(
            bootstrap=self.bootstrap,
            source=self.name,
            sink=self.sink,
            dead=f"{self.name}-dead",
            group=self.name,
            model="",
            floats=1,
            batch=MAX_RECORDS,
            max_wait=MAX_WAIT,
            linger=0.0,
            keep=False,
            headers=False,
            folder=str(own),
            json=True,
        )
        member = Contestant("ours", lambda job: [sys.executable, "-m", "benchmarks.programs.waiting", job.to_json()])
        program = self._stack.enter_context(Program(member, job))
        self.programs.append(program)
        return program

    def wait(self, members: int) -> None:
        """Wait until the group has so many members, which have all partitions. Raises `ProgramFailed`."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                described = self._admin.describe_consumer_groups([self.name], request_timeout=10.0)
                group = described[self.name].result(10.0)
                shares = [len(member.assignment.topic_partitions) for member in group.members if member.assignment]
                if len(shares) == members and sum(shares) == self.partitions:
                    return
            time.sleep(_LOOK)
        raise ProgramFailed(f"the group has not got {members} members in {_PATIENCE:.0f} s\n{self.programs[-1].log()}")

    def ended(self, topic: str, partitions: int) -> int:
        """How many records a topic has."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, number): latest for number in range(partitions)}
        return sum(future.result(10.0).offset for future in self._admin.list_offsets(asked).values())


def moved(bootstrap: str, folder: Path, members: int, partitions: int, idle_seconds: float = 5.0) -> Moved:
    """So many members, one more, and one less again, under load. Raises `ProgramFailed`."""
    with Group(bootstrap, folder, partitions) as group:
        for _ in range(members):
            group.start()
        group.wait(members)
        time.sleep(BEGINNING)
        before = [program.cpu() for program in group.programs]
        time.sleep(idle_seconds)
        used = [program.cpu() - was for program, was in zip(group.programs, before, strict=True)]
        traffic = Traffic(bootstrap, group.name, partitions, group.sink, SINK_PARTITIONS)
        with traffic.flowing(RATE):
            # The first records of a process take longer.
            time.sleep(3.0)
            steady = time.monotonic()
            time.sleep(SETTLED)
            came = time.monotonic()
            newest = group.start()
            group.wait(members + 1)
            time.sleep(SETTLED)
            went = time.monotonic()
            newest.stop()
            time.sleep(SETTLED)
            ended = time.monotonic()
            for program in group.programs[:members]:
                program.alive()
        results = traffic.results()
    return Moved(
        results.longest(came, went),
        results.longest(went, ended),
        results.longest(steady, came),
        results.sent,
        results.lost,
        results.repeated,
        sum(used) / len(used) / idle_seconds,
    )


def rate(bootstrap: str, folder: Path, members: int, partitions: int, count: int) -> float:
    """Records a second of so many members that work off a backlog of `count`. Raises `ProgramFailed`.

    They stand still while the backlog is made, so that all begin at once.
    """
    with Group(bootstrap, folder, partitions) as group:
        for _ in range(members):
            group.start()
        group.wait(members)
        time.sleep(BEGINNING)
        with _still(group):
            producer = Producer(
                {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": count}
            )
            for number in range(count):
                producer.produce(group.name, b'{"n":%d}' % number, partition=number % partitions)
            if producer.flush(_PATIENCE):
                raise ProgramFailed("the backlog could not be made")
        began, deadline = time.monotonic(), time.monotonic() + _PATIENCE
        first: tuple[float, int] | None = None
        while (done := group.ended(group.sink, SINK_PARTITIONS)) < count:
            if first is None and done:
                first = (time.monotonic(), done)
            for program in group.programs:
                program.alive()
            if time.monotonic() > deadline:
                raise ProgramFailed(f"{done} of {count} records in {time.monotonic() - began:.0f} s")
            time.sleep(_LOOK)
        # From the first results on: until then clients were fetching.
        at, already = first or (began, 0)
        return (count - already) / (time.monotonic() - at)


@contextlib.contextmanager
def _still(group: Group) -> Iterator[None]:
    for program in group.programs:
        program.freeze()
    try:
        yield
    finally:
        for program in group.programs:
            program.thaw()
