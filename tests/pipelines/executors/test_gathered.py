"""What steps made of earlier records too stays known, whatever later steps make of it: `Result.gathered`."""

from __future__ import annotations

import pytest

from pipelines import Batch, Data, Function, GraphBuilder, Pipeline, PipelineStep, Result, Sequence, Window

WINDOW = Window(by="device", size=2, aggregate={"sum": {"sum": "x"}}, time="arrival", short="emit")


def refuse(data: Data) -> Data:
    raise ValueError("refused")


def sequence() -> Pipeline:
    return Sequence([WINDOW, Function(refuse)])


def graph() -> Pipeline:
    builder = GraphBuilder()
    windows = builder.input.then("windows", WINDOW)
    return builder.build(windows.then("refuse", Function(refuse)))


def inside() -> Pipeline:
    return Sequence([PipelineStep(Sequence([WINDOW])), Function(refuse)])


def sums_of(result: Result) -> list[tuple[int, int]]:
    return [
        (row, data["sum"])
        for made in result.gathered
        for row, data in zip(made.batch.rows.tolist(), made.batch.to_list(), strict=True)
    ]


@pytest.mark.parametrize("pipeline", [sequence(), graph(), inside()])
def test_a_window_that_failed_later_is_known_under_the_number_of_its_record(pipeline: Pipeline) -> None:
    records = [Data({"device": device, "x": x}) for device, x in [("a", 1), ("b", 5), ("a", 2), ("c", 7), ("b", 6)]]
    with pipeline.open() as executor:
        result = executor.run_batch(Batch.of(records, 10))
        assert (sorted(result.failed), result.batch.size) == ([12, 14], 0)
        assert sums_of(result) == [(12, 3), (14, 11)]
        assert not executor.run_batch(Batch.of(records[:1], 20)).gathered


@pytest.mark.parametrize("pipeline", [sequence(), graph(), inside()])
def test_a_window_that_is_closed_by_the_end_is_known_too(pipeline: Pipeline) -> None:
    with pipeline.open() as executor:
        executor.run_batch(Batch.of([Data({"device": "a", "x": 1})], 10))
        result = executor.flush()
    ((row, total),) = sums_of(result)
    assert (list(result.failed), total) == ([row], 1)
