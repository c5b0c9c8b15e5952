"""The sensors demo as a user runs it, shorter, on a mosquitto and without a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streamer.demo.machines.simulation import FAULTS
from streamer.devbroker.mqtt import LocalMosquitto

pytestmark = pytest.mark.slow


def demo(broker: str | None, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MQTT_BROKER"}
    if broker is not None:
        environment["MQTT_BROKER"] = broker
    return subprocess.run(
        [sys.executable, "-c", "from streamer.cli import main; main()", "demo", "sensors", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )


def test_the_demo_scores_every_window_and_gives_one_alert_for_each_fault(
    start_mosquitto: Callable[..., LocalMosquitto], tmp_path: Path
) -> None:
    mosquitto = start_mosquitto()
    done = demo(f"127.0.0.1:{mosquitto.port}", tmp_path, "--seconds", "8", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["sent"] == outcome["scored"] == 1500
    assert (outcome["lost"], outcome["dead"], outcome["real"]) == (0, 0, True)
    assert {finding["fault"] for finding in outcome["findings"]} == set(FAULTS)
    assert all(finding["after"] is not None for finding in outcome["findings"])
    # One for a fault, not one for a window.
    assert (outcome["alerts"], outcome["false_alerts"]) == (len(FAULTS), 0)
    assert "alert: lathe-2" in done.stderr


def test_it_needs_no_broker_and_ends_with_a_summary_and_what_to_try_next(tmp_path: Path) -> None:
    done = demo(None, tmp_path, "--seconds", "3", "--rate", "60")
    assert done.returncode == 0, done.stderr
    for text in ("180 of 12 machines", "lost          0", "lathe-2", "bearing", "Try next", "sensors.yaml"):
        assert text in done.stdout


def test_options_of_the_digits_demo_are_refused_for_sensors(tmp_path: Path) -> None:
    done = demo(None, tmp_path, "--no-sheet")
    assert done.returncode == 2
    assert "digits" in done.stderr


def test_the_machines_run_by_themselves_and_say_where_there_is_no_broker(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamer.demo.machines", "--broker", "127.0.0.1:1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    assert "streamer broker --mqtt" in done.stderr
