"""The same records through a Faust worker and through the agent, on a real Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from kafkatopics import IN_ORDER, Topics, facts, read
from variedrecords import COUNT, KEEP, PIPELINE, payloads
from waiting import until

pytestmark = pytest.mark.slow

MIXED = json.dumps({"id": 1, "x": 1, "note": [1, 2.5, {"a": None}, "b"]}).encode()
"""A list that no array can hold."""


@pytest.mark.timeout(300)
def test_results_and_dead_letters_in_faust_are_those_of_the_agent(
    kafka: Any, topics: Topics, tmp_path: Path, running: Any
) -> None:
    source = topics(3, "in")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **IN_ORDER, "linger.ms": 5})
    for number, payload in enumerate([*payloads(), MIXED]):
        producer.produce(source, payload, b"device-%d" % (number % 7), headers=[("site", b"north")])
    assert producer.flush(60) == 0

    def made_by(*options: str) -> tuple[list[Any], list[Any]]:
        sink, dead = topics(1, "out"), topics(1, "dead")
        bus = {"type": "kafka", "bootstrap": kafka.bootstrap}
        service = {
            "name": "agrees",
            "source": {**bus, "topics": [source], "group": sink, "codec": "json", "into": {"key": "device"}},
            "pipeline": {"steps": PIPELINE},
            "keep": [*KEEP, "device"],
            "sink": {**bus, "topic": sink, "codec": "json"},
            "dead_letter": {**bus, "topic": dead},
        }
        file = tmp_path / f"{sink}.yaml"
        file.write_text(yaml.safe_dump(service, allow_unicode=True))
        member = running(file, *options)
        until(
            lambda: len(read(kafka.bootstrap, sink)) + len(read(kafka.bootstrap, dead)) > COUNT,
            "a result or letter of each",
            120,
        )
        assert member.stop() == 0, member.text()
        results = [message._replace(value=_with_sorted_keys(message.value)) for message in read(kafka.bootstrap, sink)]
        return facts(results), facts(read(kafka.bootstrap, dead))

    in_faust, in_agent = made_by("--engine", "faust"), made_by()
    assert in_faust == in_agent
    results, letters = map(len, in_agent)
    assert results + letters == COUNT + 1
    assert letters > COUNT // 5


def _with_sorted_keys(value: bytes | None) -> bytes:
    """A record in JSON. Which of its keys come last depends on the records that it was in a batch with."""
    return json.dumps(json.loads(value or b""), sort_keys=True).encode()
