"""What traces of 1 % of the records cost: `python -m benchmarks.tracing`, half a minute on a quiet machine.

A service on memory connectors runs the model of the example digits, with tracing and without in turn, in each with the
same records; the collector is a process of its own. Printed are ratios of records for each second, and for each second
of CPU: the median of all rounds.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import typer

import pipelines
from connectors.memory import MemorySink, MemorySource
from connectors.message import Message
from pipelines import Data, Onnx
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.cli.process import collect_less_often
from streamer.definition.service import Service
from streamer.tracing.traceparent import TraceContext

MODEL: Final = Path(__file__).parent.parent / "examples" / "digits" / "digits.onnx"
SHARE: Final = 0.01
_PATIENCE: Final = 120.0
_COLLECTOR: Final = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Speed(NamedTuple):
    """Records for each second."""

    wall: float
    cpu: float


def main(
    rounds: Annotated[int, typer.Option(help="Rounds, of which the median counts.")] = 7,
    records: Annotated[int, typer.Option(help="Records of a round, for each service.")] = 60_000,
) -> None:
    """Measure, and print a line for each kind of records."""
    # As `streamer run` does.
    collect_less_often()
    pixels = np.random.default_rng(1).integers(0, 17, (8, 8)).astype(np.uint8)
    payload = Data({"image": pixels}).to_bytes()
    contexts = [TraceContext(n + 1, n + 1, int(random.Random(n).random() < SHARE)) for n in range(records)]
    plain = [Message(payload)] * records
    traced = [Message(payload, headers=(("traceparent", context.header()),)) for context in contexts]
    with _collector() as endpoint:
        tracing = {"endpoint": endpoint, "sample": SHARE}
        for what, messages in (("records without a trace", plain), ("all with traceparent", traced)):
            walls, cpus = [], []
            # The first is to warm up.
            for number in range(rounds + 1):
                order = (None, tracing) if number % 2 else (tracing, None)
                speeds = {each is not None: _speed(messages, each) for each in order}
                walls.append(speeds[True].wall / speeds[False].wall)
                cpus.append(speeds[True].cpu / speeds[False].cpu)
            print(
                f"{what}, 1 % sampled : off, {speeds[False].wall:,.0f} records/s off: "
                f"records a second {median(walls[1:]):.3f}, for each second of CPU {median(cpus[1:]):.3f}"
            )


def _speed(messages: list[Message], tracing: dict[str, Any] | None) -> Speed:
    service = Service(
        name="traced",
        source={"type": "memory", "topic": "in", "name": "in"},
        pipeline=pipelines.Sequence([Onnx(model_uri=str(MODEL))]),
        sink={"type": "memory", "topic": "out", "name": "out"},
        tracing=tracing,
    )
    source, sink = MemorySource(name="in"), MemorySink(name="out", max_in_flight=1 << 30)
    agent = Agent(service, assembly=build(service, sources={"in": source}, sinks={"out": sink}))
    agent.start()
    try:
        _run(agent, source, messages[:512])
        began, cpu = time.perf_counter(), time.process_time()
        _run(agent, source, messages)
        return Speed(len(messages) / (time.perf_counter() - began), len(messages) / (time.process_time() - cpu))
    finally:
        agent.stop()
        agent.join(_PATIENCE)


def _run(agent: Agent, source: MemorySource, messages: list[Message]) -> None:
    target = agent.meters.total("ok") + len(messages)
    source.feed(*messages)
    deadline = time.monotonic() + _PATIENCE
    while agent.meters.total("ok") < target:
        if time.monotonic() > deadline or agent.summary is not None:
            raise RuntimeError(f"the service did not finish: {agent.summary}")
        time.sleep(0.002)


@contextmanager
def _collector() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-c", _COLLECTOR], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


if __name__ == "__main__":
    typer.run(main)
