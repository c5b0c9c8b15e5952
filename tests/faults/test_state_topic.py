"""State in a topic under fire: partitions take their state along, whoever gets them."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import killpoints
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafkatopics import read
from sensors import PARTITIONS, Sensors
from waiting import until

from streamer.devbroker import create_topics

pytestmark = pytest.mark.slow


class SensorsWithTopic(Sensors):
    """Their windows are in a topic until they are full."""

    def __init__(self, kafka: Any, topics: Any, folder: Path, running: Any, state: str) -> None:
        super().__init__(kafka, topics, folder, running, f"{{topic: {state}, interval: 100ms}}")
        self.state = state
        # Behind the last record there is the marker of a transaction, which the group passes as well.
        self._producer = self.transactional()

    def write(self, count: int, seed: int, transactional: Producer | None = None, devices: str = "d") -> None:
        super().write(count, seed, transactional or self._producer, devices)

    def delete_state(self) -> None:
        """Delete the topic with the state."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([self.state], operation_timeout=30)[self.state].result(60)


@pytest.fixture
def sensors(kafka: Any, topics: Any, topic_name: Any, tmp_path: Path, running: Any) -> SensorsWithTopic:
    return SensorsWithTopic(kafka, topics, tmp_path, running, topic_name("state"))


@pytest.mark.timeout(300)
def test_each_sample_is_in_one_window_though_members_join_leave_and_are_killed(sensors: SensorsWithTopic) -> None:
    sensors.come_and_go(sensors.write)
    assert sensors.committed() == sensors.ends()
    sensors.check()


@pytest.mark.timeout(300)
def test_state_that_is_not_that_of_the_position_stops_the_service(sensors: SensorsWithTopic) -> None:
    sensors.write(500, 1)
    member = sensors.start()
    sensors.finish(member)
    sensors.refused("and the state in topic", "--from", "earliest")
    sensors.delete_state()
    # The group was put back, and the topic is gone: the state begins anew.
    member = sensors.start("--from", "earliest")
    sensors.finish(member)
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "point",
    ["inside", *(pytest.param(point, marks=pytest.mark.soak) for point in ("confirmed", "committed", "saved"))],
)
def test_a_member_that_stood_still_for_longer_than_its_session_writes_nothing_of_what_others_have_by_then(
    sensors: SensorsWithTopic, point: str
) -> None:
    first = sensors.start(program=killpoints.__file__)
    sensors.write(1000, 1)
    sensors.wait_for_group(first)
    second = sensors.start()
    sensors.write(1000, 2)
    sensors.wait_for_group(first, second)
    killpoints.order(sensors.folder, point, 1, signal.SIGSTOP)
    sensors.write(1000, 3)
    until(partial(_stands_still, first), "the member stands still")
    # The other has all partitions now, and the state of the last save.
    sensors.write(2000, 4)
    sensors.wait_for_group(second)
    first.process.send_signal(signal.SIGCONT)
    sensors.write(2000, 5)
    sensors.wait_for_group(first, second)
    # It has some of them again, with the state that the other has made of them.
    assert second.stop() == 0, second.text()
    sensors.write(1000, 6)
    sensors.finish(first)
    assert sensors.committed() == sensors.ends()
    sensors.check()


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_each_sample_is_in_one_window_though_brokers_roll_and_the_topic_is_compacted(
    start_kafka: Any, topic_name: Any, tmp_path: Path, running: Any
) -> None:
    cluster = start_kafka(nodes=3, log_cleaner_backoff_ms="300")

    def topics(partitions: int, name: str) -> str:
        made = str(topic_name(name))
        create_topics(cluster.bootstrap, {made: partitions}, 3)
        return made

    state = topic_name("state")
    cleaned = {"segment.ms": "500", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "500"}
    create_topics(cluster.bootstrap, {state: PARTITIONS}, 3, {"cleanup.policy": "compact", **cleaned})
    sensors = Sensors(cluster, topics, tmp_path, running, f"{{topic: {state}, interval: 100ms}}")
    members = [sensors.start(), sensors.start()]
    for turn in range(6):
        sensors.write(1000, 2 * turn)
        sensors.wait_for_group(*members, until=0.5)
        # Each node leads partitions, and coordinates groups and transactions, in turn.
        cluster.kill(turn % 3 + 1)
        sensors.write(1000, 2 * turn + 1)
        time.sleep(turn)
        cluster.restart(turn % 3 + 1)
        sensors.wait_for_group(*members)
    kept, written = len(read(cluster.bootstrap, state)), sensors.ends(state)
    print(f"\n{state}: {kept} of {written} records are left")
    assert kept < written / 2, "the topic was not compacted"
    for member in members:
        assert member.stop() == 0, member.text()
    members = [sensors.start()]
    sensors.write(1000, 100)
    sensors.wait_for_group(*members)
    assert members[0].stop() == 0, members[0].text()
    print(f"windows that were repeated: {sensors.check()}")


@pytest.mark.timeout(200)
def test_partitions_that_are_added_stop_the_service_with_the_way_out(sensors: SensorsWithTopic) -> None:
    sensors.write(500, 1)
    member = sensors.start()
    sensors.wait_for_group(member)
    sensors.widen(PARTITIONS + 1)
    assert member.process.wait(90) == 2, member.text()
    assert f"has {PARTITIONS} partitions, and" in member.text()
    sensors.refused("Name another topic, which is created with the right number")
    other = f"{sensors.state}-wide"
    sensors.file.write_text(sensors.file.read_text().replace(f"topic: {sensors.state},", f"topic: {other},"))
    # All from the beginning: the windows that were made are made again, and those that were open go on.
    member = sensors.start("--from", "earliest")
    sensors.write(500, 2, devices="e")
    sensors.finish(member)
    sensors.check()


def _stands_still(member: Any) -> bool:
    status = Path(f"/proc/{member.process.pid}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "T"
