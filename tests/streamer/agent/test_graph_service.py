"""Services whose pipeline is a graph, or is run by a trigger."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pipelines
from pipelines import Async, Data, GraphBuilder, IntSwitch, Sequence, SimpleLoopTrigger
from streamer import Service, testing

TOGETHER = threading.Barrier(2, timeout=60)


def meet(name: str) -> Callable[[pipelines.Batch], pipelines.Batch]:
    @pipelines.batched
    def run(batch: pipelines.Batch) -> pipelines.Batch:
        TOGETHER.wait()
        return batch.select({name: pipelines.Column.of([1] * batch.size)})

    return run


def service(pipeline: pipelines.Pipeline, **fields: Any) -> Service:
    memory = {"type": "memory", "topic": "t"}
    return Service(source=memory, pipeline=pipeline, sink=memory, dead_letter=memory, **fields)


def test_a_graph_runs_in_a_service_and_failing_records_go_to_the_dead_letter() -> None:
    builder = GraphBuilder()
    left, right = builder.input.switch("sw", IntSwitch(field_name="k", num_outputs=2))
    graph = builder.build(builder.any(left, right.then("twice", lambda data: [data, data])))

    report = testing.run(service(graph), [Data({"k": k}) for k in (0, 1, 5, 0)])

    assert [data["k"] for data in report.results if data is not None] == [0, 1, 1, 0]
    assert [(dead.step, dead.error) for dead in report.dead] == [
        ("sw", "DataError: there is no branch 5; they are numbered from 0 to 1")
    ]
    assert report.acknowledged == 4


def test_branches_run_on_the_services_threads() -> None:
    builder = GraphBuilder()
    a, b = builder.input.then("a", meet("a")), builder.input.then("b", meet("b"))

    report = testing.run(service(builder.build(builder.merge(a, b)), limits={"threads": 2}), [Data({"n": 1})])

    assert report.results == [Data({"a": 1, "b": 1})]


def test_records_of_a_triggered_pipeline_get_its_latest_result() -> None:
    pipeline = Async(Sequence([lambda data: Data({"seen": 1})]), SimpleLoopTrigger(frequency_ms=60_000))

    report = testing.run(service(pipeline), [Data({"n": n}) for n in range(3)])

    assert report.results == [Data({"seen": 1})] * 3
    assert report.acknowledged == 3
