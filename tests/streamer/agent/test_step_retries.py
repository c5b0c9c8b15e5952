"""Services whose steps run records again, and end calls that hang: results, dead letters, metrics, stopping."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from pipelines import Data
from streamer.observe.metrics import exported


def test_what_passes_has_a_result_and_what_stays_is_a_dead_letter(
    define: Callable[..., Any], serve: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    calls: Counter[int] = Counter()

    async def enrich(data: Data) -> Data:
        number = data.get_int64("x")
        calls[number] += 1
        if number == 1 and calls[1] < 3:
            raise ConnectionResetError
        if number == 2:
            raise ValueError
        if number == 3:
            await asyncio.Event().wait()
        return Data({"y": number})

    steps = {
        "FUNCTION": {"retry": {"on": ["ConnectionError", "TimeoutError"], "wait": "1ms"}, "timeout": "50ms"},
    }
    running = serve(define(enrich, steps=steps, errors={"stop_ratio": 1}))
    running.feed(0, 1, 2, 3, 4)
    eventually(lambda: len(running.sink.messages) == 3 and len(running.dead.messages) == 2)
    assert running.results() == [0, 1, 4]
    assert sorted(running.buried()) == [2, 3]
    assert calls == {0: 1, 1: 3, 2: 1, 3: 3, 4: 1}
    readings = running.agent.meters.readings()
    (retries,) = (family for family in exported("test", readings) if family.name == "streamer_step_retries")
    (sample,) = (sample for sample in retries.samples if sample.name.endswith("_total"))
    assert (sample.labels, sample.value) == ({"service": "test", "step": "0:FUNCTION"}, 4)


def test_a_service_that_stops_waits_no_longer_before_it_runs_a_record_again(
    define: Callable[..., Any], serve: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    came = threading.Event()
    calls: list[int] = []

    def down(data: Data) -> Data:
        calls.append(data.get_int64("x"))
        came.set()
        if len(calls) == 1:
            raise TimeoutError
        return Data({"y": 5})

    steps = {"FUNCTION": {"retry": {"on": ["TimeoutError"], "wait": "1h"}}}
    running = serve(define(down, steps=steps, limits={"stuck": "1d"}))
    running.feed(7)
    assert came.wait(60)
    running.stop()
    assert calls == [7, 7]
    assert running.results() == [5]
