"""What windows cost from topic to topic: `python -m benchmarks.windowservice [--peers]`, about five minutes.

JSON records of devices with three numbers, in four partitions; windows of 128 samples, written as JSON. The programs
drain the same topic in turn, each window is counted, and the CPU microseconds of a record are those of the whole
process between its first record and the last window. The loop by hand saves nothing; `path` saves state and positions
each second in a file, `topic` in a topic, `once` there as well, in the transactions of the results; `memory` saves
nothing either.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.contestants import Contestant
from benchmarks.environments import python_of
from benchmarks.process import Program, ProgramFailed
from benchmarks.programs.job import Job
from benchmarks.rows import LINGER, MAX_WAIT
from benchmarks.topics import Topics
from streamer.devbroker import open_broker

SIZE: Final = 128
KEYS: Final = 1_000
BATCH: Final = 512
WINDOWS: Final = 3
"""Windows of each device in the topic."""
SHARES: Final = {"quix": 1 / 3, "bytewax": 2 / 3}
"""How much of the topic slower programs get: they are stopped when they have made so many of the windows."""
ROUNDS: Final = 3
_START: Final = 90.0
_LOOK: Final = 0.05


class Samples:
    """The messages of the topic: one of each device, again and again."""

    def __init__(self) -> None:
        random = np.random.default_rng(5)
        self._numbers = np.round(random.normal(size=(4096, 3)), 4).tolist()

    def message(self, number: int) -> tuple[bytes, bytes, None]:
        """Key, value and headers of a message."""
        device = f"device-{number % KEYS}"
        ax, ay, az = self._numbers[number % 4096]
        text = f'{{"device": "{device}", "seq": {number // KEYS}, "ax": {ax}, "ay": {ay}, "az": {az}}}'
        return device.encode(), text.encode(), None


def programs(peers: bool) -> dict[str, Contestant]:
    """The programs by name."""

    def of(module: str, *arguments: str, python: Path | None = None) -> Contestant:
        interpreter, target = str(python or sys.executable), f"benchmarks.programs.windows.{module}"
        rest = [*arguments, str(SIZE)]
        return Contestant(module, lambda job: [interpreter, "-m", target, job.to_json(), *rest])

    chosen = {"by hand": of("handwritten")}
    chosen |= {state: of("ours", state) for state in ("path", "topic", "once", "memory")}
    if peers:
        chosen |= {peer: of(peer, python=python_of(peer, print)) for peer in ("bytewax", "quix")}
    return chosen


def cost(name: str, program: Contestant, topics: Topics, source: str, folder: Path) -> float:
    """CPU microseconds for a record, of a program that drains the topic from its beginning."""
    group = f"bench-windows-{uuid.uuid4().hex[:8]}"
    own = folder / group
    own.mkdir()
    job = Job(
        bootstrap=topics.bootstrap,
        source=source,
        sink=f"{group}-out",
        dead=f"{group}-dead",
        group=group,
        model="",
        floats=3,
        batch=BATCH,
        max_wait=MAX_WAIT,
        linger=LINGER,
        keep=False,
        headers=False,
        folder=str(own),
        json=True,
    )
    wanted = round(KEYS * WINDOWS * SHARES.get(name, 1))
    with topics.created([job.sink, job.dead]), Program(program, job) as running:
        first = running.wait_for_first(_START)
        seen = _wait(running, lambda: topics.ends([job.sink])[job.sink], wanted)
        spent = running.cpu() - first.cpu
        if letters := topics.ends([job.dead])[job.dead]:
            raise ProgramFailed(f"{name} made {letters} dead letters")
    return spent / (seen * SIZE) * 1e6


def _wait(running: Program, made: Callable[[], int], wanted: int) -> int:
    last, moved = -1, time.monotonic()
    while (seen := made()) < wanted:
        running.alive()
        if seen > last:
            last, moved = seen, time.monotonic()
        if time.monotonic() - moved > _START:
            raise ProgramFailed(f"{running.name} stands still at {seen} of {wanted} windows\n{running.log()}")
        time.sleep(_LOOK)
    return seen


def main() -> None:
    """Print a line for each program."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.windowservice", description=__doc__)
    parser.add_argument("--peers", action="store_true", help="also Bytewax and Quix Streams, which are installed first")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each program drains the topic")
    given = parser.parse_args()
    chosen = programs(given.peers)
    spent: dict[str, list[float]] = {name: [] for name in chosen}
    with open_broker("the benchmark", progress=print) as broker, tempfile.TemporaryDirectory() as folder:
        topics = Topics(broker.bootstrap)
        source = f"bench-windows-{uuid.uuid4().hex[:8]}"
        with topics.created([source]):
            topics.fill(source, Samples(), KEYS * SIZE * WINDOWS)
            for turn in range(given.rounds):
                for name, program in chosen.items():
                    micros = cost(name, program, topics, source, Path(folder))
                    spent[name].append(micros)
                    print(f"round {turn + 1}, {name}: {micros:.2f} us a record", flush=True)
    print("program    us/record  of the loop by hand")
    for name, each in spent.items():
        beside = statistics.median(mine / loop for mine, loop in zip(each, spent["by hand"], strict=True))
        print(f"{name:10} {statistics.median(each):9.2f} {beside:9.2f}")


if __name__ == "__main__":
    main()
