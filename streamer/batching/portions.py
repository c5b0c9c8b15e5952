"""A batch run in portions, one call of the pipeline after the other, and put together again."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.executors.accounting import joined


def run_in_portions(
    run: Callable[[Batch], Result], batch: Batch, size: int, go_on: Callable[[], bool] = lambda: True
) -> tuple[Result, int]:
    """What `run` makes of the rows of `batch`, given at most `size` of them at a time, and how many rows it was given.

    That is not all of them where `go_on`, asked between two portions, says no.
    """
    if batch.size <= size:
        return run(batch), batch.size
    parts = batch.parts([range(batch.size)[start : start + size] for start in range(0, batch.size, size)])
    results: list[Result] = []
    done = 0
    for portion in parts:
        if results and not go_on():
            break
        results.append(run(portion))
        done += portion.size
    return joined(results), done
