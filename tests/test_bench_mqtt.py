"""The benchmark of MQTT runs without a broker, and its page shows what was measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.mqtt.bench import Found
from benchmarks.mqtt.measure import Cost
from benchmarks.mqtt.run import RESULTS
from benchmarks.mqtt.table import grids, text

ROOT = Path(__file__).parents[1]


def test_costs_are_compared_within_a_round() -> None:
    runs = {"ours": (1.0, 4.0, 1.0), "paho": (50.0, 100.0, 80.0)}
    found = Found({"receive": {name: [Cost(one, 1e6, 1 << 20, 0.5) for one in costs] for name, costs in runs.items()}})
    assert found.ratio("receive", "ours", "paho") == 50
    assert found.ratio("receive", "ours", "mqtt-gmqtt") is None
    (grid,) = grids(found)
    assert [line[1:4] for line in grid.lines] == [
        ["streamer", "1.00", "1.00"],
        ["paho, by hand (the baseline)", "50.00", "80.00"],
    ]


def test_the_page_shows_the_results_of_the_file() -> None:
    found = Found.from_dict(json.loads(RESULTS.read_text(encoding="utf-8")))
    assert text(found) in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_quick_run_measures_receiving_publishing_and_the_whole_service() -> None:
    rows = ("receive", "publish", "service-64")
    command = [
        sys.executable,
        "-m",
        "benchmarks.mqtt.run",
        "--quick",
        *(word for row in rows for word in ("--row", row)),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    for row in rows:
        assert re.search(rf"{row}, paho, round 1 of 1: [\d.]+ us", done.stdout)
