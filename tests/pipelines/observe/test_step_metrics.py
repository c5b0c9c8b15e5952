"""What steps count and measure themselves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from pipelines import (
    Batch,
    ClassifierOutput,
    Data,
    DataError,
    DefinitionError,
    Function,
    FunctionSwitch,
    GraphBuilder,
    Python,
    PythonConfig,
    Sequence,
    StepError,
    batched,
    metrics,
)
from pipelines.observe.meters import Labels
from pipelines.observe.metrics import Metrics
from pipelines.observe.observing import StepRun
from pipelines.runners.runner import OpenContext, Runner


def counting(data: Data) -> Data:
    seen = metrics.counter("requests", "Records seen.")
    metrics.gauge("level").set(0.1 * seen.value)
    seen.add()
    with metrics.timer("work").time():
        return data


def value(executor: Any, step: str, name: str) -> float:
    found: float = executor.metrics[step][name].value
    return found


def test_after_i_requests_the_counter_is_i_and_the_gauge_a_tenth_of_i_minus_1() -> None:
    with Sequence([counting]).open() as executor:
        for i in range(1, 8):
            executor.run(Data({"n": i}))
            assert value(executor, "0:FUNCTION", "requests") == i
            assert value(executor, "0:FUNCTION", "level") == pytest.approx(0.1 * (i - 1))
            assert executor.metrics["0:FUNCTION"]["work"].count == i  # type: ignore[attr-defined]
    assert value(executor, "0:FUNCTION", "requests") == 7


def test_each_step_has_its_own_numbers_also_inside_a_pipeline_and_on_a_pool() -> None:
    @batched
    def batch(batch: Batch) -> Batch:
        metrics.counter("rows").add(batch.size)
        return batch

    builder = GraphBuilder()
    inner = Sequence([Function(counting, name="inner")])
    both = builder.merge(
        builder.input.then("left", lambda data: counting(data) and Data({"a": 1})),
        builder.input.then("right", inner).then("last", batch),
    )
    with ThreadPoolExecutor(2) as pool, builder.build(both).open(pool=pool) as executor:
        executor.run_many([Data({"n": n}) for n in range(5)])
        assert executor.metrics.keys() == {"left", "right/inner", "last"}
        assert value(executor, "left", "requests") == value(executor, "right/inner", "requests") == 5
        assert value(executor, "last", "rows") == 5
        assert "right/inner" in executor.metrics._repr_html_()


def test_code_of_a_python_step_and_of_a_switch_counts_too() -> None:
    code = "from pipelines import metrics\nmetrics.counter('seen').add()\nmetrics.gauge('twice').set(2 * n)\n"

    def side(data: Data) -> int:
        metrics.counter("switched").add()
        return int(data["n"] % 2)

    builder = GraphBuilder()
    even, odd = builder.input.then("code", Python(python_config=PythonConfig(python_code=code))).switch(
        "side", FunctionSwitch(side, num_outputs=2)
    )
    with builder.build(builder.any(even, odd)).open() as executor:
        executor.run_many([Data({"n": n}) for n in (1, 2, 3)])
        assert value(executor, "code", "seen") == 3
        assert value(executor, "code", "twice") == 6
        assert value(executor, "side", "switched") == 3


def test_a_runner_takes_its_metrics_when_it_opens() -> None:
    found = Metrics()
    context = OpenContext(step="mine", meters=found)
    context.metrics.counter("seen").add(3)
    assert found["mine"]["seen"].value == 3  # type: ignore[attr-defined]
    assert context.metrics.counter("seen") is found["mine"]["seen"]
    assert Runner.inside is None


def test_a_function_can_be_called_outside_of_a_pipeline() -> None:
    before = metrics.counter("requests").value
    counting(Data({"n": 1}))
    assert metrics.counter("requests").value == before + 1
    with Sequence([lambda data: data]).open() as executor:
        executor.run(Data({"n": 1}))
        assert len(executor.metrics) == 0


def test_a_function_that_runs_a_pipeline_of_its_own_gets_its_own_numbers_back() -> None:
    with Sequence([counting]).open() as within:

        def nesting(data: Data) -> Data:
            within.run(data)
            metrics.counter("outer").add()
            return data

        with Sequence([nesting]).open() as executor:
            executor.run(Data({"n": 1}))
    assert value(executor, "0:FUNCTION", "outer") == 1
    assert "outer" not in within.metrics["0:FUNCTION"]


def test_a_timer_counts_by_duration() -> None:
    timer = Metrics().of("s").timer("work")
    for seconds in (0.00005, 0.003, 0.003, 100.0):
        timer.record(seconds)
    assert timer.count == 4
    assert timer.seconds == pytest.approx(100.00605)
    assert [timer.buckets[0], timer.buckets[5], timer.buckets[-1], sum(timer.buckets)] == [1, 2, 1, 4]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda one: one.counter("streamer_records"), "begin it with another word"),
        (lambda one: one.counter("with space"), "invalid metric name"),
        (lambda one: one.gauge("1st"), "not a digit first"),
        (lambda one: (one.counter("a.b"), one.gauge("a_b")), '"a_b" is a counter already'),
    ],
)
def test_a_name_that_cannot_be_exported_is_refused(use: Callable[[Any], object], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        use(Metrics().of("s"))


def test_one_name_is_one_kind_in_all_steps() -> None:
    found = Metrics()
    found.of("a").counter("n")
    with pytest.raises(DefinitionError, match='"n" is a counter already; give the gauge another name'):
        found.of("b").gauge("n")
    found.of("b").counter("n")


def test_a_counter_cannot_go_down() -> None:
    with pytest.raises(DataError, match="use a gauge"):
        Metrics().of("s").counter("n").add(-1)


def test_labels_beyond_the_limit_are_counted_together() -> None:
    found = Labels("l", "", limit=3)
    for label in ("a", "b", "c", "d", "e", "a"):
        found.add(label)
    assert found.counts == {"a": 2, "b": 1, "c": 1, "other": 2}


def test_a_classifier_counts_its_labels_each_sample_once() -> None:
    rows = [np.eye(3, dtype="f4")[[0, 2]], np.eye(3, dtype="f4")[1], np.eye(3, dtype="f4")[2]]
    with Sequence([ClassifierOutput(labels=("cat", "dog", "cow"))]).open() as executor:
        executor.run_many([Data({"p": row}) for row in rows])
        found = executor.metrics["0:CLASSIFIER_OUTPUT"]["streamer_labels"]
    assert found.counts == {"cat": 1, "cow": 2, "dog": 1}  # type: ignore[attr-defined]


@pytest.mark.parametrize("classes", [3, 1000])
def test_a_classifier_without_labels_counts_indexes(classes: int) -> None:
    with Sequence([ClassifierOutput()]).open() as executor:
        executor.run(Data({"p": np.eye(classes, dtype="f4")[[0, classes - 1, classes - 1]]}))
        found = executor.metrics["0:CLASSIFIER_OUTPUT"]["streamer_labels"]
    assert found.counts == {"0": 1, str(classes - 1): 2}  # type: ignore[attr-defined]


def test_a_classifier_counts_no_record_that_fails_and_others_once_though_they_run_again() -> None:
    with Sequence([ClassifierOutput(labels=("cat", "dog"))]).open() as executor:
        rows = ([0, 0, 1], [0, 1], [1, 0, 0], [1, 0])
        outcomes = executor.run_many([Data({"p": np.array(row, "f4")}) for row in rows])
        found = executor.metrics["0:CLASSIFIER_OUTPUT"]["streamer_labels"]
    assert [isinstance(outcome, StepError) for outcome in outcomes] == [True, False, False, False]
    assert found.counts == {"cat": 2, "dog": 1}  # type: ignore[attr-defined]


class Errors:
    def __init__(self) -> None:
        self.found: dict[str, dict[str, int]] = {}

    def step(self, run: StepRun) -> None:
        self.found[run.step] = dict(run.errors)


def test_an_error_inside_a_pipeline_is_counted_once_in_the_step_that_made_it() -> None:
    def refusing(data: Data) -> Data:
        raise ValueError("no")

    with Sequence([Sequence([refusing])]).open() as executor:
        executor.observer = errors = Errors()
        executor.run_many([Data({"n": 1}), Data({"n": 2})])
    assert errors.found == {"0:PIPELINE/0:FUNCTION": {"ValueError": 2}, "0:PIPELINE": {}}
