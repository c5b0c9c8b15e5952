"""Graphs with runners of the tests' own: opening and closing, steps that hold records."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar

import numpy as np
import pytest

from pipelines import (
    Batch,
    Column,
    Data,
    Executor,
    Graph,
    GraphBuilder,
    IntSwitch,
    OpenContext,
    Registry,
    Result,
    Runner,
    StatefulRunner,
    Step,
    StepError,
    StreamerError,
)
from pipelines.runners.runner import ContractError
from pipelines.runners.state.item import Change, Item


class Named(Step):
    """Stands for a runner that a test made."""

    type_name: ClassVar[str] = "NAMED"


def opened(graph: Graph, pool: Any = None, **runners: Any) -> Executor:
    """Runners of the tests for `Named` steps, by the step's name; an exception is raised instead."""
    registry = Registry(plugins=False)
    registry.add_step(Named)

    class Factory:
        step_type, name, priority, requires = "NAMED", "named", 0, ()

        def create(self, step: Step, context: OpenContext) -> Runner:
            runner: Runner | Exception = runners[context.step]
            if isinstance(runner, Exception):
                raise runner
            return runner

    registry.add_runner(Factory())
    return graph.open(pool=pool, registry=registry)


class Whole(Runner):
    """Runs a function over whole batches and remembers their sizes."""

    def __init__(self, function: Callable[[Batch], Batch] = lambda batch: batch, **attributes: Any) -> None:
        self.function = function
        self.sizes: list[int] = []
        self.closed = 0
        self.attributes = attributes

    @property
    def keeps_keys(self) -> bool:  # type: ignore[override]
        return bool(self.attributes.get("keeps_keys", False))

    @property
    def reads(self) -> frozenset[str] | None:
        return self.attributes.get("reads")

    def run_batch(self, batch: Batch) -> Result:
        self.sizes.append(batch.size)
        return Result(self.function(batch))

    def close(self) -> None:
        self.closed += 1


class Pairs(StatefulRunner):
    """Emits the sum of each two rows, with both as parents."""

    def __init__(self) -> None:
        self.kept: list[tuple[list[int], int]] = []
        self.forgotten: list[Hashable] = []

    def run_batch(self, batch: Batch) -> Result:
        self.kept += [(batch.parents(place).tolist(), n) for place, n in enumerate(batch["n"].values())]
        found = []
        while len(self.kept) >= 2:
            found.append(self.kept[:2])
            del self.kept[:2]
        return self._result(found)

    def _result(self, found: list[list[tuple[list[int], int]]]) -> Result:
        parents = [[row for rows, _ in one for row in rows] for one in found]
        sums = Column.of([sum(n for _, n in one) for one in found])
        splits = np.cumsum([0, *map(len, parents)])
        batch = Batch(
            {"sum": sums}, len(found), rows=np.array([row for one in parents for row in one], np.int64), splits=splits
        )
        return Result(batch, held=np.array([row for rows, _ in self.kept for row in rows], np.int64))

    def tick(self, now: float) -> Result:
        return self.flush() if now > 10 else self._result([])

    def flush(self) -> Result:
        left = [self.kept] if self.kept else []
        self.kept = []
        return self._result(left)

    def forget(self, lanes: Iterable[Hashable]) -> None:
        self.forgotten.extend(lanes)

    def changes(self) -> Iterable[Change]:
        yield Change("lane", "all", 0, json.dumps(self.kept).encode() if self.kept else None)

    def load(self, lane: Hashable, items: Iterable[Item]) -> None:
        self.kept = []
        for item in items:
            self.kept = [(rows, n) for rows, n in json.loads(item.value)]


def windows(result: Result, key: str = "sum") -> list[tuple[list[int], Any]]:
    return [(result.batch.parents(row).tolist(), result.batch[key][row]) for row in range(len(result.batch))]


def numbers(*values: int, first: int = 0) -> Batch:
    return Batch.of([Data({"n": n, "kind": n % 2}) for n in values], first)


def window_graph() -> Graph:
    builder = GraphBuilder()
    even, odd = builder.input.switch("sw", IntSwitch(field_name="kind", num_outputs=2))
    pairs = odd.then("pairs", Named()).then("after", lambda data: Data({"sum": 10 * data["sum"]}))
    return builder.build(builder.any(even.then("even", lambda data: Data({"sum": data["n"]})), pairs))


def test_an_empty_batch_runs_no_step() -> None:
    step = Whole()
    executor = opened(Graph({"a": (Named(), "input")}), a=step)
    assert executor.run_batch(Batch.of([])).batch.size == 0
    assert executor.run_many([]) == []
    assert step.sizes == []


def test_a_step_that_loses_a_row_is_an_error_that_names_it() -> None:
    executor = opened(Graph({"a": (Named(), "input")}), a=Whole(lambda batch: batch.take([0])))
    with pytest.raises(ContractError, match="a: row 1 went in and did not come out"):
        executor.run_batch(numbers(1, 2))


def test_a_step_that_cannot_be_opened_is_named_and_the_others_are_closed() -> None:
    graph = Graph({"a": (Named(), "input"), "b": (Named(), "a")})
    first = Whole()
    with pytest.raises(StepError, match="b: ValueError: no model") as caught:
        opened(graph, a=first, b=ValueError("no model"))
    assert caught.value.step == "b"
    assert first.closed == 1


def test_closing_closes_each_runner_once_and_the_executor_says_so_afterwards() -> None:
    step = Whole()
    with opened(Graph({"a": (Named(), "input")}), a=step) as executor:
        pass
    executor.close()
    assert step.closed == 1
    for use in (lambda: executor.run(Data()), executor.flush, executor.changes):
        with pytest.raises(StreamerError, match="the executor is closed"):
            use()


def test_the_keys_that_the_first_steps_read_are_known() -> None:
    builder = GraphBuilder()
    left, right = builder.input.switch("sw", IntSwitch(field_name="kind", num_outputs=2))
    graph = builder.build(builder.any(left.then("left", Named()), right.then("a", Named()).then("b", Named())))
    runners = {
        "left": Whole(reads=frozenset("x")),
        "a": Whole(reads=frozenset("y"), keeps_keys=True),
        "b": Whole(reads=frozenset("z")),
    }
    assert opened(graph, **runners).reads == frozenset({"kind", "x", "y", "z"})
    assert opened(graph, **{**runners, "a": Whole(reads=frozenset("y"))}).reads == frozenset({"kind", "x", "y"})
    assert opened(Graph({"a": (Named(), "input")}), a=Whole()).reads is None


def test_a_branch_may_hold_records_and_give_them_later() -> None:
    executor = opened(window_graph(), pairs=Pairs())
    assert executor.stateful
    first = executor.run_batch(numbers(2, 1, 4, 3, 5, first=20))
    assert windows(first) == [([20], 2), ([22], 4), ([21, 23], 40)]
    assert first.held.tolist() == [24]
    second = executor.run_batch(numbers(7, 6, first=25))
    assert windows(second) == [([24, 25], 120), ([26], 6)]
    assert second.held.tolist() == []
    third = executor.run_batch(numbers(9, first=27))
    assert (windows(third), third.held.tolist()) == ([], [27])
    assert windows(executor.tick(5.0)) == []
    late = executor.tick(11.0)
    assert (windows(late), late.held.tolist()) == ([([27], 90)], [])


def test_flushing_empties_one_stateful_step_into_the_next() -> None:
    builder = GraphBuilder()
    first = builder.input.then("first", Named()).then("renamed", lambda data: Data({"n": data["sum"]}))
    graph = builder.build(first.then("second", Named()))
    executor = opened(graph, first=Pairs(), second=Pairs())
    result = executor.run_batch(numbers(1, 2, 3))
    assert (windows(result), result.held.tolist()) == ([], [0, 1, 2])
    end = executor.flush()
    assert (windows(end), end.held.tolist()) == ([([0, 1, 2], 6)], [])
    assert windows(executor.flush()) == []


def test_branches_that_part_behind_a_window_meet_again_window_by_window() -> None:
    builder = GraphBuilder()
    pairs = builder.input.then("pairs", Named())
    negative = pairs.then("negative", lambda data: Data({"negative": -data["sum"]}))
    executor = opened(builder.build(builder.merge(pairs, negative)), pairs=Pairs())
    result = executor.run_batch(numbers(1, 2, 3, 4, 5))
    assert windows(result) == [([0, 1], 3), ([2, 3], 7)]
    assert windows(result, "negative") == [([0, 1], -3), ([2, 3], -7)]
    assert result.held.tolist() == [4]


def test_a_step_that_holds_records_in_one_of_several_branches_of_a_merge_is_refused() -> None:
    builder = GraphBuilder()
    graph = builder.build(builder.merge(builder.input.then("pairs", Named()), builder.input))
    with pytest.raises(StepError, match='pairs: this step holds records, and "merge" would miss them') as caught:
        opened(graph, pairs=Pairs())
    assert caught.value.step == "pairs"


class Counter(Pairs):
    """Numbers the records; holds none."""

    keeps_rows: ClassVar[bool] = True
    count = 0

    def run_batch(self, batch: Batch) -> Result:
        counts = range(self.count, self.count + batch.size)
        self.count += batch.size
        return Result(batch.select({"count": Column.of(list(counts))}))


def test_a_step_that_remembers_but_holds_nothing_may_stand_in_any_branch() -> None:
    builder = GraphBuilder()
    graph = builder.build(builder.merge(builder.input.then("counter", Named()), builder.input))
    executor = opened(graph, counter=Counter())
    assert executor.run_many([Data({"n": n}) for n in (5, 6)]) == [Data({"count": n - 5, "n": n}) for n in (5, 6)]
    assert executor.run(Data({"n": 9})) == Data({"count": 2, "n": 9})


def several(count: int) -> Callable[[Data], list[Data]]:
    return lambda data: [Data({**data, "copy": copy}) for copy in range(count)]


def test_parts_of_one_record_stay_apart_in_a_step_that_remembers() -> None:
    builder = GraphBuilder()
    parts = builder.input.then("split", several(2))
    graph = builder.build(builder.merge(parts.then("counter", Named()), parts))
    executor = opened(graph, counter=Counter())
    result = executor.run_batch(numbers(1, 2))
    assert result.batch["copy"].values() == [0, 1, 0, 1]
    assert result.batch["count"].values() == [0, 1, 2, 3]


def test_a_window_that_fails_fails_its_records_and_no_other() -> None:
    def refuse(data: Data) -> Data:
        if data["sum"] == 3:
            raise ValueError("three")
        return data

    builder = GraphBuilder()
    graph = builder.build(builder.input.then("pairs", Named()).then("refuse", refuse))
    executor = opened(graph, pairs=Pairs())
    result = executor.run_batch(numbers(1, 2, 3, 4, 5))
    assert windows(result) == [([2, 3], 7)]
    assert sorted(result.failed) == [0, 1]
    assert result.held.tolist() == [4]


def test_state_goes_from_one_executor_to_another_and_lanes_are_forgotten() -> None:
    before = opened(window_graph(), pairs=Pairs())
    before.run_batch(numbers(1, first=3))
    runner = Pairs()
    after = opened(window_graph(), pairs=runner)
    after.load("lane", {step: [Item(*change[1:])] for step, change in before.changes()})  # type: ignore[arg-type]
    assert windows(after.run_batch(numbers(3, first=4))) == [([3, 4], 40)]
    after.forget(iter([("kafka", 0, 1)]))
    assert runner.forgotten == [("kafka", 0, 1)]


def test_an_error_while_flushing_names_the_step() -> None:
    class Broken(Pairs):
        def flush(self) -> Result:
            raise OSError("disk")

    with pytest.raises(StepError, match="pairs: OSError: disk"):
        opened(window_graph(), pairs=Broken()).flush()


def test_a_graph_without_state_has_nothing_to_give_without_input() -> None:
    executor = opened(Graph({"a": (Named(), "input")}), a=Whole())
    assert not executor.stateful
    assert executor.flush().batch.size == executor.tick(0.0).batch.size == 0
    assert executor.changes() == []
