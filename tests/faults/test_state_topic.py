"""State in a topic under fire: partitions take their state along, whoever gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from sensors import PARTITIONS, Sensors

from streamer.devbroker import create_topics

pytestmark = pytest.mark.slow


class SensorsWithTopic(Sensors):
    """Their windows are in a topic until they are full."""

    def __init__(self, kafka: Any, topics: Any, folder: Path, running: Any, state: str) -> None:
        super().__init__(kafka, topics, folder, running, f"{{topic: {state}, interval: 100ms}}")
        self.state = state
        # Behind the last record there is the marker of a transaction, which the group passes as well.
        self._producer = self.transactional()

    def write(self, count: int, seed: int, transactional: Producer | None = None) -> None:
        super().write(count, seed, transactional or self._producer)

    def delete_state(self) -> None:
        """Delete the topic with the state."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([self.state], operation_timeout=30)[self.state].result(60)


@pytest.fixture
def sensors(kafka: Any, topics: Any, topic_name: Any, tmp_path: Path, running: Any) -> SensorsWithTopic:
    return SensorsWithTopic(kafka, topics, tmp_path, running, topic_name("state"))


@pytest.mark.timeout(300)
def test_each_sample_is_in_one_window_though_members_join_leave_and_are_killed(sensors: SensorsWithTopic) -> None:
    sensors.write(3000, 1)
    first = sensors.start()
    sensors.wait_for_group(first, until=0.3)
    second = sensors.start()
    sensors.write(3000, 2)
    sensors.wait_for_group(first, second)
    first.kill()
    sensors.write(2000, 3)
    third = sensors.start()
    sensors.wait_for_group(second, third)
    assert second.stop() == 0, second.text()
    sensors.write(1000, 4)
    sensors.wait_for_group(third)
    assert third.stop() == 0, third.text()
    assert sensors.committed() == sensors.ends()
    sensors.check()


@pytest.mark.timeout(300)
def test_state_that_is_not_that_of_the_position_stops_the_service(sensors: SensorsWithTopic) -> None:
    sensors.write(500, 1)
    member = sensors.start()
    sensors.wait_for_group(member)
    assert member.stop() == 0, member.text()
    sensors.refused("and the state in topic", "--from", "earliest")
    sensors.delete_state()
    # The group was put back, and the topic is gone: the state begins anew.
    member = sensors.start("--from", "earliest")
    sensors.wait_for_group(member)
    assert member.stop() == 0, member.text()
    sensors.check()
    sensors.delete_state()
    sensors.refused("is new, or has nothing of this partition")


@pytest.mark.timeout(200)
def test_a_topic_that_cannot_keep_the_state_stops_the_service(sensors: SensorsWithTopic) -> None:
    create_topics(sensors.bootstrap, {sensors.state: PARTITIONS})
    sensors.refused("has the cleanup.policy delete")
    other = f"{sensors.state}-narrow"
    create_topics(sensors.bootstrap, {other: PARTITIONS - 1}, config={"cleanup.policy": "compact"})
    sensors.file.write_text(sensors.file.read_text().replace(f"topic: {sensors.state},", f"topic: {other},"))
    sensors.refused(f"has {PARTITIONS - 1} partitions, and ")
