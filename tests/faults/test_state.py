"""State in a file under fire: each sample is in one window, whenever the process is killed."""

from __future__ import annotations

import random
import socket
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafkatopics import read

from pipelines import Data
from streamer.state.contents import forget

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

    def write(self, count: int, seed: int, transactional: Producer | None = None) -> None:
        producer = transactional or Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        if transactional is not None:
            transactional.begin_transaction()
        chance = random.Random(seed)
        for _ in range(count):
            device = f"d{chance.randrange(40)}"
            producer.produce(self.source, Data({"device": device, "x": self.written[device]}).to_bytes(), device)
            self.written[device] += 1
        assert producer.flush(60) == 0
        if transactional is not None:
            transactional.commit_transaction(60)

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

    def refused(self, why: str, *options: str) -> str:
        """What a service says that is not started for this reason."""
        member = self.start(*options)
        assert member.process.wait(60) == 2, member.text()
        assert why in member.text()
        return str(member.text())

    def committed(self) -> int:
        """The sum of the group's positions."""
        return sum(max(place.offset, 0) for place in self._asked(lambda consumer, places: consumer.committed(places)))

    def ends(self) -> int:
        """The sum of the ends of the source's partitions."""
        return sum(self._asked(lambda consumer, places: [consumer.get_watermark_offsets(place)[1] for place in places]))

    def _asked(self, ask: Callable[[Consumer, list[TopicPartition]], list[Any]]) -> list[Any]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.source})
        try:
            return ask(consumer, [TopicPartition(self.source, number) for number in range(4)])
        finally:
            consumer.close()

    def wait_for_group(self, member: Any) -> None:
        """Until the group has read everything."""
        deadline = time.monotonic() + 120
        while self.committed() < self.ends():
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
    file = sensors.folder / "windows.state"
    older = file.read_bytes()
    sensors.write(1000, 2)
    member = sensors.start()
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    sensors.check()
    newest = file.read_bytes()
    file.write_bytes(older)
    assert "windows.state on host" in sensors.refused("is older: it has save")
    file.write_bytes(newest)
    sensors.refused("was acknowledged, and the saved state has seen records up to", "--from", "earliest")


@pytest.mark.timeout(200)
def test_a_missing_state_file_is_told_from_a_first_start_until_the_state_is_to_begin_anew(sensors: Sensors) -> None:
    sensors.write(1000, 1)
    member = sensors.start()
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    file = sensors.folder / "windows.state"
    file.unlink()
    sensors.write(1000, 2)
    # The first start has made a new file, which changes nothing.
    for _ in range(2):
        text = sensors.refused("is of a state that was saved on host")
        assert f"saved on host {socket.gethostname()}" in text
        assert "windows.state on host" in text
        assert "streamer state forget" in text
        assert sensors.positions() == 0
    assert forget(file) == 0
    member = sensors.start()
    sensors.wait_for_group(member)
    member.kill()
    sensors.write(10, 3)
    # Partitions without new records are not refused later, nor those whose last save was not acknowledged.
    member = sensors.start()
    sensors.wait_for_group(member)
    assert member.stop() == 0, member.text()


@pytest.mark.timeout(200)
def test_what_is_never_delivered_behind_the_last_record_is_no_gap_in_the_state(sensors: Sensors) -> None:
    producer = Producer({"bootstrap.servers": sensors.bootstrap, "transactional.id": sensors.source})
    producer.init_transactions(60)
    sensors.write(100, 1, producer)
    member = sensors.start()
    sensors.wait(member)
    # The position behind the marker of the transaction.
    while sensors.committed() < sensors.ends():
        assert member.process.poll() is None, member.text()
        time.sleep(0.1)
    assert member.stop() == 0, member.text()
    sensors.write(100, 2, producer)
    member = sensors.start()
    sensors.wait_for_group(member)
    assert member.stop() == 0, member.text()
    sensors.check()
