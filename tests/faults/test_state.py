"""State in a file under fire: each sample is in one window, whenever the process is killed."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafkatopics import read

from pipelines import Data

pytestmark = pytest.mark.slow

SIZE = 7


class Sensors:
    """Writes numbered samples of devices, and checks the windows that a service makes of them."""

    def __init__(self, kafka: Any, topics: Any, folder: Path, running: Any) -> None:
        self._running = running
        self.bootstrap = kafka.bootstrap
        self.source, self.sink = topics(4, "samples"), topics(2, "windows")
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
state: {{path: windows.state, interval: 100ms}}
"""
        )

    def write(self, count: int, seed: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        chance = random.Random(seed)
        for _ in range(count):
            device = f"d{chance.randrange(40)}"
            producer.produce(self.source, Data({"device": device, "x": self.written[device]}).to_bytes(), device)
            self.written[device] += 1
        assert producer.flush(60) == 0

    def start(self, *options: str) -> Any:
        return self._running(self.file, *options)

    def positions(self) -> int:
        """How many records the saved state has seen."""
        file = self.folder / "windows.state"
        if not file.exists():
            return 0
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
            try:
                return int(connection.execute("SELECT coalesce(sum(position), 0) FROM scopes").fetchone()[0])
            except sqlite3.OperationalError:
                return 0

    def wait(self, member: Any) -> None:
        """Until the state has seen everything."""
        deadline = time.monotonic() + 120
        while self.positions() < sum(self.written.values()):
            assert member.process.poll() is None, member.text()
            assert time.monotonic() < deadline, member.text()
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
def sensors(kafka: Any, topics: Any, tmp_path: Path, running: Any) -> Sensors:
    return Sensors(kafka, topics, tmp_path, running)


@pytest.mark.timeout(300)
def test_each_sample_is_in_one_window_though_the_process_is_killed_again_and_again(sensors: Sensors) -> None:
    chance = random.Random(32)
    for number in range(5):
        sensors.write(3000, number)
        member = sensors.start()
        before = sensors.positions()
        deadline = time.monotonic() + 60
        while sensors.positions() == before and time.monotonic() < deadline:
            assert member.process.poll() is None, member.text()
            time.sleep(0.01)
        time.sleep(chance.random() * 0.3)
        member.kill()
    member = sensors.start()
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    sensors.check()


@pytest.mark.timeout(200)
def test_windows_that_are_open_go_on_after_a_stop_and_other_positions_are_refused(sensors: Sensors) -> None:
    sensors.write(1000, 1)
    member = sensors.start()
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    older = (sensors.folder / "windows.state").read_bytes()
    sensors.write(1000, 2)
    member = sensors.start()
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    sensors.check()
    newest = (sensors.folder / "windows.state").read_bytes()
    (sensors.folder / "windows.state").write_bytes(older)
    member = sensors.start()
    assert member.process.wait(60) != 0
    assert "and the saved state has seen records only up to" in member.text()
    (sensors.folder / "windows.state").write_bytes(newest)
    member = sensors.start("--from", "earliest")
    assert member.process.wait(60) != 0
    assert "was acknowledged, and the saved state has seen records up to" in member.text()
