"""Exactly once with state, under fire: readers of committed results see every sample once, in one window."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer
from exactlyonce import read_letters, wait_for_open_transactions
from kafkabus import set_largest_message
from kafkatopics import read
from sensors import SIZE, Sensors

from pipelines import Data

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
    sensors: SensorsOnce, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    for _ in sensors.killed_at_each_point(random.Random(33), rounds, monkeypatch):
        sensors.check_each_window_is_there_once()


@pytest.mark.timeout(400)
def test_each_window_is_there_once_though_members_join_leave_and_are_killed(
    sensors: SensorsOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = partial(sensors.write, transactional=sensors.transactional())
    sensors.come_and_go(write, partial(monkeypatch.setenv, "INSTANCE"))
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
    made.finish(member)
    made.check_each_window_is_there_once()
    assert len(read_letters(made, dead)) == large // SIZE
