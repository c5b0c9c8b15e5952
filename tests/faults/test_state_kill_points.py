"""State under fire at the worst moments: the process is killed between all steps of a checkpoint, in turn."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sensors import Sensors

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("store", ["file", "topic"])
@pytest.mark.parametrize(
    ("rounds", "source"),
    [
        pytest.param(1, "instance: one", marks=pytest.mark.timeout(300), id="once"),
        pytest.param(10, "", marks=[pytest.mark.soak, pytest.mark.timeout(3600)], id="ten times"),
    ],
)
def test_each_sample_is_in_one_window_at_whatever_point_of_a_checkpoint_the_process_is_killed(
    kafka: Any,
    topics: Any,
    topic_name: Any,
    tmp_path: Path,
    running: Any,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
    rounds: int,
    source: str,
) -> None:
    place = "path: windows.state" if store == "file" else f"topic: {topic_name('state')}"
    sensors = Sensors(kafka, topics, tmp_path, running, f"{{{place}, interval: 100ms}}", source)
    repeats: Counter[str] = Counter()
    for point in sensors.killed_at_each_point(random.Random(32), rounds, monkeypatch):
        repeats[point] = sensors.check() - repeats.total() + repeats[point]
    print(f"\n{store}: windows that were repeated: {dict(repeats)}")
    assert repeats["confirmed"] > 0
    assert repeats["inside"] > 0
    assert repeats["saved"] == 0, "what was saved was run again"
    assert store == "file" or repeats["committed"] == 0, "what was committed was run again"


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("store", ["file", "topic", "exactly once"])
def test_each_sample_is_in_one_window_though_the_process_is_killed_at_any_time(
    kafka: Any, topics: Any, topic_name: Any, tmp_path: Path, running: Any, store: str
) -> None:
    place = "path: windows.state" if store == "file" else f"topic: {topic_name('state')}"
    state = f"{{{place}, interval: 50ms}}" + ("\ndelivery: exactly_once" if store == "exactly once" else "")
    sensors = Sensors(kafka, topics, tmp_path, running, state, "instance: one")
    producer = sensors.transactional()
    chance = random.Random(20)
    for number in range(20):
        member = sensors.start()
        before, deadline = sensors.committed(), time.monotonic() + 120
        sensors.write(100, chance.getrandbits(32), producer)
        while sensors.committed() == before:
            assert member.process.poll() is None, member.text()
            assert time.monotonic() < deadline, member.text()
        deadline = time.monotonic() + chance.uniform(0.0, 2.0)
        while time.monotonic() < deadline:
            assert member.process.poll() is None, member.text()
            sensors.write(100, chance.getrandbits(32), producer)
            time.sleep(0.05)
        member.kill()
        print(f"{store}: kill {number + 1}, {sensors.committed()} of {sensors.ends()} committed", flush=True)
    member = sensors.start()
    sensors.finish(member)
    repeated = sensors.check()
    print(f"{store}: windows that were repeated: {repeated}")
    assert repeated == 0 or store != "exactly once"
