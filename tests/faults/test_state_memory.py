"""What steps remember takes no more memory the longer a service runs: two million records of ten thousand devices."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer
from groupmembers import GroupMembers

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(7200)]

RECORDS = int(os.environ.get("SOAK_RECORDS", "2_000_000"))
DEVICES = 10_000
PARTITIONS = 4
WARM_UP = 0.25
"""Share of the records after which memory must not grow any more: by then every buffer has had its full size once."""
MOST_GROWN = 12 << 20
"""Bytes that it may grow in all that follow: a leak of eight bytes a record is more. On a machine that is busy with
other things buffers fill later, which looks the same."""
STEPS = {
    "window": '{"@type": WINDOW, by: device, size: 32, values: x, outputName: samples}',
    "time": '{"@type": WINDOW, by: device, size: 1s, aggregate: {mean: {mean: x}}}',
    "dedup": '{"@type": DEDUP, by: device, for: 1s}',
    "change": '{"@type": CHANGE, by: device, value: x, on: 0.9, off: 0.5}',
}


@pytest.fixture
def source(kafka: Any, topics: Any) -> str:
    """A topic with the records. Device 0 is heard of once, and is silent for ever."""
    source = str(topics(PARTITIONS, "measured"))
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000}
    )
    values = [f'", "x": {value}}}'.encode() for value in np.random.default_rng(1).random(4096).round(4).tolist()]
    devices = [f"d{number}".encode() for number in range(DEVICES)]
    began = int(time.time() * 1000) - RECORDS
    for number, value in zip(range(RECORDS), itertools.cycle(values)):
        device = devices[number % DEVICES or (0 if number == 0 else 1)]
        while True:
            try:
                # A millisecond apart, so that windows by time end.
                producer.produce(source, b'{"device": "' + device + value, device, timestamp=began + number)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(300) == 0
    return source


@pytest.mark.parametrize(
    ("step", "store"),
    [
        ("window", "path"),
        ("window", "topic"),
        ("time", "topic"),
        ("time", "path"),
        ("dedup", "path"),
        ("change", "path"),
    ],
)
def test_memory_does_not_grow_with_the_records(
    kafka: Any, source: str, topics: Any, topic_name: Any, tmp_path: Path, running: Any, step: str, store: str
) -> None:
    state = "path: steps.state" if store == "path" else f"topic: {topic_name('state')}"
    file = tmp_path / "service.yaml"
    file.write_text(
        f"""
name: memory
source: {{type: kafka, bootstrap: "{kafka.bootstrap}", topics: [{source}], group: {source}, codec: json}}
pipeline:
  - {STEPS[step]}
sink: {{type: kafka, topic: {topics(1, "results")}, codec: json}}
state: {{{state}}}
"""
    )
    group = GroupMembers(kafka.bootstrap, source, [source], file, running)
    member = group.start()
    samples: list[tuple[int, int]] = []
    while not samples or samples[-1][0] < RECORDS:
        assert member.process.poll() is None, member.text()
        samples.append((group.committed(), rss(member)))
        time.sleep(0.1)
    assert member.stop() == 0, member.text()
    after = [size for count, size in samples if count > WARM_UP * RECORDS]
    quarter = max(len(after) // 4, 1)
    grown = float(np.median(after[-quarter:]) - np.median(after[:quarter]))
    print(
        f"\n{step}, {store}: {after[0] >> 20} MiB, {grown / 2**20:+.1f} MiB in {RECORDS} records, {len(after)} samples"
    )
    print([size >> 20 for _, size in samples[:: max(len(samples) // 40, 1)]])
    assert grown < MOST_GROWN


def rss(member: Any) -> int:
    """Bytes of memory that a member has."""
    status = Path(f"/proc/{member.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024
