"""Compressed batches grow when they are unpacked: how many bytes a source has in memory at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafkatopics import Topics

from connectors.kafka.client.properties import source_properties
from connectors.kafka.config import KafkaSourceConfig
from streamer.devbroker import Broker

pytestmark = pytest.mark.slow


RECORD = 1_000_000
RECORDS = 50
"""Records of zeros in one batch: 50 MB, of which gzip makes 50 kB."""
BATCHES = 4

READING = """
import sys, time
from pathlib import Path
from connectors.kafka.config import KafkaSourceConfig

bootstrap, topic, max_fetch = sys.argv[1:]
source = KafkaSourceConfig(bootstrap=bootstrap, topics=topic, group=topic + max_fetch, max_fetch=max_fetch).build()
source.open()
while not len(source.poll(1, 1 << 24, 0.1)):
    source.events()
# The client fetches on by itself until it has enough.
time.sleep(3)
source.close()
(most,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
print(int(most.split()[1]) // 1024)
"""


def put(broker: Broker, topic: str) -> None:
    """Batches that are larger than any usual producer makes them."""
    lost: list[object] = []

    def reported(error: object, message: object) -> None:
        if error is not None:
            lost.append(error)

    for _ in range(BATCHES):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "compression.type": "gzip",
                "linger.ms": 60_000,
                "batch.size": 2**31 - 1,
                "message.max.bytes": 1_000_000_000,
            }
        )
        for _ in range(RECORDS):
            producer.produce(topic, bytes(RECORD), on_delivery=reported)
        assert producer.flush(60) == 0
    assert not lost


def peak(broker: Broker, topic: str, max_fetch: str) -> int:
    """MiB that a process takes at most which has begun to read the topic.

    As the kernel says of its memory: what `getrusage` gives a child begins with the size of its parent.
    """
    command = [sys.executable, "-c", READING, broker.bootstrap, topic, max_fetch]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel says how much memory a process took")
@pytest.mark.timeout(300)
def test_a_small_fetch_has_one_unpacked_batch_in_memory_at_a_time(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    put(kafka, topic)
    # All batches together are 200 MB: so much is there at once where a fetch may bring all of them.
    assert peak(kafka, topic, "16KiB") + 80 < peak(kafka, topic, "4MiB")


@pytest.mark.parametrize(("max_fetch", "whole", "partition"), [("16KiB", 16384, 16384), ("4MiB", 1 << 22, 1 << 20)])
def test_a_fetch_is_bounded_for_a_broker_and_for_each_partition(max_fetch: str, whole: int, partition: int) -> None:
    config = KafkaSourceConfig.model_validate({"topics": "in", "group": "g", "max_fetch": max_fetch})
    properties = source_properties(config, {})
    assert properties["fetch.max.bytes"] == whole
    assert properties["max.partition.fetch.bytes"] == partition
    # librdkafka refuses to start otherwise.
    assert properties["message.max.bytes"] <= whole < properties["receive.message.max.bytes"]


@pytest.mark.parametrize("max_fetch", ["1KiB", "1MiB", "900MB"])
def test_the_client_takes_any_size_of_a_fetch(max_fetch: str) -> None:
    config = KafkaSourceConfig.model_validate(
        {"topics": "in", "group": "g", "bootstrap": "localhost:1", "max_fetch": max_fetch}
    )
    source = config.build()
    source.open()
    source.close()
