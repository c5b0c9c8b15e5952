"""The state of stateful steps goes over from one open pipeline to another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from countwindows import WindowFactory, Windows, WindowStep

import pipelines
from pipelines import (
    Column,
    Data,
    Executor,
    First,
    GraphBuilder,
    OpenContext,
    PipelineStep,
    Registry,
    Runner,
    Sequence,
    Step,
)
from pipelines.executors.state.handover import differences, flushed, hand_over
from pipelines.observe.metrics import counter


class Counting(Windows):
    """Windows that count their records and how often they are closed."""

    closed = 0

    def run_batch(self, batch: pipelines.Batch) -> pipelines.Result:
        counter("records").add(batch.size)
        return super().run_batch(batch)

    def close(self) -> None:
        self.closed += 1


class Recurrent(WindowStep):
    """As a network whose state is of its weights."""

    type_name: ClassVar[str] = "TEST_RECURRENT"
    model_uri: str = "weights.bin"


def registry(made: list[Counting] | None = None) -> Registry:
    class Factory(WindowFactory):
        def create(self, step: Any, context: OpenContext) -> Runner:
            runner = Counting(step)
            if made is not None:
                made.append(runner)
            return runner

    class Others(Factory):
        step_type = "TEST_RECURRENT"

    known = Registry(plugins=False)
    for step, factory in ((WindowStep, Factory()), (Recurrent, Others())):
        known.add_step(step)
        known.add_runner(factory)
    return known


def sequence(add: Callable[[Data], Data], *steps: Step) -> pipelines.Pipeline:
    return Sequence([add, *(steps or [WindowStep(name="windows")])])


def graph(add: Callable[[Data], Data], *steps: Step) -> pipelines.Pipeline:
    builder = GraphBuilder()
    last = builder.input.then("add", pipelines.Function(add))
    for step in steps or [WindowStep(name="windows")]:
        last = last.then(str(step.name), step)
    return builder.build(last)


def inside(add: Callable[[Data], Data], *steps: Step) -> pipelines.Pipeline:
    return Sequence([PipelineStep(sequence(add, *steps), name="inner")])


def plus(number: int) -> Callable[[Data], Data]:
    return lambda data: Data({"x": data["x"] + number})


def sums(given: Any) -> list[int]:
    return [data["y"] for data in given if data is not None]


def opened(pipeline: pipelines.Pipeline, made: list[Counting] | None = None) -> Executor:
    return pipeline.open(registry=registry(made))


@pytest.mark.parametrize("shape", [sequence, graph, inside])
def test_records_that_a_step_holds_come_out_of_the_pipeline_that_goes_on(shape: Any) -> None:
    made: list[Counting] = []
    with opened(shape(plus(0)), made) as old, opened(shape(plus(100)), made) as new:
        assert old.run_many([{"x": 1}, {"x": 2}]) == [None, None]
        hand_over(old, new)
        assert sums(new.run_many([{"x": 3}, {"x": 4}])) == [1 + 2 + 103]
        hand_over(new, old)
        assert sums(old.run_many([{"x": 5}])) == []
        assert old.flush().batch.to_list() == [Data({"y": 104 + 5})]
        assert new.flush().batch.size == 0
        (step,) = {step for step in old.metrics if step.endswith("windows")}
        assert old.metrics.of(step).counter("records").value == 5
        assert "records" not in new.metrics.of(step)
        (runner, fresh) = made
        new.close()
        assert (runner.closed, fresh.closed) == (0, 1)
    assert (runner.closed, fresh.closed) == (1, 1)


@pytest.mark.parametrize("shape", [sequence, graph, inside])
def test_steps_that_only_one_of_them_has_are_named(shape: Any) -> None:
    first, second = WindowStep(name="first", size=1, stride=1), WindowStep(name="second")
    with opened(shape(plus(0), *[first])) as old, opened(shape(plus(0), second)) as new:
        outer = "inner/" if shape is inside else ""
        assert list(differences(old, new).values()) == [
            f'"{outer}first" is not there any more',
            f'"{outer}second" is new',
        ]


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (WindowStep(), WindowStep(), {}),
        (WindowStep(size=3), WindowStep(size=4), {"1:TEST_WINDOWS": '"1:TEST_WINDOWS" has another size, 4 and not 3'}),
        (WindowStep(name="a"), Recurrent(name="a"), {"a": '"a" was TEST_WINDOWS, and is TEST_RECURRENT'}),
        (Recurrent(name="a"), Recurrent(name="a"), {"a": '"a" has a model of its own, which its state belongs to'}),
    ],
    ids=["equal", "another field", "another type", "a model of its own"],
)
def test_what_differs_is_said(before: Step, after: Step, why: dict[str, str]) -> None:
    with opened(sequence(plus(0), before)) as old, opened(sequence(plus(0), after)) as new:
        assert differences(old, new) == why
        old.run({"x": 1})
        hand_over(old, new)
        assert new.flush().batch.size == (not why)


@pytest.mark.parametrize("shape", [sequence, graph, inside])
def test_rows_of_some_steps_are_finished_and_go_through_those_behind_them(shape: Any) -> None:
    again = pipelines.Function(lambda data: Data({"x": data["y"]}), name="again")
    steps = [WindowStep(name="pairs", size=2, stride=2), again, WindowStep(name="threes")]
    with opened(shape(plus(0), *steps)) as executor:
        executor.run_many([{"x": x} for x in range(1, 6)])
        outer = "inner/" if shape is inside else ""
        assert flushed(executor, [outer + "threes"]).batch.to_list() == [Data({"y": 1 + 2 + 3 + 4})]
        executor.run_many([{"x": x} for x in (6, 7)])
        assert flushed(executor, [outer + "pairs"]).batch.size == 0
        assert flushed(executor, []).batch.size == 0
        assert executor.flush().batch.to_list() == [Data({"y": 5 + 6 + 7})]


class Device(Runner):
    """Stands for what can be opened once only, and may keep a call waiting."""

    carried: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True

    def __init__(self, number: int, wait: Callable[[], object]) -> None:
        self.number = number
        self.wait = wait

    def run_batch(self, batch: pipelines.Batch) -> pipelines.Result:
        self.wait()
        return pipelines.Result(batch.with_columns({"device": Column.of([self.number] * batch.size)}))


def devices(wait: Callable[[], object]) -> Registry:
    numbers = iter(range(10))

    class Factory(WindowFactory):
        def create(self, step: Any, context: OpenContext) -> Runner:
            return Device(next(numbers), wait)

    known = Registry(plugins=False)
    known.add_step(WindowStep)
    known.add_runner(Factory())
    return known


@pytest.mark.parametrize("nested", [False, True])
def test_a_step_that_still_runs_for_a_record_of_before_does_not_go_over(nested: bool) -> None:
    release = threading.Event()
    builder = GraphBuilder()
    device: Any = WindowStep(name="device")
    slow = builder.input.then("slow", PipelineStep(Sequence([device])) if nested else WindowStep())
    quick = builder.input.then("quick", pipelines.Function(lambda data: Data({"device": -1})))
    graph = builder.build(builder.combine(First(timeout_ms=1), slow, quick))
    known = devices(lambda: release.wait(60))
    with ThreadPoolExecutor(4) as pool, graph.open(pool, registry=known) as old, graph.open(registry=known) as new:
        assert device_of(old) == -1
        hand_over(old, new)
        release.set()
        assert device_of(new) == 1
    with graph.open(registry=known) as old, graph.open(registry=known) as new:
        hand_over(old, new)
        assert (device_of(new), device_of(old)) == (2, 3)


def device_of(executor: Executor) -> int:
    (result,) = executor.run_many([{"x": 1}])
    assert isinstance(result, Data)
    return result.get_int64("device")
