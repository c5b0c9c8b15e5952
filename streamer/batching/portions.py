"""Running a batch in portions, one call of the pipeline after the other."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.executors.accounting import joined


def run_in_portions(
    run: Callable[[Batch], Result], batch: Batch, size: int, go_on: Callable[[], bool] = lambda: True
) -> tuple[Result, int]:
    """The joined result of `run` for portions of `batch`, `size` rows at most each, and how many rows were run.

    `go_on` is called between two portions; if it returns `False` the remaining rows are not run.
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
