"""Pipelines that a trigger runs: records in, results out, definitions."""

from __future__ import annotations

import json
import threading

import pytest

import pipelines
from pipelines import (
    Async,
    Batch,
    CachingTrigger,
    Data,
    DefinitionError,
    Graph,
    Logging,
    RecordContext,
    Sequence,
    SimpleLoopTrigger,
    StepError,
    StreamerError,
    TimeLoopTrigger,
)


class Runs:
    """A step that counts its runs, and may fail."""

    def __init__(self) -> None:
        self.count = 0
        self.error: Exception | None = None

    def __call__(self, data: Data) -> Data:
        self.count += 1
        if self.error is not None:
            raise self.error
        return Data({"run": self.count})


def test_a_pipeline_with_a_trigger_answers_every_record_with_the_latest_result() -> None:
    pipeline = Async(Sequence([Runs()], id="a", name="b"), SimpleLoopTrigger(frequency_ms=60_000))
    records = [Data({"n": n}, record=RecordContext("kafka", "t", offset=n)) for n in range(3)]
    with pipeline.open() as executor:
        assert executor.run(Data({"n": 1})) == Data({"run": 1})
        assert executor.run_many(records) == [Data({"run": 1})] * 3
        result = executor.run_batch(Batch.of(records, first=7))
        assert executor.reads == frozenset()
        assert not executor.stateful
        assert executor.flush().batch.size == executor.tick(0.0).batch.size == 0
    assert result.rows.tolist() == [7, 8, 9]
    assert result.batch["run"].values() == [1, 1, 1]
    with pipeline.open() as again:
        listed = again.run_batch(Batch.of(records)).batch.to_list()
    assert [data.record.offset for data in listed if data.record is not None] == [0, 1, 2]
    assert (pipeline.id, pipeline.name, pipeline.base) == ("a", "b", None)
    with pytest.raises(StreamerError, match="Unable to get output after trigger has been stopped"):
        executor.run(Data())


def test_a_failed_loop_fails_every_record_with_the_cause() -> None:
    runs = Runs()
    runs.error = ValueError("boom")
    with Async(Sequence([runs]), SimpleLoopTrigger()).open() as executor:
        found = executor.run_many([Data(), Data()])
        result = executor.run_batch(Batch.of([Data(), Data()]))
        with pytest.raises(StepError) as caught:
            executor.run(Data())
    assert [str(one) for one in found] == [str(caught.value)] * 2 == [str(one) for one in result.failed.values()]
    assert caught.value.step == "@AsyncTrigger"
    assert str(caught.value) == (
        "@AsyncTrigger: TriggerError: Error in Async execution thread: 0:FUNCTION: ValueError: boom"
    )


def test_a_cached_pipeline_fails_the_record_that_fails_in_the_name_of_its_step() -> None:
    runs = Runs()
    runs.error = ValueError("boom")
    with Async(Sequence([runs]), CachingTrigger(frequency_ms=1000)).open() as executor:
        (found,) = executor.run_many([Data()])
        runs.error = None
        assert executor.run(Data()) == Data({"run": 2})
        assert executor.reads is None
    assert str(found) == "0:FUNCTION: ValueError: boom"


def test_a_triggered_pipeline_that_drops_or_multiplies_does_so_for_each_record() -> None:
    for made, wanted in ((None, []), ([Data({"a": 1}), Data({"a": 2})], [0, 0, 1, 1])):
        with Async(Sequence([lambda data, made=made: made]), SimpleLoopTrigger(frequency_ms=10_000)).open() as executor:
            result = executor.run_batch(Batch.of([Data(), Data()]))
        assert result.rows.tolist() == wanted
        assert sorted(result.dropped) == ([] if made else [0, 1])


def test_a_pipeline_that_cannot_be_opened_starts_no_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(StepError, match=r"0:ONNX: "):
        Async(Sequence([pipelines.Onnx("missing.onnx")]), SimpleLoopTrigger()).open()
    assert set(threading.enumerate()) <= before


def test_a_triggered_pipeline_may_be_a_step_of_another() -> None:
    inner = Async(Sequence([lambda data: Data({"k": 1})]), SimpleLoopTrigger(frequency_ms=10_000))
    with Sequence([inner, lambda data: Data({"k": data["k"] + 1})]).open() as executor:
        assert executor.run(Data()) == Data({"k": 2})


def test_triggers_are_written_and_read_with_their_data() -> None:
    sequence, graph = Sequence([Logging()]), Graph({"a": (Logging(), "input")})
    for trigger in (
        SimpleLoopTrigger(),
        SimpleLoopTrigger(frequency_ms=5, data={"k": "v", "n": 1, "d": 1.0}, on_error="continue"),
        TimeLoopTrigger(frequency_ms=1000, offset=5, data=Data({"l": [1.5, 2.0]})),
        CachingTrigger(frequency_ms=20),
    ):
        for pipeline in (Async(sequence, trigger), Async(graph, trigger)):
            assert pipelines.loads(pipeline.to_json()) == pipeline
            assert pipelines.loads(pipeline.to_yaml()) == pipeline
    assert json.loads(Async(sequence, CachingTrigger(frequency_ms=20)).to_json()) == {
        "steps": [{"@type": "LOGGING", "logLevel": "INFO", "log": "KEYS"}],
        "@AsyncTrigger": {"@type": "CACHING_TRIGGER", "frequencyMs": 20},
    }
    assert "SIMPLE_LOOP_TRIGGER" in Async(graph, SimpleLoopTrigger())._repr_html_()
    assert repr(Async(sequence, SimpleLoopTrigger())) == "Async(Sequence(0:LOGGING), SIMPLE_LOOP_TRIGGER)"


def test_data_of_a_trigger_that_is_no_record_is_an_error_with_its_line() -> None:
    text = "steps: []\n'@AsyncTrigger':\n  '@type': SIMPLE_LOOP_TRIGGER\n  data: {'@x1': 1}"
    with pytest.raises(DefinitionError, match=r"<text>:4: @AsyncTrigger\.data: "):
        pipelines.loads(text)


def test_a_trigger_runs_a_pipeline_and_nothing_else() -> None:
    loop = Async(Sequence([]), SimpleLoopTrigger())
    for wrong in (loop, Logging()):
        with pytest.raises(DefinitionError, match="a trigger runs a Sequence or a Graph"):
            Async(wrong, SimpleLoopTrigger())  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="a trigger is needed, not int"):
        Async(Sequence([]), 5)  # type: ignore[arg-type]
