"""A program under measurement: a fresh process, watched from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from benchmarks.contestants import Contestant
from benchmarks.environments import ROOT
from benchmarks.programs.job import Job

_GRACE = 15.0


@dataclass(frozen=True, slots=True)
class First:
    """When the first record came (seconds since 1970), and the process's CPU seconds until then."""

    time: float
    cpu: float


class ProgramFailed(Exception):
    """A program ended by itself or never did its work; the text ends with its log."""


class Program:
    """Runs a program; ends with the `with` block, by SIGTERM and if need be by SIGKILL."""

    def __init__(self, contestant: Contestant, job: Job) -> None:
        self.name = contestant.name
        self.first: First | None = None
        self.marks: dict[int, float] = {}
        """Numbers of messages that it said it had got, and when (seconds since 1970)."""
        self.code: int | None = None
        self._log = Path(job.folder) / f"{job.group}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                contestant.command(job),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **contestant.environment},
            )
        self._watched = psutil.Process(self._process.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, if it has not ended."""
        if self._process.poll() is None:
            self.thaw()
            self._process.terminate()
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.code = self._process.returncode
        self._reader.join(5.0)

    def freeze(self) -> None:
        """Stop it from running without ending it."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def cpu(self) -> float:
        """CPU seconds of the process so far, all threads, user and system."""
        times = self._watched.cpu_times()
        return float(times.user + times.system)

    def rss(self) -> int:
        """Bytes of memory that it holds at present."""
        return int(self._watched.memory_info().rss)

    def alive(self) -> None:
        """Raises `ProgramFailed` if it has ended."""
        if self._process.poll() is not None:
            raise ProgramFailed(f"{self.name} ended with code {self._process.returncode}\n{self.log()}")

    def wait_for_first(self, timeout: float) -> First:
        """Wait until it has got its first record."""
        deadline = time.monotonic() + timeout
        while self.first is None:
            self.alive()
            if time.monotonic() > deadline:
                raise ProgramFailed(f"{self.name} got no record in {timeout:.0f} s\n{self.log()}")
            time.sleep(0.005)
        return self.first

    def log(self) -> str:
        """The end of its standard error."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b'{"first"'):
                found = json.loads(line)
                self.first = First(found["first"], found["cpu"])
            elif line.startswith(b'{"mark"'):
                found = json.loads(line)
                self.marks[found["mark"]] = found["time"]
