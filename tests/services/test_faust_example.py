"""The example of a Faust app: a service, an ordinary agent and a table, in one worker on a real Kafka."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from pipelines import Data
from streamer.devbroker import create_topics

EXAMPLE = Path(__file__).parents[2] / "examples" / "faust"
COUNT = 200


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_table_counts_what_the_service_saw(start_kafka: Any, tmp_path: Path) -> None:
    kafka = start_kafka()
    create_topics(kafka.bootstrap, dict.fromkeys(("digits.images", "digits.predictions", "digits.dead"), 1))
    with np.load(EXAMPLE.parent / "digits" / "digits.npz") as digits:
        images, labels = digits["images"][:COUNT], digits["labels"][:COUNT]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number, image in enumerate(images):
        producer.produce("digits.images", Data({"image": image, "id": number}).to_bytes(), str(number))
    producer.produce("digits.images", b"no image")
    assert producer.flush(60) == 0
    log = tmp_path / "worker.log"
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [sys.executable, "-m", "faust", "--datadir", str(tmp_path), "-A", "app", "worker", "--loglevel", "warn"],
            cwd=EXAMPLE,
            env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=out,
            stderr=out,
        )
    try:
        table: dict[str, int] = {}
        deadline = time.monotonic() + 200
        while sum(table.values()) < COUNT:
            assert worker.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
            shown = re.findall(r"\{'0'.*\}", log.read_text())
            table = ast.literal_eval(shown[-1]) if shown else {}
        worker.terminate()
        assert worker.wait(90) == 0, log.read_text()
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    expected = Counter(map(str, labels))
    # The model is right about nearly all of them.
    assert sum((Counter(table) - expected).values()) <= COUNT // 20
