"""COMBINE: weighted ensemble, highest score, first in time, a user's function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from outcomes import result_of, results_of

import pipelines
from pipelines import (
    ArgMax,
    Batch,
    CombineFunction,
    Data,
    DefinitionError,
    Ensemble,
    First,
    FunctionCombine,
    FunctionSwitch,
    Graph,
    GraphBuilder,
    IntSwitch,
    Result,
    StepError,
)

pytestmark = pytest.mark.usefixtures("rarity")


def combined(function: CombineFunction, *branches: Callable[[Data], Any]) -> Graph:
    """Branches of one step each, `b0`, `b1`, ..., and a COMBINE called `best`."""
    builder = GraphBuilder()
    stages = [builder.input.then(f"b{place}", branch) for place, branch in enumerate(branches)]
    return builder.build(builder.combine(function, *stages, name="best"))


def keys(*names: str) -> list[Callable[[Data], Any]]:
    """Branches that each give the value of one key of the input as `v`, and their own number as `i`."""

    def branch(place: int, name: str) -> Callable[[Data], Any]:
        return lambda data: Data({"v": data[name], "i": place}) if name in data else None

    return [branch(place, name) for place, name in enumerate(names)]


def run(graph: Graph, *given: dict[str, Any]) -> list[Any]:
    with graph.open() as executor:
        together = executor.run_many([Data(one) for one in given])
        alone = [executor.run_many([Data(one)])[0] for one in given]
    assert [str(one) if isinstance(one, StepError) else one for one in together] == [
        str(one) if isinstance(one, StepError) else one for one in alone
    ]
    return together


def test_an_ensemble_is_the_weighted_average_of_arrays() -> None:
    graph = combined(Ensemble(weights=[3, 1]), *keys("a", "b"))
    a, b = np.array([1, 2, 4], np.float32), np.array([5, 2, 0], np.float32)
    (found, other) = run(graph, {"a": a, "b": b}, {"a": b, "b": a})
    assert found["v"].dtype == np.float32
    np.testing.assert_allclose(found["v"], [2, 2, 3])
    np.testing.assert_allclose(other["v"], [4, 2, 1])
    assert found["i"] == 0


def test_an_ensemble_without_weights_is_the_mean_and_zero_weights_count_nothing() -> None:
    given = {"a": 1.0, "b": 2.0, "c": 6.0}
    assert run(combined(Ensemble(), *keys("a", "b", "c")), given)[0]["v"] == pytest.approx(3.0)
    assert run(combined(Ensemble(weights=[0, 1, 1]), *keys("a", "b", "c")), given)[0]["v"] == pytest.approx(4.0)


def test_an_ensemble_averages_integers_only_where_it_is_told_to() -> None:
    given = {"a": 1, "b": 2}
    assert run(combined(Ensemble(), *keys("a", "b")), given) == [Data({"v": 1, "i": 0})]
    assert run(combined(Ensemble(field_names=["v"]), *keys("a", "b")), given) == [Data({"v": 1.5, "i": 0})]
    ints = {"a": np.array([1, 2], np.int32), "b": np.array([2, 2], np.int32)}
    (found,) = run(combined(Ensemble(), *keys("a", "b")), ints)
    assert found["v"].tolist() == [1.5, 2.0]


def test_an_ensemble_averages_an_integer_beside_a_double() -> None:
    graph = combined(Ensemble(weights=[1, 3]), *keys("a", "b"))
    found = run(graph, {"a": 30, "b": 30.5}, {"a": 30.5, "b": 30}, {"a": 1, "b": 2}, {"a": "x", "b": 0.5})
    assert [one["v"] for one in found] == [30.375, 30.125, 1, "x"]


def test_an_ensemble_of_records_that_differ_in_shape_takes_each_on_its_own() -> None:
    graph = combined(Ensemble(), *keys("a", "b"))
    found = run(
        graph,
        {"a": np.ones(2), "b": np.zeros(2)},
        {"a": np.ones((1, 3)), "b": np.zeros((1, 3))},
        {"a": 1.0, "b": np.zeros(())},
        {"a": np.ones(2), "b": np.ones(3)},
        {"a": "text", "b": "other"},
    )
    assert found[0]["v"].tolist() == [0.5, 0.5]
    assert found[1]["v"].tolist() == [[0.5, 0.5, 0.5]]
    assert found[2]["v"].tolist() == 0.5
    assert str(found[3]) == 'best: DataError: the arrays of "v" have the shapes [2] and [3]; equal ones can be averaged'
    assert found[4] == Data({"v": "text", "i": 0})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": "x", "b": 1.0}, 'best: WrongTypeError: "v" is STRING; numbers and arrays of numbers can be averaged'),
        ({"a": np.array([True]), "b": 1.0}, 'best: WrongTypeError: "v" is bool; numbers and arrays of numbers'),
    ],
)
def test_a_value_that_cannot_be_averaged_fails_its_record(given: dict[str, Any], message: str) -> None:
    found = run(combined(Ensemble(field_names=["v"]), *keys("a", "b")), given, {"a": 1.0, "b": 3.0})
    assert str(found[0]).startswith(message)
    assert found[1]["v"] == 2.0


@pytest.mark.parametrize(
    "rows",
    [
        [{"a": {"score": 0.2}, "b": {"scor": 0.8}}] * 3,
        [{"a": {"score": np.ones(2)}, "b": {"scor": np.ones(2)}}],
        [{"a": {"score": 0.2}, "b": {"score": "0.8"}}, {"a": {"score": 0.2}, "b": {"score": 0.8}}],
        [{"a": {"score": 0.2}, "b": {"score": 0.4}}, {"a": {"score": 0.2}, "b": {}}],
        [{"a": {}, "b": {"score": 0.4}}],
    ],
)
def test_numbers_that_an_ensemble_leaves_as_they_are_are_logged_once_a_key(
    rows: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    def branch(name: str) -> Callable[[Data], Data]:
        return lambda data: Data(data[name])

    with combined(Ensemble(), branch("a"), branch("b")).open() as executor:
        executor.run_many([Data({key: Data(value) for key, value in row.items()}) for row in rows])
    told = [one.getMessage() for one in caplog.records if '"score" is not averaged' in one.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("best: ")
    assert "fieldNames" in told[0]


def test_an_ensemble_that_averages_all_numbers_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    given: list[dict[str, Any]] = [
        {"a": 1.0, "b": 3.0},
        {"a": np.ones(2), "b": np.ones(2)},
        {"a": 1, "b": 2},
        {"a": "x", "b": "y"},
    ]
    run(combined(Ensemble(), *keys("a", "b")), *given)
    assert caplog.records == []


def test_a_key_that_an_input_lacks_cannot_be_averaged() -> None:
    (found,) = run(combined(Ensemble(field_names=["w"]), *keys("a", "b")), {"a": 1.0, "b": 1.0})
    assert str(found) == 'best: ValueNotFoundError: Value not found for key "w" in every input'


def test_argmax_gives_the_record_with_the_highest_score_whole() -> None:
    graph = combined(ArgMax(field_name="v"), *keys("a", "b", "c"))
    found = run(
        graph,
        {"a": 0.1, "b": 0.7, "c": 0.2},
        {"a": 3, "b": 2.5, "c": 3},
        {"a": np.array([0.1, 0.2], np.float32), "b": np.array([0.9, 0.0], np.float32), "c": 0.3},
        {"a": float("nan"), "b": -5.0, "c": float("nan")},
    )
    assert [one["i"] for one in found] == [1, 0, 1, 1]
    assert found[2]["v"].tolist() == np.array([0.9, 0.0], np.float32).tolist()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", 'best: WrongTypeError: "v" is STRING; a score is a number, or an array of numbers'),
        (np.zeros(0), 'best: WrongTypeError: "v" is NDARRAY; a score is a number'),
        (float("nan"), 'best: DataError: every "v" is NaN'),
    ],
)
def test_a_record_without_a_score_fails_alone(value: object, message: str) -> None:
    found = run(combined(ArgMax(field_name="v"), *keys("a", "b")), {"a": value, "b": value}, {"a": 1, "b": 2})
    assert str(found[0]).startswith(message)
    assert found[1]["i"] == 1


def test_the_score_is_called_score_unless_told_otherwise() -> None:
    graph = combined(ArgMax(), lambda data: Data({"score": 1, "x": 1}), lambda data: Data({"score": 2, "x": 2}))
    assert run(graph, {})[0]["x"] == 2


def test_a_record_that_one_branch_drops_is_not_combined() -> None:
    graph = combined(ArgMax(field_name="v"), *keys("a", "b"))
    with graph.open() as executor:
        result = executor.run_batch(Batch.of([Data({"a": 1}), Data({"a": 1, "b": 2})]))
    assert result.rows.tolist() == [1]
    assert dict(result.dropped) == {0: "dropped by the step"}


def pick(datas: list[Data]) -> Data | None:
    if any(data["v"] < 0 for data in datas):
        raise ValueError("negative")
    if all(data["v"] == 0 for data in datas):
        return None
    return Data({"sum": sum(data["v"] for data in datas)})


def test_a_function_makes_one_record_of_the_inputs_in_their_order() -> None:
    graph = combined(FunctionCombine(pick), *keys("a", "b"))
    found = run(graph, {"a": 1, "b": 2}, {"a": 0, "b": 0}, {"a": -1, "b": 0}, {"a": 5, "b": 0})
    assert found[0] == Data({"sum": 3})
    assert found[1] is None
    assert str(found[2]) == "best: ValueError: negative"
    assert found[3] == Data({"sum": 5})


def test_a_function_is_called_once_a_record_though_a_neighbour_fails() -> None:
    seen: list[int] = []

    def note(datas: list[Data]) -> Data:
        seen.append(datas[0]["v"])
        if datas[0]["v"] == 2:
            raise ValueError
        return datas[0]

    with combined(FunctionCombine(note), *keys("a", "a")).open() as executor:
        executor.run_many([Data({"a": n}) for n in (1, 2, 3)])
    assert seen == [1, 2, 3]


def test_a_function_that_returns_something_else_fails_the_record() -> None:
    (found,) = run(combined(FunctionCombine(lambda datas: 5), *keys("a", "b")), {"a": 1, "b": 2})
    assert "returned int; return a Data, or None (drop)" in str(found)


def test_a_combined_record_keeps_its_number() -> None:
    with combined(FunctionCombine(pick), *keys("a", "b")).open() as executor:
        result = executor.run_batch(Batch.of([Data({"a": n, "b": 0}) for n in (1, 0, 2)], first=50))
    assert result.rows.tolist() == [50, 52]
    assert dict(result.dropped) == {51: "best: dropped"}


def broken(data: Data) -> Data:
    if data["n"] % 2:
        raise ValueError("odd")
    return Data({"by": "model"})


def fallback(data: Data) -> Data:
    return Data({"by": "fallback"})


def test_first_falls_back_where_an_input_fails_or_drops() -> None:
    found = run(combined(First(), broken, fallback), {"n": 0}, {"n": 1}, {"n": 2})
    assert [one["by"] for one in found] == ["model", "fallback", "model"]
    found = run(combined(First(), lambda data: None, fallback), {"n": 0})
    assert found[0]["by"] == "fallback"


def test_first_fails_a_record_that_fails_in_every_input() -> None:
    found = run(combined(First(), broken, broken), {"n": 0}, {"n": 1})
    assert found[0]["by"] == "model"
    assert str(found[1]) == "b0: ValueError: odd"


def test_first_takes_a_record_whole_from_one_input() -> None:
    def several(data: Data) -> list[Data]:
        return [Data({"part": part}) for part in range(3)]

    def refuse(data: Data) -> Data:
        if data["part"] == 2:
            raise ValueError("two")
        return data

    builder = GraphBuilder()
    parts = builder.input.then("several", several).then("refuse", refuse)
    graph = builder.build(builder.combine(First(), parts, builder.input.then("fallback", fallback)))
    assert run(graph, {"n": 0}) == [Data({"by": "fallback"})]


def late(release: threading.Event, calls: list[int]) -> Callable[[Data], Data]:
    def wait(data: Data) -> Data:
        calls.append(data["n"])
        assert release.wait(60)
        return Data({"by": "model", "n": data["n"]})

    return wait


def test_first_gives_the_other_input_when_one_is_late() -> None:
    release, calls = threading.Event(), list[int]()
    graph = combined(First(timeout_ms=50), late(release, calls), fallback)
    with ThreadPoolExecutor(2) as pool, graph.open(pool=pool) as executor:
        assert executor.run(Data({"n": 1})) == Data({"by": "fallback"})
        # The model is still busy with the first record, and is not given another at the same time.
        assert executor.run(Data({"n": 2})) == Data({"by": "fallback"})
        assert calls == [1]
        release.set()
        assert executor.run(Data({"n": 3})) == Data({"by": "model", "n": 3})
    assert calls == [1, 3]


def test_first_waits_for_the_first_input_within_the_limit() -> None:
    begun = threading.Event()

    def slow(data: Data) -> Data:
        assert begun.wait(60)
        return Data({"by": "model"})

    def quick(data: Data) -> Data:
        begun.set()
        return Data({"by": "fallback"})

    graph = combined(First(timeout_ms=20_000), slow, quick)
    with ThreadPoolExecutor(2) as pool, graph.open(pool=pool) as executor:
        assert executor.run(Data({"n": 1})) == Data({"by": "model"})


def test_if_all_inputs_are_late_the_one_that_comes_first_counts() -> None:
    release = threading.Event()
    never = threading.Event()
    graph = combined(First(timeout_ms=10), late(never, []), late(release, []))
    threading.Timer(0.05, release.set).start()
    with ThreadPoolExecutor(2) as pool, graph.open(pool=pool) as executor:
        assert executor.run(Data({"n": 1})) == Data({"by": "model", "n": 1})
        never.set()


def test_steps_after_a_step_that_is_too_late_do_not_run() -> None:
    release, after = threading.Event(), list[int]()

    def note(data: Data) -> Data:
        after.append(1)
        return data

    builder = GraphBuilder()
    slow = builder.input.then("slow", late(release, [])).then("after", note)
    graph = builder.build(builder.combine(First(timeout_ms=30), slow, builder.input.then("fallback", fallback)))
    with ThreadPoolExecutor(2) as pool, graph.open(pool=pool) as executor:
        assert result_of(executor.run(Data({"n": 1})))["by"] == "fallback"
        release.set()
    assert after == []


def test_a_record_that_the_input_in_time_drops_is_dropped() -> None:
    release = threading.Event()
    graph = combined(First(timeout_ms=30), late(release, []), lambda data: fallback(data) if data["n"] else None)
    with ThreadPoolExecutor(2) as pool, graph.open(pool=pool) as executor:
        result = executor.run_batch(Batch.of([Data({"n": n}) for n in (0, 1)]))
        release.set()
    assert result.rows.tolist() == [1]
    assert dict(result.dropped) == {0: "dropped by the step"}


def test_a_record_that_only_the_late_input_has_fails_and_is_not_lost() -> None:
    release = threading.Event()
    builder = GraphBuilder()
    a0, a1 = builder.input.switch("a", IntSwitch(field_name="a", num_outputs=2))
    b0, b1 = builder.input.switch("b", IntSwitch(field_name="b", num_outputs=2))
    slow = builder.any(a1, b1, builder.input).then("slow", late(release, []))
    quick = builder.any(a0, b0).then("quick", fallback)
    graph = builder.build(builder.combine(First(timeout_ms=30), slow, quick, name="best"))
    with ThreadPoolExecutor(2) as pool, graph.open(pool=pool) as executor:
        one, two = executor.run_many([Data({"a": n, "b": n, "n": n}) for n in (0, 1)])
        release.set()
    assert one == Data({"by": "fallback"})
    assert str(two) == "best: no input that has this record was there in time"


def test_first_takes_the_first_input_that_succeeds_without_threads_too() -> None:
    with combined(First(timeout_ms=10_000), broken, fallback).open() as executor:
        found = executor.run_many([Data({"n": n}) for n in (0, 1)])
    assert [one["by"] for one in results_of(found)] == ["model", "fallback"]


def test_inputs_that_do_not_get_the_same_records_cannot_stand_in_for_each_other() -> None:
    builder = GraphBuilder()
    left, right = builder.input.switch("sw", FunctionSwitch(lambda data: 0, num_outputs=2))
    with pytest.raises(DefinitionError, match='step "combine": "sw_1" and "sw_0" do not get the same records'):
        builder.build(builder.combine(First(timeout_ms=5), left, right))
    assert builder.combine(First(), left, right, name="ok").name == "ok"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Ensemble(weights=[1, 2, 3]), 'step "best": there are 3 weights for 2 inputs; give each input one'),
        (Ensemble(weights=[1]), 'step "best": there are 1 weights for 2 inputs'),
    ],
)
def test_weights_that_do_not_fit_the_inputs_are_an_error(function: CombineFunction, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        combined(function, broken, fallback)


@pytest.mark.parametrize("weights", [[0, 0], [-1, 2], [float("nan")], [float("inf"), 1]])
def test_weights_that_make_no_average_are_an_error(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        Ensemble(weights=weights)


def test_combine_functions_are_written_and_read() -> None:
    for function in (
        Ensemble(weights=[0.25, 0.75], field_names=["v"]),
        ArgMax(field_name="prob"),
        First(timeout_ms=100),
        FunctionCombine(f"{__name__}:pick"),
    ):
        builder = GraphBuilder()
        graph = builder.build(builder.combine(function, builder.input, builder.input.then("a", pipelines.Logging())))
        assert pipelines.loads(graph.to_json()) == graph
        assert pipelines.loads(graph.to_yaml()) == graph
    assert graph.to_dict()["steps"]["combine"] == {
        "@type": "COMBINE",
        "@input": ["input", "a"],
        "combineFn": {"@type": "FUNCTION", "function": f"{__name__}:pick"},
    }


def test_a_plug_ins_combine_function_gets_batches_whose_rows_belong_together() -> None:
    class Longest(pipelines.AlignedCombine):
        type_name = "LONGEST"

        def combiner(self, context: pipelines.OpenContext) -> Any:
            def longest(inputs: Sequence[Batch]) -> Batch | Result:
                first, second = inputs
                assert first.rows.tolist() == second.rows.tolist()
                if 3 in first["v"].values() and first.size > 1:
                    raise RuntimeError("all of them")
                return first.take(np.array(first["v"].values()) >= np.array(second["v"].values()))

            return longest

    found = run(combined(Longest(), *keys("a", "b")), {"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 5, "b": 2})
    assert found == [None, Data({"v": 3, "i": 0}), Data({"v": 5, "i": 0})]
