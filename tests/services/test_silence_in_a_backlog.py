"""`idle` on a real Kafka: no window ends because its records wait in the topic, and those of silent keys end."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from waiting import until

from connectors.memory import MemorySink, MemoryTopic
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.definition.loading import loads

SERVICE = """
name: GROUP
source: {type: kafka, bootstrap: "BROKERS", topics: TOPIC, codec: json,
         client: {session.timeout.ms: 6000, heartbeat.interval.ms: 500, queued.max.messages.kbytes: 16,
                  fetch.max.bytes: 4096, message.max.bytes: 4096}}
pipeline:
  - {"@type": FUNCTION, function: "test_silence_in_a_backlog:slow"}
  - {"@type": WINDOW, by: device, size: 100000, values: x, outputName: y, idle: 1s, short: emit}
sink: {type: memory, topic: out, codec: json, keys: [device, count]}
dead_letter: {type: memory, topic: dead}
batch: {max_records: 50}
state: STATE
"""
PARTITIONS = 2


def slow(data: Data) -> Data:
    """Takes a millisecond."""
    time.sleep(0.001)
    return data


class House:
    """A topic with the records of devices, and services that gather them into windows."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.topic = topic
        self.out = MemoryTopic("out", 1)
        self.agents: list[Agent] = []
        self.sent: Counter[str] = Counter()
        self._bootstrap, self._folder = bootstrap, folder
        self._producer = Producer({"bootstrap.servers": bootstrap})

    def start(self, state: str = "{path: house.state, interval: 200ms}") -> Agent:
        text = SERVICE.replace("BROKERS", self._bootstrap).replace("TOPIC", self.topic).replace("STATE", state)
        service = loads(text.replace("GROUP", self.topic), base=self._folder)
        assembly = build(service, sinks={"memory": MemorySink(topic=self.out)})
        self.agents.append(Agent(service, assembly=assembly))
        self.agents[-1].start()
        return self.agents[-1]

    def write(self, device: str, partition: int, count: int = 1) -> None:
        for _ in range(count):
            self._producer.produce(self.topic, json.dumps({"device": device, "x": 1.0}), partition=partition)
        self.sent[device] += count
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def write_a_backlog(self, each: int) -> None:
        """Of each partition, a device comes first and last, and is silent between."""
        for partition in range(PARTITIONS):
            self.write(f"edge{partition}", partition)
            self.write(f"filler{partition}", partition, each)
            self.write(f"edge{partition}", partition)
        self.flush()

    @property
    def windows(self) -> list[tuple[str, int]]:
        values = [json.loads(message.value) for message in self.out.messages() if message.value is not None]
        return [(value["device"], value["count"]) for value in values]


@pytest.fixture
def house(kafka: Any, topics: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    made = House(kafka.bootstrap, topics(PARTITIONS, "house"), tmp_path)
    yield made
    for agent in made.agents:
        agent.stop()
        agent.join(60)


def test_windows_that_are_read_from_a_backlog_are_those_of_a_service_without_one(house: House) -> None:
    house.write_a_backlog(1500)
    house.start()
    until(lambda: sum(count for _, count in house.windows) == house.sent.total(), seconds=60)
    assert Counter(dict(house.windows)) == house.sent
    assert len(house.windows) == len(house.sent)


def test_a_new_member_in_the_middle_of_a_backlog_ends_no_window_early(house: House) -> None:
    house.write_a_backlog(3000)
    state = f"{{topic: {house.topic}.state, interval: 200ms}}"
    house.start(state)
    time.sleep(2)
    assert not house.windows
    second = house.start(state)
    until(lambda: sum(count for _, count in house.windows) == house.sent.total(), seconds=90)
    assert sorted(house.windows) == sorted(house.sent.items())
    assert second.acknowledged


def test_the_window_of_a_silent_device_ends_in_a_service_that_always_has_a_backlog(house: House) -> None:
    house.write("silent", 0)
    for partition in range(PARTITIONS):
        house.write(f"filler{partition}", partition, 1000)
    house.flush()
    agent = house.start()
    stopped = threading.Event()

    def go_on() -> None:
        while not stopped.wait(0.01):
            # More than can be run.
            for partition in range(PARTITIONS):
                house.write(f"filler{partition}", partition, 6)

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        until(lambda: bool(house.windows), seconds=60)
        lag = {place: behind for intake in agent._loop.intakes for place, behind in intake.source.lag().items()}
    finally:
        stopped.set()
        writing.join()
    assert house.windows == [("silent", 1)]
    assert len(lag) == PARTITIONS
    assert min(lag.values()) > 0
