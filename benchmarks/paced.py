"""At half load: the delay between a record and its result, and the cost of a message."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from benchmarks.contestants import Contestant
from benchmarks.environments import ROOT
from benchmarks.process import Program, ProgramFailed
from benchmarks.programs.job import Job
from benchmarks.rows import Content
from benchmarks.topics import PARTITIONS, Topics
from protos import data_pb2 as pb

WARM_UP = 3.0
"""Seconds after a program's first record that do not count."""
_START = 60.0
"""Seconds until then, at most."""
_LAST = 2.0
"""Seconds at the end that do not count either: the last results arrive."""


@dataclass(frozen=True, slots=True)
class Paced:
    """Times are seconds; p50 and p99 over all messages after the warm-up."""

    microseconds: float
    """CPU time of the whole process for one message."""
    whole: tuple[float, float]
    """From the sending of a record to the arrival of its result."""
    added: tuple[float, float]
    """From the arrival of a record to the arrival of its result, both at the same kind of consumer."""
    count: int


def pace(contestant: Contestant, job: Job, topics: Topics, content: Content, rate: float, seconds: float) -> Paced:
    """Send `rate` messages a second for `seconds` after the warm-up, through a program. Raises `ProgramFailed`."""
    with topics.created([job.source, job.sink, job.dead]), Program(contestant, job) as program:
        observer = _Observer(job)
        order = {
            "bootstrap": job.bootstrap,
            "topic": job.source,
            "rate": rate,
            "seconds": _START + WARM_UP + seconds,
            "content": content,
        }
        pacer = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.programs.pacer", json.dumps(order)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            program.wait_for_first(_START)
            observer.watch(WARM_UP)
            start, cpu = time.time(), program.cpu()
            observer.watch(seconds - _LAST)
            stop, used = time.time(), program.cpu() - cpu
            observer.watch(_LAST)
            program.alive()
        finally:
            pacer.kill()
            pacer.wait()
            observer.close()
        sent, came, back = observer.times()
    inside = (came > start) & (came < stop)
    if not inside.any() or np.isnan(back[inside]).any():
        missing = int(np.isnan(back[inside]).sum())
        raise ProgramFailed(f"{contestant.name}: {missing} of {int(inside.sum())} results are missing\n{program.log()}")
    done = int(((back > start) & (back < stop)).sum())
    return Paced(
        used / done * 1e6,
        _quantiles((back - sent)[inside]),
        _quantiles((back - came)[inside]),
        int(inside.sum()),
    )


class _Observer:
    """One consumer of both topics; messages are told apart by their `ts`."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._consumer = Consumer(
            {"bootstrap.servers": job.bootstrap, "group.id": "bench-observer", "fetch.queue.backoff.ms": 5}
        )
        self._consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_END)
                for topic in (job.source, job.sink)
                for partition in range(PARTITIONS)
            ]
        )
        self._seen: dict[str, list[tuple[float, bytes]]] = {job.source: [], job.sink: []}

    def watch(self, seconds: float) -> None:
        poll, seen, now = self._consumer.poll, self._seen, time.time
        until = now() + seconds
        while now() < until:
            message = poll(0.05)
            if message is not None and message.error() is None:
                seen[message.topic() or ""].append((now(), message.value() or b""))

    def close(self) -> None:
        self._consumer.close()

    def times(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """When each record was sent, when it came, and when its result came (NaN: never)."""
        results = {_stamp(value): moment for moment, value in self._seen[self._job.sink]}
        records = [(_stamp(value), moment) for moment, value in self._seen[self._job.source]]
        sent = np.array([stamp for stamp, _ in records]) / 1e6
        came = np.array([moment for _, moment in records])
        back = np.array([results.get(stamp, float("nan")) for stamp, _ in records])
        return sent, came, back


def _stamp(value: bytes) -> int:
    stamp: int = pb.DataMap.FromString(value).mapItems["ts"].iValue
    return stamp


def _quantiles(values: np.ndarray) -> tuple[float, float]:
    p50, p99 = np.quantile(values, [0.5, 0.99])
    return float(p50), float(p99)
