"""A service that answers requests on Kafka is killed in between: every request has its answer, errors too."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafkatopics import read
from waiting import until

from streamer.devbroker import Broker

pytestmark = pytest.mark.slow

COUNT = 300
STEP = """
import time


def half(data):
    time.sleep(0.002)
    if data["x"] % 3 == 0:
        raise ValueError("a third fails")
    return {"y": data["x"] / 2}
"""


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_no_answer_is_lost_when_the_process_is_killed(
    delivery: str, kafka: Broker, topics: Callable[..., str], start: Any, tmp_path: Path
) -> None:
    requests, answers, dead = topics(1, "killed-in"), topics(1, "killed-out"), topics(1, "killed-dead")
    (tmp_path / "halfstep.py").write_text(STEP)
    (tmp_path / "service.yaml").write_text(f"""
name: {requests}
source:
  type: kafka
  bootstrap: "{kafka.bootstrap}"
  topics: {requests}
  group: {requests}
  instance: one
  codec: json
pipeline: [{{"@type": FUNCTION, function: "halfstep:half"}}]
batch: {{max_records: 20}}
sink: {{type: kafka, topic: "{{record.headers.reply-to}}", topics: [{answers}], codec: json, errors: true}}
dead_letter: {{type: kafka, topic: {dead}}}
delivery: {delivery}
errors: {{stop_ratio: 1, first: 0}}
""")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 1})
    for number in range(COUNT):
        producer.produce(requests, b'{"x": %d}' % number, b"%d" % number, headers=[("reply-to", answers.encode())])
    assert producer.flush(60) == 0
    process = start("run", "service.yaml")
    until(lambda: len(read(kafka.bootstrap, answers)) > 40)
    process.kill()
    process.communicate()
    process = start("run", "service.yaml")
    until(lambda: len({each.key for each in read(kafka.bootstrap, answers)}) == COUNT)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0
    given = read(kafka.bootstrap, answers, COUNT)
    for each in given:
        number, body = int(each.key or b""), json.loads(each.value or b"")
        expected = {"error": "a third fails", "step": "0:FUNCTION"} if number % 3 == 0 else {"y": number / 2}
        assert (body, "streamer-error" in dict(each.headers)) == (expected, number % 3 == 0)
    times = Counter(each.key for each in given)
    assert set(times) == {b"%d" % number for number in range(COUNT)}
    if delivery == "exactly_once":
        assert set(times.values()) == {1}
        letters = Counter(each.key for each in read(kafka.bootstrap, dead))
        assert letters == {b"%d" % number: 1 for number in range(0, COUNT, 3)}
