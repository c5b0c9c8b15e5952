"""Records in blocks, for a long time."""

from __future__ import annotations

import time
from types import ModuleType

import psutil
import pytest
from kafkatopics import Topics

from connectors.headers import Headers
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.message import Message, block_of
from pipelines.data.spans import Spans
from pipelines.hotpath import choosing
from streamer.devbroker import Broker

PATIENCE = 30.0


def soon() -> float:
    return time.monotonic() + PATIENCE


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ten_million_records_leave_no_memory_behind(kafka: Broker, topics: Topics, native: ModuleType) -> None:
    topic, out = topics(4), topics(4)
    block = 200_000
    fields = {"bootstrap": kafka.bootstrap, "topics": topic, "group": topic}
    source = choosing("native")(KafkaSourceConfig.model_validate(fields).build)()
    sink = choosing("native")(KafkaSinkConfig(bootstrap=kafka.bootstrap, topic=out).build)()
    feeding = choosing("native")(KafkaSinkConfig(bootstrap=kafka.bootstrap, topic=topic).build)()
    for one in (source, sink, feeding):
        one.open()
    payloads = Spans.of([b"%0100d" % number for number in range(1000)])
    headers = Headers.of([[("trace", b"%d" % number)] for number in range(1000)])
    memory = psutil.Process().memory_info
    sizes: list[int] = []
    for _ in range(10_000_000 // block):
        given = 0
        while given < block:
            messages = block_of([Message(b"")] * 1000)
            messages.values, messages.keys, messages.headers = payloads, payloads, headers
            assert feeding.send(messages, soon()) == {}
            given += 1000
        assert feeding.barrier(soon()) == {}
        feeding.confirmed()
        taken = 0
        while taken < block:
            records = source.poll(512, 2**24, 0.1)
            if not len(records):
                continue
            taken += len(records)
            messages = block_of([Message(b"")] * len(records))
            messages.values, messages.keys, messages.headers = records.values, records.keys, records.header_column()
            assert sink.send(messages, soon()) == {}
            sink.confirmed()
        assert sink.barrier(soon()) == {}
        sink.confirmed()
        source.acknowledge({span.lane: int(records.positions[span.stop - 1]) + 1 for span in records.spans})
        sizes.append(memory().rss >> 20)
    print(f"\nMiB after each {block} records: {sizes}")
    source.close()
    sink.close()
    feeding.close()
    third = len(sizes) // 3
    assert max(sizes[-third:]) < max(sizes[:third]) + 50
