"""A service inside Faust logs in to its brokers as its service file says: TLS, certificates, passwords."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from faustloop import FaustLoop
from kafkatopics import read
from securedkafka import PASSWORD, USER, secured_kafka

import streamer.faust
from streamer.devbroker import create_topics

SERVICE = """
name: tripled
source:
  type: kafka
  bootstrap: {bootstrap}
  topics: [numbers]
  codec: json
  client: {client}
pipeline: {{steps: [{{"@type": FUNCTION, function: "tripling:triple"}}]}}
sink: {{type: kafka, topic: results, codec: json}}
dead_letter: {{type: kafka, topic: dead}}
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_service_inside_faust_logs_in_as_its_file_says(start_kafka: Any, tmp_path: Path) -> None:
    kafka = secured_kafka(start_kafka, tmp_path)
    create_topics(kafka.plain, dict.fromkeys(("numbers", "results", "dead"), 1))
    believed = {"ssl.ca.location": str(kafka.certificate.certificate)}
    shown = {
        "ssl.certificate.location": str(kafka.certificate.certificate),
        "ssl.key.location": str(kafka.certificate.key),
    }
    told = {"sasl.username": USER, "sasl.password": PASSWORD}
    ways: list[tuple[str, dict[str, str]]] = [
        (kafka.mutual, {"security.protocol": "ssl", **believed, **shown}),
        (kafka.secret, {"security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN", **believed, **told}),
        (kafka.open, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", **told}),
    ]
    file = tmp_path / "service.yaml"
    producer = Producer({"bootstrap.servers": kafka.plain})
    for number in range(50):
        producer.produce("numbers", json.dumps({"x": number}))
    producer.produce("numbers", b"no JSON")
    assert producer.flush(60) == 0

    # What the app logs in with, by its producer alone: a whole worker each would take long.
    for bootstrap, client in ways:
        file.write_text(SERVICE.format(bootstrap=bootstrap, client=json.dumps(client)))
        login = streamer.faust.app(file).conf.broker_credentials
        with FaustLoop(bootstrap, broker_credentials=login) as loop:
            loop.run(
                loop.app.producer.send_and_wait("dead", None, client["security.protocol"].encode(), None, None, None)
            )

    client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **believed, **told}
    file.write_text(SERVICE.format(bootstrap=kafka.secret, client=json.dumps(client)))
    (tmp_path / "tripling.py").write_text("def triple(data):\n    data['x'] = 3 * data['x']\n    return data\n")
    log = tmp_path / "worker.log"
    with log.open("wb") as out:
        worker = subprocess.Popen(
            [sys.executable, "-m", "streamer", "run", str(file), "--engine", "faust"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=out,
            stderr=out,
        )
    try:
        results = read(kafka.plain, "results", 50, 150)
        letters = read(kafka.plain, "dead", len(ways) + 1, 150)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(90) == 0, log.read_text()
    except AssertionError as error:
        raise AssertionError(log.read_text()) from error
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    assert [json.loads(one.value or b"")["x"] for one in results] == [3 * number for number in range(50)]
    assert {one.value for one in letters} == {b"ssl", b"SASL_SSL", b"SASL_PLAINTEXT", b"no JSON"}
    assert PASSWORD not in log.read_text()
