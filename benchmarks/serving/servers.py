"""A server under measurement: a fresh process on a core of its own, watched from outside."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

from benchmarks.environments import ROOT

START = 90.0
CORES = sorted(os.sched_getaffinity(0))
"""Those that this process may use: servers run on the first one, clients on the last one."""


class Server:
    """Runs a program of `benchmarks.programs.serving`, or another command, until the `with` block ends."""

    def __init__(self, name: str, command: list[str], port: int, folder: Path) -> None:
        self.name = name
        self.port = port
        self._log = folder / f"{name.replace(' ', '-')}.log"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)
        self._watched = psutil.Process(self._process.pid)
        # Clients get the other one, so that they take nothing from the server.
        self._watched.cpu_affinity(CORES[:1])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait(self) -> None:
        """Wait until it accepts connections. Raises `RuntimeError` with the end of its log if it does not."""
        deadline = time.monotonic() + START
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} does not start:\n{self._log.read_text()[-2000:]}") from None
                time.sleep(0.1)

    def cpu(self) -> float:
        """CPU seconds so far, of all its threads and of processes that it started."""
        family = [self._watched, *self._watched.children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in family)

    def rss(self) -> int:
        """Bytes of memory."""
        return int(self._watched.memory_info().rss)

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return self._watched.num_fds()


def ours(model: Path, folder: Path, *, pause: float = 0.0) -> tuple[Server, int]:
    """The service, and its port of gRPC. Each batch sleeps for `pause` seconds after the model."""
    http, grpc = free_port(), free_port()
    program = [sys.executable, "-m", "benchmarks.programs.serving.ours"]
    return Server("streamer", [*program, str(model), str(http), str(grpc), str(pause)], http, folder), grpc


def beside(bootstrap: str, topic: str, folder: Path, *, http: bool) -> Server:
    """A service from this topic to `TOPIC.results`, with a listener that nobody asks or without."""
    port = free_port() if http else 0
    program = [sys.executable, "-m", "benchmarks.programs.serving.beside"]
    name = "with a listener" if http else "without a listener"
    return Server(name, [*program, bootstrap, topic, str(port)], port, folder)


def constant(kind: str, folder: Path) -> Server:
    """The server that answers the same bytes: `http` or `grpc`."""
    port = free_port()
    program = [sys.executable, "-m", "benchmarks.programs.serving.constant"]
    return Server(f"constant {kind}", [*program, kind, str(port)], port, folder)


def by_hand(model: Path, folder: Path) -> tuple[Server, int]:
    """The least that a server with batches costs, and its port of gRPC."""
    http, grpc = free_port(), free_port()
    program = [sys.executable, "-m", "benchmarks.programs.serving.byhand"]
    return Server("by hand", [*program, str(model), str(http), str(grpc)], http, folder), grpc


def by_fastapi(python: Path, model: Path, folder: Path) -> Server:
    """The loop by hand, in an environment with FastAPI."""
    port = free_port()
    program = ROOT / "benchmarks" / "programs" / "serving" / "byfastapi.py"
    return Server("FastAPI loop", [str(python), str(program), str(model), str(port)], port, folder)


def by_mlserver(python: Path, model: Path, folder: Path) -> tuple[Server, int]:
    """MLServer without worker processes, which cost more, and its port of gRPC."""
    http, grpc, metrics = free_port(), free_port(), free_port()
    settings = {"http_port": http, "grpc_port": grpc, "metrics_port": metrics, "parallel_workers": 0, "debug": False}
    runtime = "benchmarks.programs.serving.bymlserver.OnnxModel"
    described = {"name": "model", "implementation": runtime, "parameters": {"uri": str(model)}}
    place = folder / "mlserver"
    place.mkdir()
    (place / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (place / "model-settings.json").write_text(json.dumps(described), encoding="utf-8")
    return Server("MLServer", [str(python.parent / "mlserver"), "start", str(place)], http, folder), grpc


def free_port() -> int:
    """A port that nobody has at present."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
