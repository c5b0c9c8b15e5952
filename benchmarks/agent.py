"""The agent's own cost of a batch: `python -m benchmarks.agent`.

CPU microseconds of the whole process for one batch (`time.process_time`, the best of several runs), with a source
that gives the same block again and again, a codec and a sink that do nothing, and a step that puts one column in the
place of another. So the rest is intake, batcher, ledger, delivery and the executor: the cost of every batch, however
many records are in it.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

import pipelines
from connectors.codec import Codec, Decoded, Encoded, RecordsOrigin
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from connectors.records import Ints, Lane, Messages, Records, Span
from connectors.sink import Lost, Refused, Sink
from connectors.source import Event, LaneBegan, Replays, Settle, Source, SourceEnded
from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn
from pipelines.data.rowrange import row_range
from pipelines.values import ValueType
from streamer.agent.agent import Agent
from streamer.agent.assembly import Assembly
from streamer.cli.process import collect_less_often
from streamer.definition.service import Service
from streamer.routing.sinkroute import SinkRoute, selection

SIZES = (1, 64, 512)
BATCHES = 20_000
ROUNDS = 3
LANE = Lane("source", "0", 0)


def main() -> None:
    """Print a line for each size of batches; with `--profile` the functions that take most of the run thread's time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent", description=__doc__)
    parser.add_argument("--batches", type=int, default=BATCHES, help="batches of one run")
    parser.add_argument("--rows", type=int, action="append", help="records in a batch; may be repeated")
    parser.add_argument("--profile", action="store_true", help="profile both threads instead")
    given = parser.parse_args()
    collect_less_often()
    print("records  CPU us a batch, least  of all rounds")
    for rows in given.rows or SIZES:
        if given.profile:
            profiled(rows, given.batches)
            continue
        costs = [cost(rows, given.batches) for _ in range(ROUNDS)]
        print(f"{rows:7d}  {min(costs):21.1f}  {', '.join(f'{one:.1f}' for one in costs)}", flush=True)


def cost(rows: int, batches: int) -> float:
    """CPU microseconds for one batch of so many records."""
    agent = Agent(_service(rows), assembly=_parts(rows, batches))
    agent.start()
    began = time.process_time()
    summary = agent.join(300.0)
    used = time.process_time() - began
    if summary.error is not None or summary.ok != rows * batches:
        raise RuntimeError(f"{summary.ok} of {rows * batches} records: {summary.error}")
    return used / batches * 1e6


def profiled(rows: int, batches: int) -> None:
    """Print where the time goes, thread by thread. Absolute times are larger than without a profiler."""
    profiles: list[tuple[str, cProfile.Profile]] = []
    run = threading.Thread.run

    def run_profiled(self: threading.Thread) -> None:
        profile = cProfile.Profile(time.thread_time)
        profiles.append((self.name, profile))
        profile.runcall(run, self)

    threading.Thread.run = run_profiled  # type: ignore[method-assign]
    try:
        cost(rows, batches)
    finally:
        threading.Thread.run = run  # type: ignore[method-assign]
    for name, profile in profiles:
        print(f"--- {name}, batches of {rows}")
        pstats.Stats(profile).sort_stats("tottime").print_stats(28)


class EndlessSource(Source):
    """Gives the same block so often, at other positions."""

    replays = Replays.OFFSET

    def __init__(self, rows: int, batches: int) -> None:
        self.name = "source"
        self._left = batches
        self._events: list[Event] = [LaneBegan(LANE, "topic", 0, 0)]
        self._values = [b"payload"] * rows
        self._keys = [b"key"] * rows
        self._positions = np.arange(rows, dtype=np.int64)
        self._span = [Span(LANE, 0, rows)]

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None: ...

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """A full batch at once."""
        if not self._left:
            self._events.append(SourceEnded(self.name))
            return Records.empty(self.name)
        self._left -= 1
        count = len(self._values)
        self._positions = self._positions + count
        return Records(
            self.name, self._values, self._keys, self._positions, self._span, ["topic"], [0], 10 * count,
        )  # fmt: skip

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None: ...

    def rewind(self, lanes: Iterable[Lane]) -> None:
        raise NotImplementedError

    def events(self) -> list[Event]:
        """Begun at first, ended at last."""
        found, self._events = self._events, []
        return found

    def close(self) -> None: ...


class Nowhere(Sink):
    """Takes everything, and confirms it at the next barrier."""

    def __init__(self) -> None:
        self.name = "sink"
        self._sent: list[Ints] = []

    def open(self) -> None: ...

    def send(self, messages: Messages, deadline: float) -> Refused:
        """Taken."""
        self._sent.append(messages.rows)
        return {}

    def barrier(self, deadline: float) -> Lost:
        """Nothing is lost."""
        return {}

    def confirmed(self) -> list[Ints]:
        """All that was sent."""
        found, self._sent = self._sent, []
        return found

    def close(self) -> None: ...


class Constant(Codec):
    """Three columns that are always the same; payloads likewise."""

    def __init__(self, rows: int) -> None:
        numbers = DenseColumn(np.zeros(rows, np.int64), ValueType.INT64)
        self._columns: dict[str, Column] = {
            "x": DenseColumn(np.zeros((rows, 32), np.float32)),
            "device_id": numbers,
            "ts": numbers,
        }
        self._values: list[bytes | None] = [b"result"] * rows

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """The columns."""
        rows = row_range(first, len(records))
        return Decoded(Batch(self._columns, len(rows), rows=rows, origin=RecordsOrigin(records, first)), {})

    def encode(self, batch: Batch) -> Encoded:
        """The payloads."""
        return Encoded(self._values, {})


@pipelines.batched
def model(batch: Batch) -> Batch:
    """`y` instead of everything else, as a model does it."""
    return batch.select({"y": batch.column("x")})


def _service(rows: int) -> Service:
    return Service(
        name="bench",
        source=MemorySourceConfig(topic="agent", name="source"),
        pipeline=pipelines.Sequence([model]),
        keep=["device_id", "ts"],
        batch={"max_records": rows},  # type: ignore[arg-type]
        sink=MemorySinkConfig(topic="agent-out", name="sink"),
        dead_letter=MemorySinkConfig(topic="agent-dead"),
    )


def _parts(rows: int, batches: int) -> Assembly:
    service, codec = _service(rows), Constant(rows)

    def route(config: Any, name: str) -> SinkRoute:
        return SinkRoute(name, Nowhere(), codec, selection(config, f"sink {name}"))

    return Assembly(
        service,
        [("source", service.sources[0], EndlessSource(rows, batches))],
        {"source": codec},
        [route(service.sinks[0], "sink")],
        route(service.dead_letter, "dead_letter"),
    )


if __name__ == "__main__":
    main()
