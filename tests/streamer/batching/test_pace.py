"""Small batches that travel together: how many, and that the pipeline still gets them one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pipelines
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.data.result import Result
from pipelines.executors.settling import NOBODY
from streamer import testing
from streamer.batching.portions import run_in_portions
from streamer.batching.travel import LONGEST, TOGETHER, Pace
from streamer.definition.service import Service
from streamer.observe.metrics import SourceMeters


def batch(size: int, first: int = 100) -> Batch:
    return Batch.of([Data({"x": float(row), "id": str(row)}) for row in range(size)], first)


def test_quick_batches_travel_together_as_far_as_records_and_time_allow() -> None:
    pace = Pace(64)
    assert pace.batches == 1, "before it is known how long one takes"
    pace.ran(0.00001, 1)
    assert pace.batches == TOGETHER // 64
    pace = Pace(1)
    pace.ran(LONGEST / 10, 1)
    assert pace.batches == 10


def test_batches_travel_alone_when_the_pipeline_has_become_slow() -> None:
    pace = Pace(64)
    for _ in range(100):
        pace.ran(0.0001, 8)
    for _ in range(4):
        pace.ran(0.1, 1)
    assert pace.batches == 1


def test_one_batch_that_had_to_wait_for_the_processor_does_not_part_the_others() -> None:
    pace = Pace(64)
    pace.ran(0.0001, 1)
    together = pace.batches
    pace.ran(0.1, together)
    assert pace.batches == together > 1


def test_large_batches_travel_alone() -> None:
    pace = Pace(TOGETHER)
    pace.ran(0.00001, 1)
    assert pace.batches == 1


def given(batches: list[Batch]) -> Callable[[Batch], Result]:
    def run(portion: Batch) -> Result:
        batches.append(portion)
        return Result(portion.with_columns({"y": portion.column("x")}))

    return run


def test_a_batch_is_run_in_portions_and_put_together_again() -> None:
    portions: list[Batch] = []
    whole = batch(25)
    result, done = run_in_portions(given(portions), whole, 10)
    assert done == 25
    assert [portion.size for portion in portions] == [10, 10, 5]
    assert result.batch.rows is whole.rows
    assert result.batch["y"].values() == whole["x"].values()
    assert result.batch["id"].values() == whole["id"].values()


def test_what_fits_is_run_as_it_is() -> None:
    portions: list[Batch] = []
    whole = batch(10)
    run_in_portions(given(portions), whole, 10)
    assert portions[0] is whole


def test_failures_of_a_portion_are_those_of_its_rows() -> None:
    def run(portion: Batch) -> Result:
        if 110 in portion.rows:
            return Result(NOBODY, {int(row): ValueError("no") for row in portion.rows})
        return Result(portion)

    result, _ = run_in_portions(run, batch(30), 10)
    assert sorted(result.failed) == list(range(110, 120))
    assert result.batch.rows.tolist() == [*range(100, 110), *range(120, 130)]
    assert result.batch["x"].values() == [*map(float, range(10)), *map(float, range(20, 30))]


@pytest.mark.parametrize("size", [1, 7])
def test_a_service_gives_its_pipeline_no_larger_batches_than_it_was_told(size: int) -> None:
    seen: list[int] = []

    @pipelines.batched
    def model(batch: Batch) -> Batch:
        seen.append(batch.size)
        return batch

    fields: dict[str, Any] = {
        "source": {"type": "memory", "topic": "in"},
        "pipeline": pipelines.Sequence([model]),
        "batch": {"max_records": size},
        "sink": {"type": "memory", "topic": "out"},
        "dead_letter": {"type": "memory", "topic": "dead"},
    }
    service = Service(**fields)
    records: list[Any] = [Data({"n": number}) for number in range(500)]
    report = testing.run(service, [*records[:250], b"\xff", *records[250:]])
    assert [data["n"] for data in report.results if data is not None] == list(range(500))
    assert len(report.dead) == 1
    assert report.acknowledged == 501
    assert max(seen) == size
    assert sum(seen) == 500


def test_the_metrics_count_the_batches_that_the_pipeline_gets() -> None:
    meters = SourceMeters()
    meters.batches(30, 64, "wait")
    meters.batches(150, 64, "records")
    assert meters.batch_records.count == 4
    assert meters.batch_records.total == 180
    assert dict(meters.closed) == {"wait": 1, "records": 3}
    assert meters.polled_rows == 180
