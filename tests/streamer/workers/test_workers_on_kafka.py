"""Workers share the partitions of a real Kafka topic, and have them back at once after a restart."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafkatopics import read, write
from waiting import until

pytestmark = pytest.mark.slow


def values(bootstrap: str, topic: str) -> list[int]:
    return sorted(json.loads(message.value)["x"] for message in read(bootstrap, topic) if message.value is not None)


def test_a_killed_worker_has_its_partitions_back_and_puts_no_position_back_again(
    start: Any, kafka: Any, topics: Any, topic_name: Any, tmp_path: Path
) -> None:
    source, sink, group = topics(partitions=2), topics(), topic_name()
    file = tmp_path / "digits.yaml"
    file.write_text(
        f"source: {{type: kafka, bootstrap: '{kafka.bootstrap}', topics: {source}, group: {group}, codec: json,\n"
        "  start: latest}\npipeline: []\n"
        f"sink: {{type: kafka, topic: {sink}, codec: json}}\ncontrol: {{listen: '127.0.0.1:0'}}\n"
    )

    def give(numbers: range) -> None:
        for partition in (0, 1):
            payloads = [b'{"x": %d}' % number for number in numbers if number % 2 == partition]
            write(kafka.bootstrap, source, payloads, partition)

    give(range(10))
    process = start("run", file, "--workers", "2", "--from", "earliest", "--no-log-json")
    url = process.stderr.readline().rpartition(" ")[2].strip()
    assert url.startswith("http://127.0.0.1:"), process.communicate()
    until(lambda: values(kafka.bootstrap, sink) == list(range(10)))

    workers = [child for child in psutil.Process(process.pid).children() if "guard.py" not in " ".join(child.cmdline())]
    assert len(workers) == 2
    # Nothing is in flight: what is done is committed within a second or so, or else it comes again.
    workers[0].kill()
    until(lambda: "a worker died" in process.stderr.readline())
    give(range(10, 20))
    until(lambda: set(values(kafka.bootstrap, sink)) == set(range(20)))
    with urllib.request.urlopen(url, timeout=60) as response:
        text = response.read().decode()
    assert any(line.startswith("streamer_worker_restarts_total{") and "SIGKILL" in line for line in text.splitlines())
    assert {f'worker="{number}"' in text for number in (0, 1)} == {True}
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 0
