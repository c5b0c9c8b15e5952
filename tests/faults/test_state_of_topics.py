"""The state of a service that reads several topics, in one topic: partitions take theirs along, whoever gets them."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from exactlyonce import EXACTLY_ONCE, wait_for_open_transactions
from groupmembers import GroupMembers
from kafkatopics import read

pytestmark = pytest.mark.slow

JOIN = '{"@type": JOIN, by: part, topics: {left: LEFT, right: RIGHT}, within: 1h, wait: 1h}'
WINDOW = '{"@type": WINDOW, by: part, size: 7, values: number, outputName: numbers}'


class Stations(GroupMembers):
    """Two stations that write numbered records about parts, each into a topic of its own, and a service of both."""

    def __init__(
        self,
        kafka: Any,
        topics: Any,
        folder: Path,
        running: Any,
        pipeline: str,
        partitions: tuple[int, int],
        state: str,
        more: str = "",
    ) -> None:
        left, right = topics(partitions[0], "left"), topics(partitions[1], "right")
        self.topics = {left: partitions[0], right: partitions[1]}
        self.state, self.sink, self._make, self._folder = state, topics(2, "results"), topics, folder
        self._pipeline = pipeline.replace("LEFT", left).replace("RIGHT", right)
        self._written: dict[tuple[str, str], int] = defaultdict(int)
        super().__init__(kafka.bootstrap, left, self.topics, folder / "service.yaml", running)
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        self.file.write_text(self.text([left, right], left, self.sink, f"{{topic: {state}, interval: 100ms}}\n{more}"))

    def text(self, read: Iterable[str], group: str, sink: str, state: str) -> str:
        return f"""
name: stations
source:
  type: kafka
  bootstrap: {self.bootstrap}
  topics: [{", ".join(read)}]
  group: {group}
  codec: json
  client: {{session.timeout.ms: 6000, heartbeat.interval.ms: 500}}
pipeline:
  - {self._pipeline}
batch: {{max_records: 50}}
sink: {{type: kafka, topic: {sink}, codec: json}}
state: {state}
"""

    def write(self, count: int, seed: int, parts: Callable[[random.Random], str]) -> None:
        """`count` records of each topic, of parts that `parts` gives."""
        for topic in self.topics:
            chance = random.Random(f"{topic[:4]} {seed}")
            for _ in range(count):
                part = parts(chance)
                record = {"part": part, "number": self._written[topic, part]}
                self._written[topic, part] += 1
                self._producer.produce(topic, json.dumps(record), part)
        assert self._producer.flush(60) == 0

    def undisturbed(self) -> set[tuple[bytes | None, bytes | None]]:
        """Message keys and payloads of the results of a single process, which nothing disturbs."""
        sink = self._make(2, "undisturbed")
        file = self._folder / "undisturbed.yaml"
        # In memory, what waits would be given at the end.
        file.write_text(self.text(self.topics, sink, sink, "{path: undisturbed.state}"))
        group = GroupMembers(self.bootstrap, sink, self.topics, file, self._running)
        member = group.start()
        group.finish(member)
        return self.results(sink)

    def results(self, sink: str | None = None) -> set[tuple[bytes | None, bytes | None]]:
        return set(self.messages(sink or self.sink))

    def messages(self, sink: str) -> list[tuple[bytes | None, bytes | None]]:
        wait_for_open_transactions(self.bootstrap, sink)
        return [(message.key, message.value) for message in read(self.bootstrap, sink)]


def of_few(chance: random.Random) -> str:
    """A part of many records in each topic, so that some begin where others end."""
    return f"p{chance.randrange(40)}"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("pipeline", "partitions", "more"),
    [(JOIN, (3, 3), ""), (WINDOW, (3, 2), ""), (JOIN, (3, 3), EXACTLY_ONCE)],
    ids=["joined", "alone", "joined once"],
)
def test_results_are_those_of_an_undisturbed_run_though_members_join_leave_and_are_killed(
    kafka: Any,
    topics: Any,
    topic_name: Any,
    tmp_path: Path,
    running: Any,
    pipeline: str,
    partitions: tuple[int, int],
    more: str,
) -> None:
    stations = Stations(kafka, topics, tmp_path, running, pipeline, partitions, topic_name("state"), more)
    # Of each topic.
    stations.come_and_go(lambda count, seed: stations.write(count * 2 // 3, seed, of_few))
    expected = stations.undisturbed()
    assert len(expected) > 1000
    assert stations.results() == expected
    if more:
        assert len(stations.messages(stations.sink)) == len(expected)


@pytest.mark.timeout(200)
def test_a_topic_that_is_added_to_the_source_stops_the_service_with_a_remedy(
    kafka: Any, topics: Any, topic_name: Any, tmp_path: Path, running: Any
) -> None:
    stations = Stations(kafka, topics, tmp_path, running, WINDOW, (3, 2), topic_name("state"))
    stations.write(100, 1, of_few)
    member = stations.start()
    stations.finish(member)
    left, right = stations.topics

    def reads(*read: str) -> None:
        stations.file.write_text(
            stations.text(read, left, stations.sink, f"{{topic: {stations.state}, interval: 100ms}}")
        )

    added = topics(1, "added")
    reads(left, right, added)
    text = stations.refused("has 5 partitions, and what its source reads has 6")
    assert "Name another topic, which is created with the right number" in text
    # As many, and others.
    other = topics(2, "swapped")
    reads(left, other)
    stations.refused(f"has the state of {right}-")
    # The order of the topics means nothing.
    reads(right, left)
    member = stations.start()
    stations.write(100, 2, of_few)
    stations.finish(member)
    assert stations.results() == stations.undisturbed()
