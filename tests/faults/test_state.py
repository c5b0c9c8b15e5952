"""State in a file under fire: each sample is in one window, whenever the process is killed."""

from __future__ import annotations

import random
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sensors import PARTITIONS, Sensors

from streamer.state.filecontents import FileContents

pytestmark = pytest.mark.slow

STATE = "windows.state"


class SensorsWithFile(Sensors):
    """Their windows are in a file until they are full."""

    def positions(self) -> int:
        """How many records the saved state has seen."""
        file = self.folder / STATE
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


@pytest.fixture
def sensors(kafka: Any, topics: Any, tmp_path: Path, running: Any) -> SensorsWithFile:
    return SensorsWithFile(kafka, topics, tmp_path, running, f"{{path: {STATE}, interval: 100ms}}")


@pytest.mark.timeout(300)
def test_each_sample_is_in_one_window_though_the_process_is_killed_again_and_again(sensors: SensorsWithFile) -> None:
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
def test_windows_that_are_open_go_on_after_a_stop_and_other_positions_are_refused(sensors: SensorsWithFile) -> None:
    sensors.write(1000, 1)
    member = sensors.start()
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    file = sensors.folder / STATE
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
def test_a_missing_state_file_is_told_from_a_first_start_until_the_state_is_to_begin_anew(
    sensors: SensorsWithFile,
) -> None:
    sensors.write(1000, 1)
    member = sensors.start()
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    file = sensors.folder / STATE
    file.unlink()
    sensors.write(1000, 2)
    # The first start has made a new file, which changes nothing.
    for _ in range(2):
        text = sensors.refused("is of a state that was saved on host")
        assert f"saved on host {socket.gethostname()}" in text
        assert "windows.state on host" in text
        assert "streamer state forget" in text
        assert sensors.positions() == 0
    assert FileContents(file).forget(None, None) == 0
    member = sensors.start()
    sensors.wait_for_group(member)
    member.kill()
    sensors.write(10, 3)
    # Partitions without new records are not refused later, nor those whose last save was not acknowledged.
    member = sensors.start()
    sensors.finish(member)


@pytest.mark.timeout(200)
def test_what_is_never_delivered_behind_the_last_record_is_no_gap_in_the_state(sensors: SensorsWithFile) -> None:
    producer = sensors.transactional()
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
    sensors.finish(member)
    sensors.check()


@pytest.mark.timeout(200)
def test_partitions_that_are_added_begin_with_windows_of_their_own(sensors: SensorsWithFile) -> None:
    sensors.write(1000, 1)
    member = sensors.start()
    sensors.wait(member)
    sensors.widen(PARTITIONS + 1)
    # Until the producer's client knows the new partition, it writes to the others.
    sensors.write(1000, 2, devices="e")
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    sensors.widen(PARTITIONS + 2)
    sensors.write(1000, 3, devices="f")
    member = sensors.start()
    sensors.wait(member)
    assert member.stop() == 0, member.text()
    sensors.check()
    with closing(sqlite3.connect(sensors.folder / STATE)) as connection:
        assert connection.execute("SELECT count(*) FROM scopes").fetchone() == (PARTITIONS + 2,)
