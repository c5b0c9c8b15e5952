"""What new versions of a model cost the records of a service: `python -m benchmarks.versions`, three minutes.

Two services use one model in version folders: a service on memory connectors gets records at a steady rate, another
answers HTTP clients. They run as long without new versions as with them. Counted are results that are lost, doubled or
wrong for the version that they name, and requests that failed; measured the longest gap between two results. Then
versions are loaded one after another, for the memory that stays and the time of a request; last, batches are divided
between two variants. Where others use the machine, only ratios mean anything.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import onnx
import typer
from onnx import TensorProto, helper, numpy_helper

from connectors.memory import MemorySink, MemorySource
from connectors.message import Message
from connectors.sink import Sink
from connectors.source import Source
from pipelines import Data, Onnx, Sequence
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.cli.process import collect_less_often, pass_over_what_stays
from streamer.definition.service import Service
from streamer.models.giveback import trim

STEP: Final = 1_000_000
"""What a model adds to `x` for each version: the result says which one has run."""
_PATIENCE: Final = 60.0
_BODY: Final = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [7]}]}).encode()


class Round(NamedTuple):
    """What came out of one round."""

    results: int
    lost: int
    doubled: int
    wrong: int
    """Results that are not those of the version that they name."""
    failed: int
    """Requests."""
    gap: float
    """Seconds between two results of the memory connectors, at most."""
    http_gap: float


def main(
    seconds: Annotated[float, typer.Option(help="Length of each round.")] = 60.0,
    swaps: Annotated[int, typer.Option(help="New versions in a round.")] = 20,
    rate: Annotated[int, typer.Option(help="Records a second.")] = 1_000,
    clients: Annotated[int, typer.Option(help="HTTP clients.")] = 32,
    reloads: Annotated[int, typer.Option(help="Versions for memory and the time of requests.")] = 200,
) -> None:
    """Measure, and print what came out."""
    collect_less_often()
    with TemporaryDirectory() as folder:
        models = Path(folder)
        for number in range(1, swaps + 2):
            _write(models, number)
        _show(models, 1)
        with _running(models) as (agent, source, sink, port):
            pass_over_what_stays()
            still = _round(agent, source, sink, port, models, seconds, 0, rate, clients)
            swapped = _round(agent, source, sink, port, models, seconds, swaps, rate, clients)
        print("without new versions", still)
        print("with new versions   ", swapped)
        print(f"longest gap: {swapped.gap / still.gap:.2f}, over HTTP {swapped.http_gap / still.http_gap:.2f}")
    with TemporaryDirectory() as folder:
        _reload(Path(folder), reloads)
    with TemporaryDirectory() as folder:
        _divide(Path(folder))


def _write(models: Path, number: int, weights: int = 2_000_000) -> None:
    """A version that adds `number * STEP`, of a size that takes some time to load; `_show` has services see it."""
    tensors = [
        numpy_helper.from_array(np.array(number * STEP, np.int64), "n"),
        numpy_helper.from_array(np.full(weights, number, np.float32), "w"),
        numpy_helper.from_array(np.zeros(1, np.int64), "first"),
    ]
    nodes = [
        # Not of constants alone: those would be computed once, and thrown away.
        helper.make_node("Mul", ["x", "first"], ["zeros"]),
        helper.make_node("Gather", ["w", "zeros"], ["picked"]),
        helper.make_node("Cast", ["picked"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Mul", ["whole", "first"], ["nothing"]),
        helper.make_node("Add", ["x", "n"], ["added"]),
        helper.make_node("Add", ["added", "nothing"], ["y"]),
    ]
    _save(models, number, nodes, tensors, TensorProto.INT64, ["N"])


def _write_slow(models: Path, number: int, width: int = 512) -> None:
    """A version that takes about a millisecond for 64 records."""
    tensors = [
        numpy_helper.from_array(np.ones((1, width), np.float32), "wide"),
        numpy_helper.from_array(np.full((width, width), 1 / width, np.float32), "w"),
        numpy_helper.from_array(np.full((width, 1), number, np.float32), "narrow"),
        numpy_helper.from_array(np.array([1], np.int64), "axis"),
    ]
    nodes = [
        helper.make_node("Cast", ["x"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["floats", "axis"], ["column"]),
        helper.make_node("MatMul", ["column", "wide"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "narrow"], ["y"]),
    ]
    _save(models, number, nodes, tensors, TensorProto.FLOAT, ["N", 1])


def _save(models: Path, number: int, nodes: Any, tensors: Any, dtype: int, shape: list[Any]) -> None:
    graph = helper.make_graph(
        nodes,
        "adding",
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info("y", dtype, shape)],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    beside = models / f".{number}"
    beside.mkdir(parents=True)
    onnx.save(model, beside / "model.onnx")


def _show(models: Path, number: int) -> None:
    (models / f".{number}").rename(models / str(number))


class _Timed(MemorySink):
    """Notes when results arrive."""

    def __init__(self) -> None:
        super().__init__(name="out")
        self.times: list[float] = []

    def send(self, messages: Any, deadline: float) -> Any:
        self.times.append(time.perf_counter())
        return super().send(messages, deadline)


@contextmanager
def _started(service: Service, sources: dict[str, Source] | None, sinks: dict[str, Sink] | None) -> Iterator[Agent]:
    agent = Agent(service, assembly=build(service, sources=sources, sinks=sinks))
    agent.start()
    try:
        yield agent
    finally:
        agent.stop()
        agent.join(_PATIENCE)


@contextmanager
def _running(models: Path) -> Iterator[tuple[list[Agent], MemorySource, _Timed, int]]:
    source, sink = MemorySource(name="in"), _Timed()
    follow: dict[str, Any] = {"models": {"follow": 0.1}, "on_error": "drop"}
    records = _of_records(models, **follow)
    requests = Service(
        name="requests",
        source={"type": "http", "listen": "127.0.0.1:0"},
        sink={"type": "http"},
        pipeline=Sequence([Onnx(model_uri=models)]),
        **follow,
    )
    with (
        _started(records, {"in": source}, {"out": sink}) as first,
        _started(requests, None, None) as second,
    ):
        _until(lambda: second.ready() is None)
        endpoint: Any = second.sources[0]
        yield [first, second], source, sink, endpoint.address[1]


def _of_records(folder: Path, **settings: Any) -> Service:
    """A service from memory to memory."""
    memory = {"type": "memory", "topic": "adding"}
    source, sink = {**memory, "name": "in"}, {**memory, "topic": "added", "name": "out"}
    return Service(name="records", source=source, sink=sink, pipeline=Sequence([Onnx(model_uri=folder)]), **settings)


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.005)


def _round(
    agents: list[Agent],
    source: MemorySource,
    sink: _Timed,
    port: int,
    models: Path,
    seconds: float,
    swaps: int,
    rate: int,
    clients: int,
) -> Round:
    before = len(sink.messages)
    sink.times.clear()
    ends, failed = threading.Event(), Counter[str]()
    answers: list[list[float]] = [[] for _ in range(clients)]
    threads = [threading.Thread(target=_ask, args=(port, ends, failed, each)) for each in answers]
    for thread in threads:
        thread.start()
    begun, fed, swapped = time.perf_counter(), 0, 0
    while (passed := time.perf_counter() - begun) < seconds:
        due = int(passed * rate)
        source.feed(*[Message(Data({"x": number}).to_bytes()) for number in range(fed, due)])
        fed = due
        if swapped < swaps and passed > (swapped + 0.5) * seconds / swaps:
            swapped += 1
            _show(models, swapped + 1)
        time.sleep(0.002)
    ends.set()
    for thread in threads:
        thread.join(_PATIENCE)
    _until(lambda: len(sink.messages) - before >= fed)
    if swaps:
        _until(lambda: all(agent.version is not None and agent.version.label == str(swaps + 1) for agent in agents))
    results, wrong = Counter[int](), 0
    for message in sink.messages[before:]:
        value = Data.from_bytes(message.value)["y"]
        results[value % STEP] += 1
        wrong += dict(message.headers)["streamer-version"] != str(value // STEP).encode()
    doubled = sum(results.values()) - len(results)
    asked = sorted(at for each in answers for at in each)
    total = len(asked) + sum(results.values())
    return Round(total, fed - len(results), doubled, wrong, failed.total(), _gap(sink.times), _gap(asked))


def _gap(times: list[float]) -> float:
    return max(after - before for before, after in itertools.pairwise(times))


def _ask(port: int, ends: threading.Event, failed: Counter[str], times: list[float]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    while not ends.wait(0.1):
        connection.request("POST", "/v2/models/requests/infer", _BODY, {"Content-Type": "application/json"})
        response = connection.getresponse()
        document = json.loads(response.read())
        times.append(time.perf_counter())
        if response.status != 200 or document["outputs"][0]["data"] != [7 + STEP * int(document["model_version"])]:
            failed[str(document)] += 1
    connection.close()


def _reload(models: Path, reloads: int) -> None:
    """Memory, and the CPU time of a request, over many versions."""
    _write(models, 1, 8_000_000)
    _show(models, 1)
    source, sink = MemorySource(name="in"), _Timed()
    service = _of_records(models, models={"follow": 0.02}, on_error="drop")
    with _started(service, {"in": source}, {"out": sink}) as agent:
        sizes, times, peak = [], [], 0
        for number in range(2, reloads + 2):
            _write(models, number, 8_000_000)
            trim()
            _show(models, number)
            peak = max(peak, _resident())
            while agent.version is None or agent.version.label != str(number):
                peak = max(peak, _resident())
                time.sleep(0.002)
            (models / str(number - 1) / "model.onnx").unlink()
            time.sleep(0.05)
            sizes.append(_resident())
            times.append(_request(source, sink))
        few = max(1, min(20, reloads // 4))
        print(f"memory after 1, {min(20, reloads)}, {reloads} versions, and at most: MB", end=" ")
        print(*(round(size / 2**20) for size in (sizes[0], sizes[: min(20, reloads)][-1], sizes[-1], peak)))
        print(f"memory, last to first: {sizes[-1] / sizes[0]:.2f}, at most to first {peak / sizes[0]:.2f}")
        print(f"time of a request, last to first: {median(times[-few:]) / median(times[:few]):.2f}")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _request(source: MemorySource, sink: _Timed) -> float:
    """Median of the seconds from a record to its result."""
    times: list[float] = []
    for _ in range(20):
        before, begun = len(sink.times), time.perf_counter()
        source.feed(Message(Data({"x": 1}).to_bytes()))
        while len(sink.times) == before:
            time.sleep(0.00005)
        times.append(sink.times[-1] - begun)
    return median(times)


def _divide(models: Path, records: int = 30_000, rounds: int = 5) -> None:
    """Records a second of two variants against one, batches of 64."""
    for number in (1, 2):
        _write_slow(models, number)
        _show(models, number)
    speeds: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for several in (False, True):
            source, sink = MemorySource(name="in"), _Timed()
            variants = {"next": {"version": 1, "weight": 10}} if several else {}
            service = _of_records(models, on_error="drop", batch={"max_records": 64}, variants=variants)
            with _started(service, {"in": source}, {"out": sink}) as agent:
                messages = [Message(Data({"x": number}).to_bytes()) for number in range(records)]
                begun = time.process_time()
                source.feed(*messages)
                source.end()
                agent.join(_PATIENCE)
                speeds[several].append(records / (time.process_time() - begun))
    print(f"a batch of 64 with one variant: {64_000 / median(speeds[False]):.2f} ms of CPU")
    print(f"variants 90:10 against one: {median(speeds[True]) / median(speeds[False]):.2f} of the records a CPU second")


if __name__ == "__main__":
    typer.run(main)
