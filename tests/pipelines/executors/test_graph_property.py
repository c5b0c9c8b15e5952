"""Any graph: no record is lost, none depends on its neighbours, and threads change nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from pipelines import Batch, Data, FunctionSwitch, Graph, GraphBuilder, Stage, StepError

pytestmark = pytest.mark.usefixtures("rarity")

POOL = ThreadPoolExecutor(3)


def total(data: Data) -> int:
    return sum(data.values())


def step(name: str, kind: str, seed: int) -> Callable[[Data], Any]:
    """A function that tells its input by the sum of its values, and writes under its own name."""

    def run(data: Data) -> Any:
        n = total(data) * 3 + seed
        if kind == "drop" and n % 4 == 0:
            return None
        if kind == "fail" and n % 5 == 0:
            raise ValueError(str(n))
        if kind == "several":
            return [Data({name: n + 7 * copy}) for copy in range(n % 4)]
        return Data({name: n})

    return run


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    builder = GraphBuilder()
    stages = [builder.input]
    ends: dict[str, Stage] = {}

    def pick() -> Stage:
        stage = draw(st.sampled_from(stages))
        ends.pop(stage.name, None)
        return stage

    def new(stage: Stage) -> None:
        stages.append(stage)
        ends[stage.name] = stage

    for number in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(["plain", "drop", "fail", "several", "switch", "any"]))
        if kind == "switch":
            count, seed = draw(st.integers(1, 3)), draw(st.integers(0, 3))
            function = FunctionSwitch(lambda data, c=count, s=seed: (total(data) + s) % c, num_outputs=count)
            for branch in pick().switch(f"s{number}", function):
                new(branch)
        elif kind == "any":
            several = draw(st.lists(st.sampled_from(stages), min_size=1, max_size=3, unique_by=lambda one: one.name))
            for one in several:
                ends.pop(one.name, None)
            new(builder.any(*several, name=f"a{number}"))
        else:
            new(pick().then(f"k{number}", step(f"k{number}", kind, draw(st.integers(0, 20)))))
    last = list(ends.values())
    return builder.build(builder.any(*draw(st.permutations(last)), name="end"))


def fates(executor: Any, batch: Batch) -> dict[int, Any]:
    result = executor.run_batch(batch)
    found: dict[int, Any] = {}
    for row, error in result.failed.items():
        assert isinstance(error, StepError)
        found[row] = str(error)
    for row in result.dropped:
        assert row not in found
        found[row] = "dropped"
    assert len(result.held) == 0
    for position, data in enumerate(result.batch.to_list()):
        assert not isinstance(found.get(int(result.rows[position])), str)
        found.setdefault(int(result.rows[position]), []).append(dict(data))
    assert list(result.rows) == sorted(result.rows)
    return found


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(graphs(), st.lists(st.integers(0, 30), min_size=1, max_size=8), st.integers(0, 1000))
def test_each_record_comes_out_once_whatever_its_neighbours_and_threads_do(
    graph: Graph, numbers: list[int], first: int
) -> None:
    datas = [Data({"n": n}) for n in numbers]
    with graph.open() as alone, graph.open(pool=POOL) as parallel:
        together = fates(alone, Batch.of(datas, first))
        assert sorted(together) == list(range(first, first + len(numbers)))
        assert fates(parallel, Batch.of(datas, first)) == together
        for position, data in enumerate(datas):
            (fate,) = fates(alone, Batch.of([data])).values()
            assert fate == together[first + position]


@st.composite
def merges(draw: st.DrawFn) -> tuple[Graph, list[Callable[[int], list[int] | None]]]:
    """Two or three branches of one step each, merged; each says what it makes of a number."""
    builder = GraphBuilder()
    stages: list[Stage] = []
    makes: list[Callable[[int], list[int] | None]] = []
    for number in range(draw(st.integers(2, 3))):
        skip = draw(st.integers(2, 5))
        several = draw(st.booleans()) and number == 0

        def make(n: int, skip: int = skip, several: bool = several, number: int = number) -> list[int] | None:
            return None if n % skip == 0 else [10 * n + number + copy for copy in range(3 if several else 1)]

        def run(data: Data, make: Any = make, key: str = f"b{number}") -> Any:
            made = make(data["n"])
            return None if made is None else [Data({key: one}) for one in made]

        makes.append(make)
        stages.append(builder.input.then(f"b{number}", run))
    return builder.build(builder.merge(*draw(st.permutations(stages)), builder.input)), makes


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(merges(), st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_merge_joins_exactly_what_comes_from_every_branch(
    made: tuple[Graph, list[Callable[[int], list[int] | None]]], numbers: list[int]
) -> None:
    graph, makes = made
    with graph.open() as executor:
        outcomes = executor.run_many([Data({"n": n}) for n in numbers])
    for n, outcome in zip(numbers, outcomes, strict=True):
        branches = [make(n) for make in makes]
        if None in branches:
            assert outcome is None
            continue
        rows = outcome if isinstance(outcome, list) else [outcome]
        wanted = [
            {
                "n": n,
                **{f"b{place}": one[copy] if len(one) > 1 else one[0] for place, one in enumerate(branches) if one},
            }
            for copy in range(max(len(one) for one in branches if one))
        ]
        assert [dict(row) for row in rows if isinstance(row, Data)] == wanted


def test_rows_of_several_records_go_through_a_graph_as_one() -> None:
    builder = GraphBuilder()
    even, odd = builder.input.switch("s", FunctionSwitch(lambda data: data["n"] % 2, num_outputs=2))
    twice = odd.then("twice", lambda data: [Data({"n": data["n"]}), Data({"n": -data["n"]})])
    graph = builder.build(builder.any(even, twice))
    windows = Batch.of([Data({"n": n}) for n in (1, 2, 3)])
    splits = np.array([0, 2, 4, 5])
    batch = Batch(windows.columns, 3, rows=np.array([5, 6, 6, 7, 8]), splits=splits)
    with graph.open() as executor:
        result = executor.run_batch(batch)
    assert result.batch["n"].values() == [1, -1, 2, 3, -3]
    assert [result.batch.parents(row).tolist() for row in range(5)] == [[5, 6], [5, 6], [6, 7], [8], [8]]
