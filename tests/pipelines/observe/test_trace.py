"""Traces of single records."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pipelines import (
    Async,
    Batch,
    CachingTrigger,
    ClassifierOutput,
    Column,
    Data,
    GraphBuilder,
    Image,
    Sequence,
    SimpleLoopTrigger,
    StepError,
)
from pipelines.data.describing import described_row
from pipelines.data.entries import Entries
from pipelines.data.wirecolumn import WireColumn
from pipelines.observe.observing import StepRun
from pipelines.observe.tracing import Tracer


def same(data: Data) -> Data:
    return data


def twice(data: Data) -> list[Data]:
    return [Data({"n": data["n"]}), Data({"n": -data["n"]})]


def none(data: Data) -> None:
    return None


def refusing(data: Data) -> Data:
    if data["n"] > 1:
        raise ValueError("the secret is xyzzy")
    return data


class Noted:
    def __init__(self) -> None:
        self.steps: list[str] = []

    def step(self, run: StepRun) -> None:
        self.steps.append(run.step)


def test_a_trace_tells_of_each_step_and_the_result_is_the_same() -> None:
    data = Data({"p": np.array([0.1, 0.9], "f4"), "id": 7})
    with Sequence([same, Sequence([same]), ClassifierOutput(labels=("cat", "dog"))]).open() as executor:
        trace = executor.trace(data)
        assert trace.result == executor.run(data)
    assert [one.step for one in trace.steps] == [
        "0:FUNCTION",
        "1:PIPELINE/0:FUNCTION",
        "1:PIPELINE",
        "2:CLASSIFIER_OUTPUT",
    ]
    last = trace.steps[-1]
    assert last.given == ["p float32[2], id INT64 7"]
    assert last.made == [
        f"p float32[2], id INT64 7, prob DOUBLE {0.9:.1f}, index INT64 1, label STRING of 3 characters"
    ]
    assert last.runner == "ClassifierOutputRunner"
    assert 0 < sum(one.seconds for one in trace.steps if "/" not in one.step) <= trace.seconds
    assert trace.error is None
    text = str(trace)
    assert "2:CLASSIFIER_OUTPUT (ClassifierOutputRunner)" in text
    assert "4 steps" in text
    assert "<td>1:PIPELINE/0:FUNCTION</td>" in trace._repr_html_()


def test_a_trace_tells_kinds_and_sizes_but_never_what_texts_bytes_and_pictures_hold() -> None:
    data = Data(
        {
            "text": "secret",
            "bytes": b"secret",
            "list": ["secret", "secret"],
            "data": Data({"secret": 1}),
            "image": Image(np.zeros((3, 4, 3), np.uint8)),
            "ratio": 1 / 3,
            "yes": True,
        }
    )
    with Sequence([same]).open() as executor:
        trace = executor.trace(data)
    assert trace.steps[0].given == [
        "text STRING of 6 characters, bytes BYTES of 6, list LIST of 2 STRING, data DATA of 1 keys, "
        "image IMAGE 4x3x3, ratio DOUBLE 0.333333, yes BOOLEAN True"
    ]
    assert "secret" not in str(trace) + str(trace.to_data()) + trace._repr_html_()


def test_a_trace_of_a_record_that_fails_names_the_step_and_not_the_text_of_the_error() -> None:
    with Sequence([same, refusing, same]).open() as executor:
        trace = executor.trace(Data({"n": 2}))
    assert [one.step for one in trace.steps] == ["0:FUNCTION", "1:FUNCTION"]
    assert trace.steps[-1].made == []
    assert isinstance(trace.error, StepError)
    assert str(trace).endswith("failed in 1:FUNCTION: ValueError")
    assert "xyzzy" not in str(trace) + trace._repr_html_()


def test_a_trace_of_a_record_that_is_dropped_or_becomes_several_says_so() -> None:
    with Sequence([twice, none]).open() as executor:
        trace = executor.trace(Data({"n": 2}))
    assert trace.result is None
    assert trace.steps[0].made == ["n INT64 2", "n INT64 -2"]
    assert trace.steps[1].made == []
    assert "out  no row" in str(trace)


def test_a_trace_becomes_a_value_that_both_forms_carry() -> None:
    with Sequence([same]).open() as executor:
        found = executor.trace(Data({"n": 2})).to_data()
    assert Data.from_bytes(found.to_bytes()) == found == Data.from_json(found.to_json())
    assert found["steps"][0]["in"] == found["steps"][0]["out"] == "n INT64 2"


def test_the_trace_of_a_record_among_others_has_only_its_own_values_on_every_branch() -> None:
    builder = GraphBuilder()
    left = builder.input.then("left", lambda data: Data({"left": data["n"]}))
    inner = GraphBuilder()
    doubled = inner.build(inner.merge(inner.input.then("both", lambda data: Data({"inner": data["n"] * 10}))))
    graph = builder.build(builder.merge(left, builder.input.then("refusing", refusing).then("right", doubled)))
    with ThreadPoolExecutor(2) as pool, graph.open(pool=pool) as executor:
        tracer = Tracer({101})
        executor.observer = tracer
        result = executor.run_batch(Batch.of([Data({"n": n}) for n in (0, 1, 2, 3)], 100))
    assert set(result.failed) == {102, 103}
    told = {one.step: one for one in tracer.steps(101)}
    assert told.keys() == {"left", "refusing", "right/both", "right/merge", "right", "merge"}
    assert told["left"].given == ["n INT64 1"]
    assert told["left"].made == ["left INT64 1"]
    assert told["right/both"].given == ["n INT64 1"]
    assert told["right/both"].made == ["inner INT64 10"]
    assert told["merge"].given == ["left INT64 1", "inner INT64 10"]
    assert told["merge"].made == ["left INT64 1, inner INT64 10"]
    assert told["left"].rows == 4
    assert told["right"].rows == 2
    assert tracer.steps(100) == []


def test_values_that_no_step_asked_for_stay_undecoded() -> None:
    def decode(entries: Entries) -> Column:
        return Column.of([7 for _ in entries])

    batch = Batch({"n": WireColumn([b"x", None], decode)}, 2)
    assert [described_row(batch, position) for position in (0, 1)] == ["n not decoded", "nothing"]
    batch["n"]
    assert described_row(batch, 0) == "n INT64 7"


def test_an_observer_that_was_there_hears_of_a_traced_run_too_and_stays() -> None:
    with Sequence([same]).open() as executor:
        executor.observer = noted = Noted()
        executor.trace(Data({"n": 1}))
        assert executor.observer is noted
    assert noted.steps == ["0:FUNCTION"]


def test_a_trigger_that_runs_for_whoever_asks_is_traced_and_one_that_runs_by_itself_is_not() -> None:
    with Async(Sequence([same]), CachingTrigger(frequency_ms=0)).open() as executor:
        assert [one.step for one in executor.trace(Data({"n": 1})).steps] == ["0:FUNCTION"]
    with Async(Sequence([lambda data: Data({"n": 2})]), SimpleLoopTrigger(frequency_ms=1)).open() as executor:
        trace = executor.trace(Data({"n": 1}))
    assert trace.result == Data({"n": 2})
    assert trace.steps == []


@pytest.mark.parametrize("keys", [19, 20, 30])
def test_a_row_of_very_many_keys_is_told_in_part(keys: int) -> None:
    with Sequence([same]).open() as executor:
        (step,) = executor.trace(Data({f"k{key}": key for key in range(keys)})).steps
    assert step.given[0].endswith("and 10 more" if keys == 30 else f"k{keys - 1} INT64 {keys - 1}")
