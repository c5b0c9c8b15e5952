"""One program at a broker, played or real: its CPU time between two numbers of messages, its memory and its start."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.contestants import Contestant
from benchmarks.environments import ROOT
from benchmarks.mqtt.player import Play
from benchmarks.process import Program, ProgramFailed
from benchmarks.programs.mqtt.job import MqttJob

_START = 60.0
_LONGEST = 120.0


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run."""

    microseconds: float
    """CPU time of the whole process for one message, user and system."""
    rate: float
    """Messages a second."""
    rss: int
    """Bytes of memory at the end."""
    start: float
    """Seconds from the start of the process to its first message."""


class Player:
    """A process that plays a broker: its port, and the marks that it has told."""

    def __init__(self, play: Play) -> None:
        self.marks: dict[int, float] = {}
        self.port = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.mqtt.player", json.dumps(asdict(play))], cwd=ROOT, stdout=subprocess.PIPE
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told: dict[str, Any] = json.loads(line)
            self.port = told.get("port", self.port)
            if "mark" in told:
                self.marks[told["mark"]] = told["time"]


@contextmanager
def player(play: Play) -> Iterator[Player]:
    """A played broker that takes connections, until the block ends."""
    found = Player(play)
    try:
        deadline = time.monotonic() + _START
        while not found.port:
            if found.process.poll() is not None or time.monotonic() > deadline:
                raise ProgramFailed("the played broker did not start")
            time.sleep(0.01)
        yield found
    finally:
        found.process.kill()
        found.process.wait()


def measure(contestant: Contestant, job: MqttJob, counts: tuple[int, int, int], broker: Player | None) -> Cost:
    """Run a program until it has dealt with the last of `counts` messages; the first of them is its first message, and
    its work up to the second is not counted. The simulated broker reports the progress; without one the program does.
    Raises `ProgramFailed`.
    """
    first, warm, last = counts
    began = time.time()
    with Program(contestant, job) as program:
        started = _wait(program, broker, first, _START) - began
        warm_at = _wait(program, broker, warm, _LONGEST)
        before = program.cpu()
        ended = _wait(program, broker, last, _LONGEST)
        cpu, rss = program.cpu() - before, program.rss()
    if contestant.ours and program.code:
        raise ProgramFailed(f"{contestant.name} ended with code {program.code}\n{program.log()}")
    return Cost(cpu / (last - warm) * 1e6, (last - warm) / (ended - warm_at), rss, started)


def _wait(program: Program, broker: Player | None, mark: int, seconds: float) -> float:
    """Wait until so many messages were dealt with; when that was, in seconds since 1970."""
    marks = program.marks if broker is None else broker.marks
    deadline = time.monotonic() + seconds
    while mark not in marks:
        program.alive()
        if time.monotonic() > deadline:
            raise ProgramFailed(
                f"{program.name} has not got so far as message {mark} in {seconds:.0f} s\n{program.log()}"
            )
        time.sleep(0.002)
    return marks[mark]
