"""The chart's container as a process of this machine, with a real Kafka: probes, records, and the end by SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from helmchart import CHART, Helm, Mounted, Objects
from kafkatopics import read
from onnx import TensorProto, helper, save
from waiting import until

from streamer.devbroker import Broker

# Helm may have to be built first.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COUNT = 2000


class Pod:
    """A pod whose container runs here. The probes of Kubernetes are asked as it would ask them, but sooner."""

    def __init__(self, objects: Objects, mounted: Mounted, environment: dict[str, str]) -> None:
        self.objects = objects
        self.mounted = mounted
        (control,) = [text for name, text in environment.items() if name == "STREAMER_CONTROL"]
        self._address = f"http://127.0.0.1:{control.rpartition(':')[2]}"
        program = Path(sys.executable).with_name(mounted.arguments[0])
        self.process = subprocess.Popen(
            [program, *mounted.arguments[1:]],
            cwd=mounted.here(objects.container["workingDir"]),
            env={**environment, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )

    def probe(self, name: str) -> bool:
        """Whether a probe of the container (`startup`, `liveness`, `readiness`) succeeds now."""
        asked = self.objects.container[f"{name}Probe"]
        try:
            with urllib.request.urlopen(
                self._address + asked["httpGet"]["path"], timeout=asked["timeoutSeconds"]
            ) as answer:
                return bool(200 <= answer.status < 400)
        except (urllib.error.URLError, OSError):
            return False

    def stop(self) -> tuple[int, float, str]:
        """As Kubernetes stops it: exit code, seconds, and what it has logged."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=self.objects.pod["terminationGracePeriodSeconds"])
        return self.process.returncode, time.monotonic() - began, log

    def kill(self) -> None:
        """End it, whatever it does; nothing happens if it has ended."""
        self.process.kill()
        self.process.wait(30)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture
def pod(helm: Helm, kafka: Broker, topics: Any, topic_name: Any, free_port: int, tmp_path: Path) -> Iterator[Pod]:
    """The chart's example for Kafka, on topics of this test's own."""
    values = yaml.safe_load((CHART / "ci/kafka-values.yaml").read_text())
    names = {
        "fans.readings": topics(2, "fans-readings"),
        "fans.risks": topics(1, "fans-risks"),
        "fans.dead": topics(1, "fans-dead"),
        "name: fans": f"name: {topic_name('fans')}",
    }
    for old, new in names.items():
        assert old in values["service"]
        values["service"] = values["service"].replace(old, new)
    values["env"]["KAFKA_BOOTSTRAP_SERVERS"] = kafka.bootstrap
    values["control"] = {"port": free_port}
    (tmp_path / "values").mkdir()
    objects = helm.objects(values=values, folder=tmp_path / "values")
    mounted = Mounted(objects, tmp_path / "root")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    risk = helper.make_tensor_value_info("risk", TensorProto.FLOAT, ["N", 1])
    graph = helper.make_graph([helper.make_node("ReduceMean", ["x"], ["risk"], axes=[1])], "fans", [x], [risk])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    save(model, mounted.path("/models/fans.onnx"))
    started = Pod(objects, mounted, mounted.environment("fans-7d9c5b-x2x4k"))
    yield started
    started.kill()


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def files_of(mounted: Mounted) -> dict[Path, int]:
    """All that is in folders which the container may only read, with its time of change."""
    paths = [path for path in mounted.root.rglob("*") if not any(path.is_relative_to(at) for at in mounted.writable)]
    return {path: path.stat().st_mtime_ns for path in paths}


def test_a_pod_becomes_ready_runs_its_records_and_drains_when_it_is_stopped(pod: Pod, kafka: Broker) -> None:
    before = files_of(pod.mounted)
    until(lambda: pod.probe("startup"), "the startup probe")
    until(lambda: pod.probe("readiness"), "the readiness probe")
    service = yaml.safe_load(next(iter(pod.objects.of("ConfigMap")["data"].values())))
    results, dead = service["sink"]["topic"], service["dead_letter"]["topic"]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(COUNT):
        reading = {"machine": f"m{number}", "temp": number, "vib": number + 2}
        producer.produce(service["source"]["topics"], json.dumps(reading), partition=number % 2)
    producer.produce(service["source"]["topics"], b'{"machine": "bad"}', partition=0)
    assert producer.flush(60) == 0
    # Stopped in the midst of its work.
    until(lambda: read(kafka.bootstrap, results), "the first result")
    until(lambda: pod.probe("liveness"), "the liveness probe")
    code, seconds, log = pod.stop()
    assert code == 0, log
    assert seconds < pod.objects.pod["terminationGracePeriodSeconds"]
    (ended,) = [json.loads(line) for line in log.splitlines() if '"ended"' in line]
    assert ended["reason"] == "stopped"
    assert files_of(pod.mounted) == before
    following = Pod(pod.objects, pod.mounted, pod.mounted.environment("fans-7d9c5b-m8k2p"))
    try:
        until(lambda: len(read(kafka.bootstrap, results)) >= COUNT and read(kafka.bootstrap, dead), "the rest")
        assert following.stop()[0] == 0
    finally:
        following.kill()
    values = [json.loads(message.value) for message in read(kafka.bootstrap, results)]
    assert sorted((value["machine"], *value["risk"]) for value in values) == sorted(
        (f"m{number}", number + 1.0) for number in range(COUNT)
    )
    assert len(read(kafka.bootstrap, dead)) == 1


def test_a_pod_that_cannot_reach_its_broker_is_live_and_not_ready(pod: Pod) -> None:
    pod.kill()
    environment = pod.mounted.environment("fans-0") | {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9"}
    away = Pod(pod.objects, pod.mounted, environment)
    try:
        until(lambda: away.probe("startup"), "the startup probe")
        until(lambda: away.probe("liveness"), "the liveness probe")
        assert not away.probe("readiness")
        # Otherwise another program has answered at its port.
        assert away.process.poll() is None
        code, seconds, log = away.stop()
        assert code == 0, log
        assert seconds < pod.objects.pod["terminationGracePeriodSeconds"]
    finally:
        away.kill()
