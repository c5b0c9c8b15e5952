"""What an answer over HTTP and gRPC costs: `python -m benchmarks.serving`.

Ratios of one run: each server is a process of its own, they are measured in turn, and medians are compared. CPU time is
that of the whole server process. It takes some minutes; `--peers` installs FastAPI and MLServer first.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console

from benchmarks.environments import python_of
from benchmarks.flow.models import wide
from benchmarks.pages import machine
from benchmarks.serving import servers
from benchmarks.serving.bounds import dropped, health, steady
from benchmarks.serving.idle import beside
from benchmarks.serving.load import Order
from benchmarks.serving.rounds import Bodies, Cost, costs
from benchmarks.table import Grid, as_rich

CLIENTS = 32


class Measured(NamedTuple):
    """A line of the table."""

    what: str
    value: str
    aim: str
    reached: bool | None
    """`None`: there is no aim."""


def main(
    rounds: Annotated[int, typer.Option(help="Rounds, of which the median counts.")] = 5,
    seconds: Annotated[float, typer.Option(help="How long each server is measured in a round.")] = 1.0,
    peers: Annotated[bool, typer.Option(help="FastAPI and MLServer, too.")] = False,
    only: Annotated[str, typer.Option(help="Only parts with this text: json, one, grpc, bounds, idle.")] = "",
) -> None:
    """Measure, and print a line for each aim."""
    console = Console(width=130)
    began = time.monotonic()
    lines = []
    with tempfile.TemporaryDirectory(prefix="streamer-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        model = wide(folder / "model.onnx", 64, 10)
        parts: list[Iterator[Measured]] = []
        if any(only in part for part in ("json", "one", "grpc")):
            run = Run(folder, model, peers, stack, rounds, seconds, console)
            parts += [part() for part in (run.json, run.one, run.grpc) if only in part.__name__]
        if only in "bounds":
            parts.append(bounds(folder, model, seconds))
        if only in "idle":
            parts.append(idle(folder, rounds))
        for part in parts:
            for line in part:
                verdict = {True: "reached", False: "missed", None: ""}[line.reached]
                lines.append((line.what, line.value, line.aim, verdict))
                console.print(*lines[-1], sep="  ", highlight=False)
    console.print(as_rich(Grid("serving", ("what", "measured", "aim", ""), lines, left=1)))
    packages = ("uvicorn", "httptools", "grpcio", "onnxruntime")
    console.print(machine((time.monotonic() - began) / 60, packages=packages), highlight=False)


class Run:
    """The servers, and what their answers cost."""

    def __init__(
        self, folder: Path, model: Path, peers: bool, stack: ExitStack, rounds: int, seconds: float, console: Console
    ) -> None:
        self._rounds, self._seconds, self._console = rounds, seconds, console
        self._bodies = Bodies.into(folder)
        ours, port = servers.ours(model, folder)
        self._http = [stack.enter_context(ours), stack.enter_context(servers.constant("http", folder))]
        rpc = stack.enter_context(servers.constant("grpc", folder))
        self._grpc = [(ours, port), (rpc, rpc.port)]
        by_hand, port = servers.by_hand(model, folder)
        self._http.append(stack.enter_context(by_hand))
        self._grpc.append((by_hand, port))
        if peers:
            python = python_of("serving-fastapi", console.print)
            self._http.append(stack.enter_context(servers.by_fastapi(python, model, folder)))
            mlserver, port = servers.by_mlserver(python_of("serving-mlserver", console.print), model, folder)
            self._http.append(stack.enter_context(mlserver))
            self._grpc.append((mlserver, port))
        for server in [*self._http, rpc]:
            server.wait()

    def json(self) -> Iterator[Measured]:
        """Requests of 64 numbers in JSON from many clients."""
        found = self._costs(f"JSON, {CLIENTS} clients", [(s, self._order(s.port, CLIENTS)) for s in self._http])
        ours = found["streamer"]
        yield from _at_most("JSON, 32 clients, CPU an answer : FastAPI loop", ours.cpu, found, "FastAPI loop", 0.25)
        yield from _at_most("the same : MLServer", ours.cpu, found, "MLServer", 0.12)
        yield from _at_most("the same : uvicorn with a constant", ours.cpu, found, "constant http", None)
        yield from _at_most("the same : uvicorn with batches by hand", ours.cpu, found, "by hand", None)
        rate = ours.rate / found["constant http"].rate
        yield Measured("the same, answers a second : uvicorn with a constant", f"{rate:.2f}", "0.6", rate >= 0.6)

    def one(self) -> Iterator[Measured]:
        """One client, one request at a time."""
        found = self._costs("JSON, one client", [(s, self._order(s.port, 1)) for s in self._http])
        times = {name: cost._replace(cpu=cost.median) for name, cost in found.items()}
        ours = times["streamer"].cpu
        yield from _at_most("JSON, one client, p50 : FastAPI loop", ours, times, "FastAPI loop", 2.0)
        yield from _at_most("the same : MLServer", ours, times, "MLServer", 0.7)
        yield from _at_most("the same : uvicorn with batches by hand", ours, times, "by hand", None)
        more = ours - times["constant http"].cpu
        yield Measured("the same, ms more than uvicorn with a constant", f"{more:.2f}", "at most 1", more < 1)

    def grpc(self) -> Iterator[Measured]:
        """Calls of gRPC."""
        orders = [(server, self._order(port, CLIENTS, grpc=True)) for server, port in self._grpc]
        found = self._costs(f"gRPC, {CLIENTS} calls", orders)
        ours = found["streamer"].cpu
        yield from _at_most(
            "gRPC, 32 calls, CPU an answer : grpc.aio with a constant", ours, found, "constant grpc", 2.0
        )
        yield from _at_most("the same : MLServer", ours, found, "MLServer", 0.4)
        yield from _at_most("the same : grpc.aio with batches by hand", ours, found, "by hand", None)

    def _order(self, port: int, clients: int, *, grpc: bool = False) -> Order:
        body = self._bodies.grpc if grpc else self._bodies.json
        return Order(port, str(body), self._seconds, clients, grpc)

    def _costs(self, title: str, orders: list[tuple[servers.Server, Order]]) -> dict[str, Cost]:
        found = costs(orders, self._rounds, self._seconds)
        for name, cost in found.items():
            text = f"{cost.cpu:.0f} us CPU an answer, {cost.rate:.0f} answers a second, p50 {cost.median:.2f} ms"
            self._console.print(f"{title}: {name}: {text}", highlight=False)
        return found


def bounds(folder: Path, model: Path, seconds: float) -> Iterator[Measured]:
    """What must stay within bounds whatever clients do."""
    worst = health(model, folder)
    yield Measured("longest answer of /v2/health/live while batches of 5 s run, ms", f"{worst:.0f}", "50", worst < 50)
    more = dropped(model, folder)
    yield Measured("10,000 connections opened and dropped: more descriptors", f"{more}", "0", more <= 0)
    grown = steady(model, folder, 30 * seconds)
    yield Measured(
        f"64 connections for {60 * seconds:.0f} s: memory in the second half, MiB", f"{grown:+.1f}", "1", grown < 1
    )


def idle(folder: Path, rounds: int) -> Iterator[Measured]:
    """What a listener costs that nobody asks."""
    ratio, each = beside(folder, rounds)
    among = f"{ratio:.3f} ({min(each):.3f} to {max(each):.3f})"
    yield Measured("Kafka, records for a second of CPU, with an idle listener : without", among, "0.98", ratio >= 0.98)


def _at_most(what: str, ours: float, found: dict[str, Cost], other: str, aim: float | None) -> Iterator[Measured]:
    if other in found:
        ratio = ours / found[other].cpu
        yield Measured(
            what, f"{ratio:.2f}", "" if aim is None else f"at most {aim}", None if aim is None else ratio <= aim
        )


if __name__ == "__main__":
    typer.run(main)
