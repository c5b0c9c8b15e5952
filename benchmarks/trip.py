"""The trip of a record from Kafka to Kafka: the product's files that it enters, and the Python calls that it makes.

A service (JSON in, an empty pipeline, JSON out) runs on librdkafka's mock cluster with a profiler on all its threads.
Three windows of the same length are compared: without a record, with 1, and with 100. Usage:

    python -m benchmarks.trip
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import streamer
from streamer.agent.agent import Agent
from streamer.devbroker.mock import MockKafka

ROOT = Path(__file__).parents[1]
PACKAGES = tuple(f"{ROOT / package}/" for package in ("streamer", "connectors", "pipelines"))
SECONDS = 3.0
"""Seconds of a window."""
WINDOWS = 3
"""Windows of each kind; the median of their calls counts."""


class Trace:
    """Counts the Python calls of the product's files, on all threads that began after `threading.setprofile`."""

    def __init__(self) -> None:
        self.calls = 0
        self.files: dict[str, None] = {}
        """The files that were entered, in order of their first entry."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """The profiler's function."""
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGES):
            self.calls += 1
            self.files.setdefault(f"{threading.current_thread().name.split()[0]:8}{frame.f_code.co_filename}")

    def window(self, producer: Any, records: int) -> tuple[int, list[str]]:
        """The calls of one window in which this many records arrive, and `thread file` of each file entered."""
        self.calls, self.files = 0, {}
        for number in range(records):
            producer.produce("in", b'{"number": %d}' % number, partition=0)
        producer.flush(10)
        time.sleep(SECONDS)
        return self.calls, list(self.files)


def main() -> None:
    """Print the files of one record's trip in order, and the calls for 1 and 100 records minus those of no record."""
    from confluent_kafka import Producer

    trace = Trace()
    threading.setprofile(trace)
    with MockKafka() as broker:
        kafka = {"type": "kafka", "bootstrap": broker.bootstrap, "codec": "json"}
        service = streamer.Service.model_validate(
            {
                "name": "trip",
                "source": {**kafka, "topics": "in", "group": "trip", "start": "earliest"},
                "pipeline": [],
                "sink": {**kafka, "topic": "out"},
            }
        )
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 50})
        producer.produce("in", b'{"number": 0}', partition=0)
        producer.flush(10)
        agent = Agent(service)
        agent.start()
        time.sleep(2 * SECONDS)
        for _ in range(2):
            trace.window(producer, 100)
        windows = {count: [trace.window(producer, count) for _ in range(WINDOWS)] for count in (0, 1, 100)}
        agent.stop()
        summary = agent.join(30)
    threading.setprofile(None)
    calls = {count: statistics.median(made for made, _ in found) for count, found in windows.items()}
    idle = {file for _, files in windows[0] for file in files}
    files = max((files for _, files in windows[1]), key=len)
    for number, entry in enumerate(dict.fromkeys(files), 1):
        print(f"{number:3} {entry.replace(f'{ROOT}/', '')}{'  (idle too)' if entry in idle else ''}")
    for count in (1, 100):
        entered = {file.split()[-1] for _, files in windows[count] for file in files}
        rest = {file.split()[-1] for file in idle}
        print(
            f"{count} records: {len(entered)} files, {len(entered - rest)} of them not when idle; "
            f"{calls[count] - calls[0]:.0f} calls more than the {calls[0]:.0f} when idle"
        )
    print(f"records run: {summary.ok}", file=sys.stderr)


if __name__ == "__main__":
    main()
