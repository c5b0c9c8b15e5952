"""Small batches that are gathered together: how many, and that the pipeline still gets them one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pipelines
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.data.result import Result
from pipelines.executors.accounting import NO_ROWS
from streamer import testing
from streamer.batching.sizer import LONGEST_TOGETHER, TOGETHER, TOGETHER_BYTES, BatchSizer, run_in_portions
from streamer.definition.service import Service
from streamer.observe.metrics import SourceMeters


def batch(size: int, first: int = 100) -> Batch:
    return Batch.of([Data({"x": float(row), "id": str(row)}) for row in range(size)], first)


SMALL = 1.0
"""Bytes of a record."""


def test_quick_batches_are_gathered_together_as_far_as_records_and_time_allow() -> None:
    sizer = BatchSizer(64)
    assert sizer.to_gather(SMALL) == 64, "before it is known how long one takes"
    sizer.ran(64, 0.00001, last=True)
    assert sizer.to_gather(SMALL) == TOGETHER
    sizer = BatchSizer(1)
    sizer.ran(1, LONGEST_TOGETHER / 10.5, last=True)
    assert sizer.to_gather(SMALL) == 10


def test_batches_are_gathered_alone_when_the_pipeline_has_become_slow() -> None:
    sizer = BatchSizer(64)
    for _ in range(100):
        sizer.ran(8 * 64, 0.0001, last=True)
    for _ in range(4):
        sizer.ran(64, 0.1, last=True)
    assert sizer.to_gather(SMALL) == 64


def test_one_batch_that_had_to_wait_for_the_processor_does_not_part_the_others() -> None:
    sizer = BatchSizer(64)
    sizer.ran(64, 0.0001, last=True)
    together = sizer.to_gather(SMALL)
    sizer.ran(together, 0.1, last=True)
    assert sizer.to_gather(SMALL) == together > 64


def test_large_batches_and_large_records_are_gathered_alone() -> None:
    for records, size in ((TOGETHER, SMALL), (64, TOGETHER_BYTES / 64)):
        sizer = BatchSizer(records)
        sizer.ran(records, 0.00001, last=True)
        assert sizer.to_gather(size) == records


def test_portions_of_what_was_gathered_together_count_as_one() -> None:
    whole, cut = BatchSizer(64), BatchSizer(64)
    whole.ran(64, LONGEST_TOGETHER / 3.5, last=True)
    for last in (False, True):
        cut.ran(32, LONGEST_TOGETHER / 7, last=last)
    assert cut.to_gather(SMALL) == whole.to_gather(SMALL) == 3 * 64


def test_a_call_gets_no_more_than_max_records_unless_all_runners_limit_their_calls() -> None:
    sizer = BatchSizer(64)
    assert sizer.in_one_call(1000) == 64
    sizer.any_size = True
    assert sizer.in_one_call(1000) == 1000


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
    assert result.batch.same_rows(whole)
    assert result.batch["y"].values() == whole["x"].values()
    assert result.batch["id"].values() == whole["id"].values()


def test_a_batch_that_fits_is_run_whole() -> None:
    portions: list[Batch] = []
    whole = batch(10)
    run_in_portions(given(portions), whole, 10)
    assert portions[0] is whole


def test_failures_of_a_portion_are_those_of_its_rows() -> None:
    def run(portion: Batch) -> Result:
        if 110 in portion.rows:
            return Result(NO_ROWS, {int(row): ValueError("no") for row in portion.rows})
        return Result(portion)

    result, _ = run_in_portions(run, batch(30), 10)
    assert sorted(result.failed) == list(range(110, 120))
    assert result.batch.rows.tolist() == [*range(100, 110), *range(120, 130)]
    assert result.batch["x"].values() == [*map(float, range(10)), *map(float, range(20, 30))]


@pytest.mark.slow
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
