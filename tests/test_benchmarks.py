"""The benchmarks that need no broker run, and say what they measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mqttclient import MqttClient

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["steps", "--seconds", "0.01", "--case", "OUTPUT"], r"^REGRESSION_OUTPUT 3 columns +[\d.]+ +[\d.]+ +[\d.]+$"),
        (["steps", "--seconds", "0.01", "--case", "BBOX"], r"^YOLO_BBOX the same with nms +[\d.]+ +[\d.]+ +[\d.]+$"),
        (["forms", "--seconds", "0.01"], r"^\| protobuf \| 1\.00 \| [\d.]+ \| [\d.]+ \| 1 \|$"),
    ],
)
def test_a_benchmark_prints_a_line_for_each_case(command: list[str], line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{command[0]}", *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(line, done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("mode", ["replay", "take"])
def test_the_mqtt_stub_serves_a_client_as_a_broker_would(mode: str, qos: int) -> None:
    order = json.dumps({"mode": mode, "qos": qos, "count": 500, "window": 20, "payload": 100})
    command = [sys.executable, "-m", "benchmarks.programs.mqttstub", order]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        port = json.loads(stub.stdout.readline())["port"]
        with MqttClient("127.0.0.1", port) as client:
            if mode == "replay":
                client.subscribe("#", qos)
                received = client.take(500)
                assert [message.payload[:8] for message in received] == [b"%08d" % number for number in range(500)]
                assert {message.qos for message in received} == {qos}
            else:
                for number in range(500):
                    client.publish("t", b"%d" % number, qos)
            assert json.loads(stub.stdout.readline())["messages"] == 500
        assert stub.wait(60) == 0
