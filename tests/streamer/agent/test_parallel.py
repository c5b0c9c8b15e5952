"""`limits.parallel`: batches run at the same time, and results leave in order."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import numpy as np
import pytest

import pipelines
from connectors.memory import MemorySource
from connectors.message import Message
from pipelines import Batch, Data
from pipelines.data.columns import Column
from pipelines.errors import DefinitionError
from pipelines.runners.runner import ContractError
from streamer.agent.runs.batchrun import BatchRun


def messages(*numbers: int) -> list[Message]:
    return [Message(Data({"x": number}).to_bytes()) for number in numbers]


def doubled(batch: Batch) -> Batch:
    return batch.with_columns({"y": Column.of([2 * int(number) for number in batch["x"].values()])})


@pytest.mark.parametrize("parallel", [2, 4])
def test_batches_run_at_the_same_time_and_results_come_in_order(
    define: Any, serve: Any, eventually: Any, parallel: int
) -> None:
    together = threading.Barrier(parallel, timeout=30)
    chance = random.Random(parallel)
    met = []

    @pipelines.batched
    def model(batch: Batch) -> Batch:
        if 50 <= int(batch["x"][0]) < 50 + parallel:
            together.wait()
            met.append(threading.current_thread().name)
        time.sleep(0.005 + chance.random() * 0.01)
        return doubled(batch)

    source = MemorySource(name="memory")
    source.feed(*messages(*range(200)))
    batch = {"max_records": 1}
    serving = serve(define(model, batch=batch, limits={"parallel": parallel, "batches": 8}), {"memory": source})
    eventually(lambda: len(serving.results()) == 200)
    assert serving.results() == [2 * number for number in range(200)]
    assert len(set(met)) == parallel
    assert serving.stop().ok == 200
    assert source.acknowledged == [200]


def test_an_error_that_stops_the_service_is_raised_in_the_order_of_the_batches(
    define: Any, serve: Any, eventually: Any
) -> None:
    @pipelines.batched
    def model(batch: Batch) -> Batch:
        time.sleep(0.005)
        if 7 in batch["x"].values():
            raise ContractError("broken")
        return doubled(batch)

    source = MemorySource(name="memory")
    source.feed(*messages(*range(20)))
    serving = serve(define(model, batch={"max_records": 1}, limits={"parallel": 3}), {"memory": source})
    summary = serving.agent.join(60)
    assert summary.reason == "failed"
    assert "broken" in summary.error
    assert serving.results() == [2 * number for number in range(7)]


def test_the_oldest_call_that_takes_too_long_is_named_with_its_records(
    define: Any, serve: Any, eventually: Any
) -> None:
    hold = threading.Event()

    @pipelines.batched
    def model(batch: Batch) -> Batch:
        if 3 in batch["x"].values():
            hold.wait(60)
        return doubled(batch)

    source = MemorySource(name="memory")
    source.feed(*messages(0, 1, 2))
    serving = serve(define(model, limits={"parallel": 2, "stuck": "300ms"}), {"memory": source})
    eventually(lambda: len(serving.results()) == 3)
    serving.feed(3, 4, 5)
    eventually(lambda: serving.agent.live() is not None)
    assert "memory[0]@3" in serving.agent.live()
    hold.set()
    eventually(lambda: serving.agent.live() is None and len(serving.results()) == 6)


def test_a_service_that_must_end_finishes_calls_and_leaves_the_rest_for_the_next_run(
    define: Any, serve: Any, eventually: Any
) -> None:
    ran = []

    @pipelines.batched
    def model(batch: Batch) -> Batch:
        time.sleep(0.2)
        ran.extend(batch["x"].values())
        return doubled(batch)

    source = MemorySource(name="memory")
    source.feed(*messages(*range(400)))
    limits = {"parallel": 2, "drain": "1s"}
    serving = serve(define(model, batch={"max_records": 2}, limits=limits), {"memory": source})
    eventually(lambda: len(serving.results()) > 8)
    assert serving.stop().reason == "stopped"
    results = serving.results()
    assert results == [2 * number for number in range(len(results))]
    assert source.acknowledged == [len(results)]
    assert len(results) < 400


def test_frames_of_one_perishable_source_run_at_the_same_time_in_order(
    define: Any, serve: Any, eventually: Any
) -> None:
    class Live(MemorySource):
        perishable = True

    together = threading.Barrier(2, timeout=30)

    @pipelines.batched
    def model(batch: Batch) -> Batch:
        if int(batch["x"][0]) in (10, 11):
            together.wait()
        return doubled(batch)

    source = Live(name="memory")
    source.feed(*messages(*range(40)))
    batch = {"type": "round", "max_records": 1}
    serving = serve(define(model, batch=batch, limits={"parallel": 2}), {"memory": source})
    eventually(lambda: len(serving.results()) == 40)
    assert serving.results() == [2 * number for number in range(40)]


def test_a_step_that_keeps_state_is_refused_by_name(define: Any, serve: Any) -> None:
    step = pipelines.steps.Track()
    with pytest.raises(DefinitionError, match=r'"0:TRACK" has to see all records, .* use --workers'):
        serve(define(step, limits={"parallel": 2}))


@pytest.mark.parametrize("parallel", [1, 2])
def test_records_of_several_sources_are_run_in_one_call_while_the_pipeline_is_busy(
    define: Any, serve: Any, eventually: Any, parallel: int
) -> None:
    sizes: list[int] = []
    busy = threading.Event()

    @pipelines.batched
    def model(batch: Batch) -> Batch:
        if -1 in batch["x"].values():
            busy.wait(30)
        sizes.append(batch.size)
        return doubled(batch)

    names = [f"s{number}" for number in range(6)]
    serving = serve(
        define(
            model,
            source=[{"type": "memory", "topic": name, "name": name} for name in names],
            keep=["x"],
            limits={"parallel": parallel},
        )
    )
    for name in names[:parallel]:
        serving.feed(-1, source=name)
        time.sleep(0.1)
    for number, name in enumerate(names):
        serving.feed(number, source=name)
    eventually(lambda: serving.agent._loop._inbox.batches.waiting >= 6)
    busy.set()
    eventually(lambda: len(serving.results()) == 6 + parallel)
    assert max(sizes) >= 5
    assert sorted(serving.results()) == sorted([-2] * parallel + [2 * number for number in range(6)])
    summary = serving.stop()
    assert summary.ok == 6 + parallel
    assert all(serving.agent.meters.outcome(name, "ok") >= 1 for name in names)


def test_a_joined_result_goes_back_to_the_batches_of_its_records() -> None:
    from connectors.message import records_of
    from pipelines.data.result import Result
    from streamer.agent.decodedbatch import DecodedBatch

    def decoded(source: str, first: int, *numbers: int) -> DecodedBatch:
        batch = Batch({"x": Column.of(list(numbers))}, len(numbers), rows=range(first, first + len(numbers)))
        return DecodedBatch(source, records_of(messages(*numbers), source), first, batch, {})

    one, two, three = decoded("a", 0, 1, 2), decoded("b", 1 << 48, 3), decoded("c", 2 << 48, 4, 5)
    run = BatchRun.of([one, two, three])
    assert run.batch["x"].values() == [1, 2, 3, 4, 5]
    run.result = Result(run.batch.take([0, 2, 4]), {1: ValueError("no")}, {2 << 48: "dropped"})
    parts = run.split().parts
    assert [(each.source, result.batch["x"].values()) for each, result in parts] == [("a", [1]), ("b", [3]), ("c", [5])]
    assert [list(result.failed) for _, result in parts] == [[1], [], []]
    assert [list(result.dropped) for _, result in parts] == [[], [], [2 << 48]]
    # A row of several records of different batches: they wait for it.
    rows = np.array([0, 1, 1 << 48, 2 << 48, (2 << 48) + 1])
    run.result = Result(Batch({"n": Column.of([2, 3])}, 2, rows=rows, splits=np.array([0, 2, 5])))
    split = run.split()
    assert [result.held.tolist() for _, result in split.parts] == [[], [1 << 48], [2 << 48, (2 << 48) + 1]]
    assert [result.batch.size for _, result in split.parts] == [1, 0, 0]
    assert split.shared["n"].values() == [3]
    first, rest = BatchRun.of([one, two, three]).cut(4)
    assert [each.source for each in first.batches] == ["a", "b", "c"]
    assert [each.source for each in first.ended] == ["a", "b"]
    assert rest.batch["x"].values() == [5]
    assert [each.source for each in rest.ended] == ["c"]


@pytest.mark.parametrize("at", range(1, 8))
def test_what_records_ask_for_stays_with_them_wherever_batches_that_run_together_are_cut(at: int) -> None:
    """A request that was joined with others, and cut off again, is answered in the form that it asked for."""
    from connectors.codec import RecordsOrigin
    from connectors.message import records_of
    from pipelines.data.result import Result
    from streamer.agent.decodedbatch import DecodedBatch

    def decoded(source: str, first: int, *numbers: int) -> DecodedBatch:
        records = records_of(messages(*numbers), source)
        origin = RecordsOrigin(records, first, [f"ask {number}" for number in numbers])
        batch = Batch.of([Data({"x": number}) for number in numbers], first).with_origin(origin)
        return DecodedBatch(source, records, first, batch, {})

    run = BatchRun.of([decoded("a", 0, 1, 2, 3), decoded("b", 1 << 48, 4, 5), decoded("c", 2 << 48, 6, 7, 8)])
    asked: list[str] = []
    for part in run.cut(at):
        part.result = Result(part.batch)
        for _, result in part.split().parts:
            origin = result.batch.origin
            assert isinstance(origin, RecordsOrigin)
            assert origin.asks is not None
            asked += [origin.asks[row - origin.first] for row in result.batch.rows.tolist()]
    assert asked == [f"ask {number}" for number in range(1, 9)]
