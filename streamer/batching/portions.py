"""Running a batch in portions, one call of the pipeline after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.executors.accounting import joined


def run_in_portions(
    run: Callable[[Batch], Result], batch: Batch, size: int, go_on: Callable[[], bool] = lambda: True
) -> tuple[Result, int]:
    """The joined result of `run` for portions of `batch`, `size` rows at most each, and how many rows were run.

    A record of several rows is never divided: it fails with all of them, so its portion may be larger.
    `go_on` is called between two portions; if it returns `False` the remaining rows are not run.
    """
    if batch.size <= size:
        return run(batch), batch.size
    ranges: list[range] = []
    while not ranges or ranges[-1].stop < batch.size:
        start = ranges[-1].stop if ranges else 0
        ranges.append(range(start, whole_records(batch, start, size)))
    parts = batch.parts(ranges)
    results: list[Result] = []
    done = 0
    for portion in parts:
        if results and not go_on():
            break
        results.append(run(portion))
        done += portion.size
    return joined(results), done


def whole_records(batch: Batch, start: int, size: int) -> int:
    """The position behind the last record of which all rows lie among the `size` rows from `start` on.

    Behind the record at `start` if that one has more rows. Rows of one record stand side by side, with one number.
    """
    stop = min(start + size, batch.size)
    if stop == batch.size or batch.row_range is not None or batch.splits is not None:
        return stop
    begins = start + 1 + np.flatnonzero(batch.rows[start + 1 :] != batch.rows[start:-1])
    before = begins[begins <= stop]
    if len(before):
        return int(before[-1])
    return int(begins[0]) if len(begins) else batch.size
