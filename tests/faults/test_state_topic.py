"""State in a topic under fire: partitions take their state along, whoever gets them."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafkatopics import read

from pipelines import Data
from streamer.devbroker import create_topics

pytestmark = pytest.mark.slow

SIZE = 7
PARTITIONS = 4


class Sensors:
    """Writes numbered samples of devices, and checks the windows that the members of a group make of them."""

    def __init__(self, kafka: Any, topics: Any, topic_name: Any, folder: Path, running: Any) -> None:
        self._running = running
        self.bootstrap = kafka.bootstrap
        self.source, self.sink = topics(PARTITIONS, "samples"), topics(2, "windows")
        self.state = topic_name("state")
        self.folder = folder
        self.written: dict[str, int] = defaultdict(int)
        self.file = folder / "service.yaml"
        self.file.write_text(
            f"""
name: windows
source:
  type: kafka
  bootstrap: {self.bootstrap}
  topics: [{self.source}]
  group: {self.source}
  client: {{session.timeout.ms: 6000, heartbeat.interval.ms: 500}}
pipeline:
  - {{"@type": WINDOW, by: device, size: {SIZE}, values: x, outputName: samples}}
batch: {{max_records: 50}}
sink: {{type: kafka, topic: {self.sink}}}
state: {{topic: {self.state}, interval: 100ms}}
"""
        )

    def write(self, count: int, seed: int) -> None:
        # Behind the last record there is the marker of a transaction, which the group passes as well.
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.source})
        producer.init_transactions(60)
        producer.begin_transaction()
        chance = random.Random(seed)
        for _ in range(count):
            device = f"d{chance.randrange(40)}"
            producer.produce(self.source, Data({"device": device, "x": self.written[device]}).to_bytes(), device)
            self.written[device] += 1
        producer.commit_transaction(60)

    def start(self, *options: str) -> Any:
        return self._running(self.file, *options)

    def refused(self, why: str, *options: str) -> None:
        """A service is not started for this reason."""
        member = self.start(*options)
        assert member.process.wait(90) == 2, member.text()
        assert why in member.text()

    def delete_state(self) -> None:
        """Delete the topic with the state."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([self.state], operation_timeout=30)[self.state].result(60)

    def committed(self) -> int:
        """The sum of the group's positions."""
        return sum(max(place.offset, 0) for place in self._asked(lambda consumer, places: consumer.committed(places)))

    def ends(self) -> int:
        """The sum of the ends of the source's partitions."""
        return sum(self._asked(lambda consumer, places: [consumer.get_watermark_offsets(place)[1] for place in places]))

    def _asked(self, ask: Callable[[Consumer, list[TopicPartition]], list[Any]]) -> list[Any]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.source})
        try:
            return ask(consumer, [TopicPartition(self.source, number) for number in range(PARTITIONS)])
        finally:
            consumer.close()

    def wait(self, *members: Any, until: float = 1.0) -> None:
        """Until the group has read this part of all records."""
        deadline = time.monotonic() + 60
        while self.committed() < until * self.ends():
            for member in members:
                assert member.process.poll() is None, member.text()
            texts = [member.text() for member in members]
            assert time.monotonic() < deadline, f"{self.committed()} of {self.ends()}: {texts}"
            time.sleep(0.1)

    def check(self) -> None:
        """Every full window is there, of the samples that follow each other, and repeated ones are the same."""
        windows: dict[str, set[tuple[float, ...]]] = defaultdict(set)
        for message in read(self.bootstrap, self.sink):
            assert message.value is not None
            data = Data.from_bytes(message.value)
            assert message.key == str(data["device"]).encode()
            windows[str(data["device"])].add(tuple(data["samples"].ravel().tolist()))
        for device, count in self.written.items():
            expected = {tuple(map(float, range(at, at + SIZE))) for at in range(0, count - SIZE + 1, SIZE)}
            assert windows[device] == expected, device


@pytest.fixture
def sensors(kafka: Any, topics: Any, topic_name: Any, tmp_path: Path, running: Any) -> Sensors:
    return Sensors(kafka, topics, topic_name, tmp_path, running)


@pytest.mark.timeout(300)
def test_each_sample_is_in_one_window_though_members_join_leave_and_are_killed(sensors: Sensors) -> None:
    sensors.write(3000, 1)
    first = sensors.start()
    sensors.wait(first, until=0.3)
    second = sensors.start()
    sensors.write(3000, 2)
    sensors.wait(first, second)
    first.kill()
    sensors.write(2000, 3)
    third = sensors.start()
    sensors.wait(second, third)
    assert second.stop() == 0, second.text()
    sensors.write(1000, 4)
    sensors.wait(third)
    assert third.stop() == 0, third.text()
    assert sensors.committed() == sensors.ends()
    sensors.check()


@pytest.mark.timeout(300)
def test_state_that_is_not_that_of_the_position_stops_the_service(sensors: Sensors) -> None:
    sensors.write(500, 1)
    member = sensors.start()
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    sensors.refused("and the state in topic", "--from", "earliest")
    sensors.delete_state()
    # The group was put back, and the topic is gone: the state begins anew.
    member = sensors.start("--from", "earliest")
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    sensors.check()
    sensors.delete_state()
    sensors.refused("is new, or has nothing of this partition")


@pytest.mark.timeout(200)
def test_a_topic_that_cannot_keep_the_state_stops_the_service(sensors: Sensors) -> None:
    create_topics(sensors.bootstrap, {sensors.state: PARTITIONS})
    sensors.refused("has the cleanup.policy delete")
    other = f"{sensors.state}-narrow"
    create_topics(sensors.bootstrap, {other: PARTITIONS - 1}, config={"cleanup.policy": "compact"})
    sensors.file.write_text(sensors.file.read_text().replace(f"topic: {sensors.state},", f"topic: {other},"))
    sensors.refused(f"has {PARTITIONS - 1} partitions, and ")
