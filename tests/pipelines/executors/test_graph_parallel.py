"""Graphs of steps on a pool of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from outcomes import results_of

from pipelines import Batch, Column, Data, Graph, GraphBuilder, IntSwitch, batched
from pipelines.observe.observing import StepRun
from pipelines.runners.runner import ContractError


class Noted:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int, dict[str, int]]] = []
        self.threads: set[int] = set()

    def step(self, run: StepRun) -> None:
        assert run.seconds >= 0
        self.calls.append((run.step, run.rows, dict(run.errors)))
        self.threads.add(threading.get_ident())


def making(key: str, before: Callable[[], object] = lambda: None) -> Callable[[Batch], Batch]:
    def make(batch: Batch) -> Batch:
        before()
        return batch.select({key: Column.of([1] * batch.size)})

    return make


def parallel(*functions: Callable[[Batch], Batch]) -> Graph:
    """Branches of one step each, merged with each other and the input."""
    builder = GraphBuilder()
    branches = [builder.input.then(f"b{place}", batched(function)) for place, function in enumerate(functions)]
    return builder.build(builder.merge(*branches, builder.input))


def test_independent_branches_run_at_the_same_time() -> None:
    together = threading.Barrier(3, timeout=60)
    graph = parallel(*(making(key, together.wait) for key in "abc"))
    with ThreadPoolExecutor(3) as pool, graph.open(pool=pool) as executor:
        assert executor.run(Data({"n": 1})) == Data({"a": 1, "b": 1, "c": 1, "n": 1})


def test_a_branch_does_not_wait_for_a_slower_one_before_its_own_next_step() -> None:
    second_ran = threading.Event()

    def slow(data: Data) -> Data:
        assert second_ran.wait(60)
        return Data({"slow": 1})

    def second(data: Data) -> Data:
        second_ran.set()
        return data

    builder = GraphBuilder()
    fast = builder.input.then("fast", lambda data: data).then("second", second)
    graph = builder.build(builder.merge(builder.input.then("slow", slow), fast))
    with ThreadPoolExecutor(2) as pool, graph.open(pool=pool) as executor:
        assert executor.run(Data({"n": 1})) == Data({"slow": 1, "n": 1})


def test_a_pool_that_is_busy_delays_nothing() -> None:
    release = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(release.wait, 30)
        with parallel(making("a"), making("b")).open(pool=pool) as executor:
            assert executor.run(Data({"n": 1})) == Data({"a": 1, "b": 1, "n": 1})
        assert not release.is_set()
        release.set()


def test_graphs_inside_graphs_share_a_pool_of_one_thread() -> None:
    def doubled(inside: Any, keys: str) -> Graph:
        builder = GraphBuilder()
        stages = [builder.input.then(key, inside(key)) for key in keys]
        return builder.build(builder.merge(*stages))

    def leaf(prefix: str) -> Callable[[str], Any]:
        return lambda key: lambda data: Data({prefix + key: data["n"]})

    outer = doubled(lambda key: doubled(lambda inner: doubled(leaf(key + inner), "ef"), "cd"), "ab")
    with ThreadPoolExecutor(1) as pool, outer.open(pool=pool) as executor:
        found = results_of(executor.run_many([Data({"n": n}) for n in range(3)]))
    assert [sorted(data) for data in found] == [["ace", "acf", "ade", "adf", "bce", "bcf", "bde", "bdf"]] * 3


def test_an_error_in_one_branch_waits_for_no_other_and_no_step_is_run_by_two_threads() -> None:
    begun, release = threading.Event(), threading.Event()
    running: list[int] = []

    def broken(batch: Batch) -> Batch:
        if batch["n"][0] == 1:
            assert begun.wait(60)
            raise ContractError("broken")
        return making("a")(batch)

    def slow() -> None:
        running.append(1)
        begun.set()
        assert len(running) == 1
        assert release.wait(60)
        running.pop()

    with ThreadPoolExecutor(2) as pool, parallel(broken, making("b", slow)).open(pool=pool) as executor:
        with pytest.raises(ContractError, match="b0: broken"):
            executor.run(Data({"n": 1}))
        assert running == [1]
        threading.Timer(0.05, release.set).start()
        assert executor.run(Data({"n": 2})) == Data({"a": 1, "b": 1, "n": 2})


def test_the_observer_hears_once_of_each_step_in_the_calling_thread() -> None:
    builder = GraphBuilder()
    left, right = builder.input.switch("sw", IntSwitch(field_name="kind", num_outputs=2))
    same = lambda data: data  # noqa: E731
    both = builder.any(left.then("left", same), right.then("right", same))
    with ThreadPoolExecutor(2) as pool, builder.build(both).open(pool=pool) as executor:
        executor.observer = noted = Noted()
        executor.run_many([Data({"kind": kind}) for kind in (0, 1, 1, 7)])
    assert sorted(noted.calls) == [
        ("any", 2, {}),
        ("left", 1, {}),
        ("right", 2, {}),
        ("sw", 4, {"DataError": 1}),
        ("sw_0", 3, {}),
        ("sw_1", 3, {}),
    ]
    assert noted.threads == {threading.get_ident()}
