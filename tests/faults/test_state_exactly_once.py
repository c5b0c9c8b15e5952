"""Exactly once with state, under fire: readers of committed results see every sample once, in one window."""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import killpoints
import numpy as np
import pytest
from confluent_kafka import Producer
from exactlyonce import read_letters, wait_for_open_transactions
from kafkabus import set_largest_message
from kafkatopics import read
from sensors import SIZE, Sensors

from pipelines import Data, hotpath

pytestmark = pytest.mark.slow


class SensorsOnce(Sensors):
    """Their windows, the state of those that are open, and the positions are one transaction."""

    def __init__(
        self, kafka: Any, topics: Any, folder: Path, running: Any, state: str, more: str = "", idle: str = ""
    ) -> None:
        once = f"{{topic: {state}, interval: 100ms}}\ndelivery: exactly_once\n{more}"
        super().__init__(kafka, topics, folder, running, once, "instance: ${INSTANCE:-one}")
        self.file.write_text(self.file.read_text().replace("outputName: samples", f"outputName: samples{idle}"))

    def write_large(self, count: int) -> int:
        """Write samples of a device whose windows are larger than all others; returns how many."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for _ in range(count):
            value = Data({"device": "large", "x": np.random.default_rng(1).normal(size=(1, 500))}).to_bytes()
            producer.produce(self.source, value, "large")
        assert producer.flush(60) == 0
        return count

    def windows(self) -> dict[str, list[list[float]]]:
        """The samples of all windows of each device, in order."""
        wait_for_open_transactions(self.bootstrap, self.sink)
        found: dict[str, list[list[float]]] = defaultdict(list)
        for message in read(self.bootstrap, self.sink):
            data = Data.from_bytes(message.value or b"")
            found[str(data["device"])].append(np.asarray(data["samples"]).ravel().tolist())
        return found

    def check_each_window_is_there_once(self) -> None:
        wait_for_open_transactions(self.bootstrap, self.sink)
        assert self.check() == 0


@pytest.fixture
def sensors(kafka: Any, topics: Any, topic_name: Any, tmp_path: Path, running: Any) -> SensorsOnce:
    return SensorsOnce(kafka, topics, tmp_path, running, topic_name("state"))


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(1, marks=pytest.mark.timeout(400), id="once"),
        pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(3600)], id="ten times"),
    ],
)
def test_each_window_is_there_once_at_whatever_point_of_a_transaction_the_process_is_killed(
    sensors: SensorsOnce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    producer = sensors.transactional()
    chance = random.Random(33)
    member = sensors.start(program=killpoints.__file__)
    sensors.write(500, 1, producer)
    sensors.wait_for_group(member)
    for number, point in enumerate(killpoints.POINTS * rounds):
        killpoints.order(tmp_path, point, chance.randint(1, 3))
        deadline = time.monotonic() + 60
        while member.process.poll() is None:
            assert time.monotonic() < deadline, f"{point}: {member.text()}"
            sensors.write(200, chance.getrandbits(32), producer)
            time.sleep(0.05)
        assert member.process.returncode == -signal.SIGKILL, f"{point}: {member.text()}"
        killpoints.withdraw(tmp_path)
        # What a process with this hot path has saved, a process with the other goes on from.
        monkeypatch.setenv(hotpath.VARIABLE, ("python", "auto")[number % 2])
        member = sensors.start(program=killpoints.__file__)
        sensors.wait_for_group(member)
        sensors.check_each_window_is_there_once()
    assert member.stop() == 0, member.text()


@pytest.mark.timeout(400)
def test_each_window_is_there_once_though_members_join_leave_and_are_killed(
    sensors: SensorsOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = sensors.transactional()
    sensors.write(3000, 1, producer)
    first = sensors.start()
    sensors.wait_for_group(first, until=0.3)
    monkeypatch.setenv("INSTANCE", "two")
    second = sensors.start()
    sensors.write(3000, 2, producer)
    sensors.wait_for_group(first, second)
    first.kill()
    sensors.write(2000, 3, producer)
    monkeypatch.setenv("INSTANCE", "three")
    third = sensors.start()
    sensors.wait_for_group(second, third)
    assert second.stop() == 0, second.text()
    sensors.write(1000, 4, producer)
    sensors.wait_for_group(third)
    assert third.stop() == 0, third.text()
    assert sensors.committed() == sensors.ends()
    sensors.check_each_window_is_there_once()


@pytest.mark.timeout(400)
def test_windows_that_time_closes_have_each_sample_once_when_the_process_is_killed(
    kafka: Any, topics: Any, topic_name: Any, tmp_path: Path, running: Any
) -> None:
    made = SensorsOnce(kafka, topics, tmp_path, running, topic_name("state"), idle=", idle: 500ms, short: emit")
    chance = random.Random(5)
    member = made.start()
    for seed in range(8):
        made.write(150, seed)
        if seed % 2:
            # Windows are being closed by time.
            made.wait_for_group(member)
            time.sleep(chance.uniform(0.4, 0.9))
            member.kill()
            member = made.start()
    made.wait_for_group(member)
    deadline = time.monotonic() + 60
    while sum(len(window) for windows in made.windows().values() for window in windows) < sum(made.written.values()):
        assert time.monotonic() < deadline, member.text()
        time.sleep(0.5)
    assert member.stop() == 0, member.text()
    for device, windows in made.windows().items():
        assert [sample for window in windows for sample in window] == list(map(float, range(made.written[device])))


@pytest.mark.usefixtures("hot_path")
@pytest.mark.timeout(400)
def test_windows_that_brokers_refuse_late_become_dead_letters_and_the_others_are_there_once(
    kafka: Any, topics: Any, topic_name: Any, tmp_path: Path, running: Any
) -> None:
    dead = topics(1, "dead")
    letters = f"dead_letter: {{type: kafka, topic: {dead}}}"
    made = SensorsOnce(kafka, topics, tmp_path, running, topic_name("state"), letters)
    member = made.start()
    made.write(500, 1)
    made.wait_for_group(member)
    # It learns the topic's limits when it begins: so the first of the large ones is refused by the brokers.
    set_largest_message(made.bootstrap, made.sink, 3000)
    large = 0
    for seed in range(2, 5):
        made.write(300, seed)
        large += made.write_large(SIZE * 2)
        made.write(300, 10 * seed)
    made.wait_for_group(member)
    assert member.stop() == 0, member.text()
    made.check_each_window_is_there_once()
    assert len(read_letters(made, dead)) == large // SIZE
