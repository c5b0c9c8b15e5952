"""JOIN on a real Kafka: every part is joined once, whatever is lost, and topics that do not fit are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from waiting import until

from connectors.memory import MemorySink, MemoryTopic
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.cli.reach import reached
from streamer.definition.loading import loads
from streamer.definition.service import Service
from streamer.definition.settings import StateTopicSettings
from streamer.devbroker import create_topics

SERVICE = """
name: GROUP
source: {type: kafka, bootstrap: "BROKERS", topics: [LEFT, RIGHT], codec: json,
         client: {session.timeout.ms: 6000, heartbeat.interval.ms: 500}}
pipeline: [{"@type": JOIN, by: part, topics: {left: LEFT, right: RIGHT}, within: 1h, wait: 1h}]
sink: {type: memory, topic: out, codec: json}
dead_letter: {type: memory, topic: dead}
batch: {max_records: 20}
state: {path: parts.state, interval: 50ms}
"""


class Line:
    """Two stations that write about parts, and a service that joins what they say."""

    def __init__(self, bootstrap: str, left: str, right: str, folder: Path) -> None:
        self.out, self.dead = MemoryTopic("out", 1), MemoryTopic("dead", 1)
        self.left, self.right = left, right
        self.agents: list[Agent] = []
        self.bootstrap, self._folder = bootstrap, folder

    @property
    def service(self) -> Service:
        text = (
            SERVICE.replace("BROKERS", self.bootstrap)
            .replace("LEFT", self.left)
            .replace("RIGHT", self.right)
            .replace("GROUP", self.left)
        )
        return loads(text, base=self._folder)

    def start(self) -> Agent:
        assembly = build(self.service, sinks={"memory": MemorySink(topic=self.out)}, dead=MemorySink(topic=self.dead))
        self.agents.append(Agent(assembly.service, assembly=assembly))
        self.agents[-1].start()
        return self.agents[-1]

    def write(self, topic: str, parts: list[int]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for part in parts:
            producer.produce(topic, json.dumps({"part": part, "from": topic}), str(part))
        assert producer.flush(60) == 0

    @property
    def joined(self) -> set[tuple[int, str, str]]:
        results = [json.loads(message.value) for message in self.out.messages() if message.value is not None]
        return {(each["part"], each["left"]["from"], each["right"]["from"]) for each in results}

    def whole(self, count: int) -> set[tuple[int, str, str]]:
        return {(part, self.left, self.right) for part in range(count)}


@pytest.fixture
def line(kafka: Any, topics: Any, tmp_path: Path) -> Iterator[Callable[..., Line]]:
    made: list[Line] = []

    def create(left: int = 3, right: int = 3) -> Line:
        made.append(Line(kafka.bootstrap, topics(left, "left"), topics(right, "right"), tmp_path))
        return made[-1]

    yield create
    for each in made:
        for agent in each.agents:
            agent.stop()
            agent.join(60)


def test_every_part_is_joined_though_results_are_lost_and_the_service_restarts(line: Callable[..., Line]) -> None:
    chance = random.Random(1)
    made = line()
    agent = made.start()
    parts = list(range(400))
    lost: list[int] = []

    def lose(message: Any) -> bool:
        if chance.random() < 0.02:
            lost.append(1)
            return True
        return False

    made.out.faults.lose = lose
    made.write(made.left, chance.sample(parts[:200], 200))
    made.write(made.right, chance.sample(parts[:250], 250))
    until(lambda: made.whole(200) <= made.joined, seconds=120)
    agent.stop()
    assert agent.join(60).error is None
    made.write(made.left, chance.sample(parts[200:], 200))
    agent = made.start()
    made.write(made.right, chance.sample(parts[250:], 150))
    until(lambda: made.joined == made.whole(400), seconds=120)
    assert lost
    assert made.dead.messages() == []


def test_topics_with_different_numbers_of_partitions_stop_the_service_and_check_says_so(
    line: Callable[..., Line],
) -> None:
    made = line(2, 3)
    error = str(made.start().join(60).error)
    assert "have different numbers of them" in error
    assert f"{made.left} has 2, {made.right} has 3" in error
    texts = [finding.text for finding in reached(made.service) if not finding.ok]
    assert any(f"{made.left} has 2, {made.right} has 3" in text for text in texts), texts


def test_a_member_of_the_group_that_reads_one_topic_alone_stops_the_service(line: Callable[..., Line]) -> None:
    made = line()
    agent = made.start()
    made.write(made.left, [1])
    made.write(made.right, [1])
    until(lambda: len(made.joined) == 1)
    other = Consumer({"bootstrap.servers": made.bootstrap, "group.id": made.left, "session.timeout.ms": 6000})
    other.subscribe([made.left])
    try:
        until(lambda: other.poll(0.1) is None and other.assignment(), seconds=60)
        error = str(agent.join(60).error)
    finally:
        other.close()
    assert "the group has assigned different ones" in error
    assert "have to read the same topics, with assignor: range" in error


def test_check_says_whether_a_topic_can_keep_the_state_of_both_topics(line: Callable[..., Line]) -> None:
    made = line()
    service = made.service.model_copy(update={"state": StateTopicSettings(topic=f"{made.left}.state")})
    assert [each.text for each in reached(service) if each.part == "state"] == [
        f"{made.left}.state is created at the first start"
    ]
    create_topics(made.bootstrap, {f"{made.left}.state": 3}, config={"cleanup.policy": "compact"})
    (finding,) = [each for each in reached(service) if not each.ok]
    assert "has 3 partitions, and what its source reads has 6" in finding.text
    admin = AdminClient({"bootstrap.servers": made.bootstrap})
    admin.create_partitions([NewPartitions(f"{made.left}.state", 6)])[f"{made.left}.state"].result(60)
    until(lambda: [each.text[-1] for each in reached(service) if each.part == "state" and each.ok] == ["6"])


def test_topics_with_as_many_partitions_each_pass_the_check(line: Callable[..., Line]) -> None:
    texts = [finding.text for finding in reached(line().service)]
    assert "have as many partitions each" in texts
