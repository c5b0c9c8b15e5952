from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pipelines
from pipelines import Data
from pipelines.executors.shared import Shared


class Watching:
    """Counts its objects, those that are open, and the threads that are in a call at the same time."""

    made = still_open = inside = most = 0
    both: threading.Barrier

    def __init__(self) -> None:
        type(self).made += 1

    def open(self) -> None:
        type(self).still_open += 1

    def close(self) -> None:
        type(self).still_open -= 1

    def __call__(self, data: Data) -> Data:
        kind = type(self)
        kind.inside += 1
        kind.most = max(kind.most, kind.inside)
        try:
            # Two that are in here at a time go on at once.
            kind.both.wait(0.2)
        except threading.BrokenBarrierError:
            pass
        kind.inside -= 1
        return data


def run_at_once(function: Callable[..., Any]) -> None:
    """Two executors of one definition, each run by a thread of its own, and closed."""
    shared, pipeline = Shared(), pipelines.Sequence([function])
    executors = [pipeline.open(shared=shared) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        assert [result["x"] for result in threads.map(lambda one: one.run({"x": 1}), executors)] == [1, 1]
    for executor in executors:
        executor.close()
    assert not len(shared)


@pytest.mark.parametrize(("mark", "objects", "at_once"), [(False, 2, 2), (True, 1, 1)])
def test_of_a_class_each_executor_has_an_object_unless_it_is_marked(mark: bool, objects: int, at_once: int) -> None:
    class Counted(Watching):
        both = threading.Barrier(2)

    run_at_once(pipelines.alone(Counted) if mark else Counted)
    assert (Counted.made, Counted.most, Counted.still_open) == (objects, at_once, 0)


@pytest.mark.parametrize(("mark", "at_once"), [(False, 2), (True, 1)])
def test_a_function_is_called_by_all_threads_unless_it_is_marked(mark: bool, at_once: int) -> None:
    class Counted(Watching):
        both = threading.Barrier(2)

    call = Counted()

    def function(data: Data) -> Data:
        return call(data)

    run_at_once(pipelines.alone(function) if mark else function)
    assert Counted.most == at_once


def test_the_variables_of_a_python_step_are_those_of_all_executors() -> None:
    step = pipelines.Python(
        python_config={
            "importCode": "n = 0",
            "pythonCode": "n = n + 1",
            "ioOutputs": {"n": {"pythonType": "int"}},
        }
    )
    shared, pipeline = Shared(), pipelines.Sequence([step])
    first, second = pipeline.open(shared=shared), pipeline.open(shared=shared)
    assert [executor.run({}) for executor in (first, second, first)] == [Data({"n": n}) for n in (1, 2, 3)]
    first.close()
    assert second.run({}) == Data({"n": 4})
    second.close()
    assert not len(shared)
