"""Services on live streams: what is run is the newest, however long the model takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from connectors.memory import MemoryLiveSource, MemorySource
from pipelines import Data
from streamer.definition.service import Service


class Gate:
    """A step that runs a record each time that it is opened."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._open = threading.Semaphore(0)

    def __call__(self, data: Data) -> Data:
        self.seen.append(data.get_int64("x"))
        assert self._open.acquire(timeout=60)
        return Data({"y": data.get_int64("x")})

    def let(self, records: int = 1) -> None:
        for _ in range(records):
            self._open.release()


def show(source: MemoryLiveSource, number: int, stream: str = "stream") -> None:
    source.show(stream, Data({"x": number}).to_bytes())


def test_the_record_that_is_run_is_the_newest_there_is_when_the_model_is_free(
    define: Callable[..., Service], serve: Any, eventually: Any
) -> None:
    gate, source = Gate(), MemoryLiveSource()
    serving = serve(define(gate), sources={"memory": source})
    show(source, 0)
    eventually(lambda: gate.seen == [0])
    for number in range(1, 40):
        show(source, number)
        time.sleep(0.005)
    gate.let()
    eventually(lambda: len(gate.seen) == 2)
    assert gate.seen == [0, 39]
    gate.let()
    eventually(lambda: serving.results() == [0, 39])
    assert source.dropped == 38
    assert not serving.stop().error


def test_a_stop_ends_a_service_whose_model_is_busy(define: Callable[..., Service], serve: Any, eventually: Any) -> None:
    gate, source = Gate(), MemoryLiveSource()
    serving = serve(define(gate), sources={"memory": source})
    show(source, 0)
    eventually(lambda: gate.seen == [0])
    show(source, 1)
    serving.agent.stop()
    gate.let()
    summary = serving.agent.join(60)
    assert (summary.ok, summary.error) == (1, None)
    assert serving.results() == [0]


def test_two_live_sources_and_a_busy_other_one_all_get_their_turn(
    define: Callable[..., Service], serve: Any, eventually: Any
) -> None:

    one, two = MemoryLiveSource(name="one"), MemoryLiveSource(name="two")
    busy = MemorySource((Data({"x": -1}) for _ in iter(int, 1)), name="busy")
    sources = [{"type": "memory", "topic": name, "name": name} for name in ("one", "two", "busy")]
    seen: set[int] = set()

    def live_ones(data: Data) -> Data | None:
        if data["x"] < 0:
            return None
        seen.add(data["x"])
        return data

    serving = serve(
        define(live_ones, source=sources, batch={"max_records": 16}),
        sources={"one": one, "two": two, "busy": busy},
    )
    for number in range(6):
        show(one, 2 * number)
        show(two, 2 * number + 1)
        eventually(lambda number=number: {2 * number, 2 * number + 1} <= seen)
    assert not serving.stop().error


class Frame:
    """A payload that is an object: bytes are made of it for a dead letter only."""

    nbytes = 6_000_000

    def __init__(self, number: int, broken: bool = False) -> None:
        self.number = number
        self.broken = broken

    def payload(self) -> bytes:
        if self.broken:
            raise ValueError("no picture was ever decoded")
        return b"a picture of %d" % self.number


def test_the_dead_letter_of_an_object_has_its_bytes(
    define: Callable[..., Service], serve: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.delivery.letters.HOLD", 0.1)
    source = MemoryLiveSource(["gate", "dock"])
    definition = define(source={"type": "memory", "topic": "in", "codec": "objects"})
    serving = serve(definition, sources={"memory": source})
    source.show("gate", Frame(1), key=b"gate")
    eventually(lambda: len(serving.dead.messages) == 1)
    source.show("dock", Frame(2, broken=True), key=b"dock")
    eventually(lambda: len(serving.dead.messages) == 2)
    whole, short = serving.dead.messages
    assert (whole.value, whole.key) == (b"a picture of 1", b"gate")
    headers = dict(short.headers)
    assert headers["streamer-left-out"] == b"payload"
    assert headers["streamer-refusal"] == b"its payload cannot be written: no picture was ever decoded"
    assert (headers["streamer-topic"], short.key) == (b"dock", b"dock")
    assert not serving.stop().error


def test_a_service_of_live_sources_runs_rounds_without_being_told(
    define: Callable[..., Service], serve: Any, eventually: Any
) -> None:
    gate, source = Gate(), MemoryLiveSource(["gate", "dock", "yard"])
    serving = serve(define(gate, batch={"max_records": 8}), sources={"memory": source})
    show(source, 0, "gate")
    eventually(lambda: gate.seen == [0])
    for number, stream in ((1, "gate"), (2, "dock"), (3, "dock"), (4, "yard")):
        show(source, number, stream)
    gate.let(10)
    eventually(lambda: len(serving.results()) == 4)
    assert sorted(serving.results()) == [0, 1, 3, 4]
    assert set(serving.agent.meters.sources["memory"].closed) <= {"wait", "round"}
    assert serving.agent.meters.sources["memory"].closed["round"] == 1
    assert not serving.stop().error


def test_the_size_of_rounds_is_learned_where_batching_gains_nothing(
    define: Callable[..., Service], serve: Any, eventually: Any
) -> None:
    source = MemoryLiveSource([str(number) for number in range(4)])
    seen: list[int] = []

    def slow(data: Data) -> Data:
        time.sleep(0.002)
        seen.append(data["x"])
        return data

    serving = serve(define(slow), sources={"memory": source})
    rounds = 0

    def learned() -> bool:
        nonlocal rounds
        rounds += 1
        for stream in range(4):
            show(source, rounds, str(stream))
        sizer = serving.agent._loop._runs.rounds
        assert sizer is not None
        return len(sizer._times.get(2, ())) >= 3 and sizer.size(4) in (1, 2)

    eventually(learned)
    assert not serving.stop().error
