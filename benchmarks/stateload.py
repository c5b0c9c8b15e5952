"""What loading saved state costs: `python -m benchmarks.stateload`, about a minute.

10,000 keys of one partition with 1 KiB each, by steps that keep it in different forms: windows by count, by time, and
what a function remembers. CPU milliseconds until the steps have it, all threads counted, and seconds on the clock:
from a file, from a topic, and those of a consumer that does nothing but read the topic into a dictionary. The ways
take turns, and the medians of the rounds count.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from connectors.codec import RecordsOrigin
from connectors.kafka.config import KafkaSourceConfig
from connectors.kafka.statetopic import KafkaStateTopic
from connectors.records import Lane, Records, Span
from connectors.source import TransactionToken
from connectors.statetopic import StateRecord
from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn, ObjectColumn
from pipelines.definitions.sequence import Sequence as Steps
from pipelines.executors.executor import Executor
from pipelines.steps.base import Step
from pipelines.steps.code.function import Function
from pipelines.steps.keyed.window import Window
from pipelines.values import ValueType
from streamer.devbroker import create_topics, open_broker
from streamer.state.filestore import FileStore
from streamer.state.loading import Loading
from streamer.state.store import Scope, StateStore
from streamer.state.topicstore import TopicStore

KEYS: Final = 10_000
BYTES: Final = 1024
ROUNDS: Final = 5
SOURCE: Final = "bench-state"
LANE: Final = Lane("kafka", f"{SOURCE}-0", 1)
SCOPE: Final = Scope(LANE.source, LANE.partition)
STEPS: Final[Mapping[str, tuple[Step, int]]] = {
    "window": (Window(by="device", size=BYTES // 8 + 1, values="x", output_name="samples"), BYTES // 8),
    "time": (Window(by="device", size="1d", time="arrival", values="x", output_name="samples"), BYTES // 32),
    "function": (Function(function="benchmarks.stateload:remembered", remember="device"), 1),
}
"""Steps, and how many samples of 64 bits each key gets, by the name of the line that is printed. Windows by time keep
32 bytes for one."""


def remembered(data: dict[str, Any], state: dict[str, Any]) -> None:
    """Write down `BYTES` or so."""
    state["text"] = data["device"].ljust(BYTES, "x")


class Upstream:
    """A source of one lane, none of whose records comes again."""

    def rewind(self, lanes: Iterable[Lane], marks: Mapping[Lane, int]) -> None:
        """Never called: nothing is lost."""

    def token(self) -> TransactionToken:
        """That of the lane."""
        return TransactionToken(frozenset([LANE]), None)

    def serve(self) -> None:
        """There are no messages."""

    def patience(self) -> float:
        """As long as it takes."""
        return 60.0


class Written(KafkaStateTopic):
    """Writes without a group, whose position is the source's business."""

    producer: Producer

    def write(self, records: Sequence[StateRecord], *_: Any) -> None:
        """Write these records, in no transaction."""
        for record in records:
            self.producer.produce(self.name, record.value, record.key, 0)
            self.producer.poll(0)
        self.producer.flush(60)


def open_steps(step: Step) -> Executor:
    """The step, open in an executor."""
    return Steps([step]).open()


def filled(step: Step, samples: int, store: StateStore) -> None:
    """Save the state of all keys."""
    records = Records(LANE.source, [b""] * KEYS, None, np.arange(KEYS), [Span(LANE, 0, KEYS)], [LANE.partition], [0], 0)
    devices = [f"device-{number}" for number in range(KEYS)]
    values = np.random.default_rng(1).random((KEYS, samples))
    columns = {"device": ObjectColumn(devices, ValueType.STRING), "x": DenseColumn(values, ValueType.NDARRAY)}
    with open_steps(step) as executor:
        executor.run_batch(Batch(columns, KEYS, rows=np.arange(KEYS), origin=RecordsOrigin(records, 0)))
        store.save([(SCOPE, name, change) for name, change in executor.changes()], {SCOPE: KEYS})


def loaded(step: Step, store: StateStore) -> Callable[[], None]:
    """Loads the state of the partition into a fresh step, as a service does."""

    def load() -> None:
        with open_steps(step) as executor:
            loading = Loading(structlog.get_logger())
            with loading.of("bench"):
                executor.load(LANE, loading.counted(store.load(SCOPE).items))

    return load


def bare(bootstrap: str, topic: str) -> Callable[[], None]:
    """Reads the topic, with the settings that the fetches of the service have."""

    def read() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": topic,
                "enable.partition.eof": True,
                "fetch.queue.backoff.ms": 5,
            }
        )
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        values: dict[Any, Any] = {}
        while True:
            for message in consumer.consume(5000, 0.5):
                error = message.error()
                if error is None:
                    values[message.key()] = message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    consumer.close()
                    return

    return read


def medians(ways: Mapping[str, Callable[[], None]]) -> str:
    """CPU milliseconds and seconds of each way, which take turns."""
    spent: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for number in range(1 + ROUNDS):
        for way, run in ways.items():
            clock, began = time.perf_counter(), time.process_time()
            run()
            if number:
                spent[way].append((time.process_time() - began, time.perf_counter() - clock))
    figures = {way: [statistics.median(each) for each in zip(*times, strict=True)] for way, times in spent.items()}
    return ", ".join(f"{way} {cpu * 1e3:.0f} ms CPU ({clock:.2f} s)" for way, (cpu, clock) in figures.items())


def main() -> None:
    """Print a line for each step."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory() as folder, open_broker("the benchmark", progress=print) as broker:
        create_topics(broker.bootstrap, {SOURCE: 1})
        for name, (step, samples) in STEPS.items():
            topic = f"{SOURCE}-{name}-{uuid.uuid4().hex[:8]}"
            source = KafkaSourceConfig(bootstrap=broker.bootstrap, topics=[SOURCE], group=topic)
            file = FileStore(Path(folder) / f"{name}.state", "bench")
            written = Written(topic, source)
            written.producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20})
            kept = TopicStore(written, "bench")
            kept.attach(Upstream(), lambda saved: None)
            for store in (file, kept):
                store.open()
                store.ready()
                filled(step, samples, store)
            ways = {
                "file": loaded(step, file),
                "topic": loaded(step, kept),
                "bare consumer": bare(broker.bootstrap, topic),
            }
            print(f"{name}: {medians(ways)}", flush=True)
            kept.close()
            file.close()


if __name__ == "__main__":
    main()
