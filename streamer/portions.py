"""Running a batch that is larger than the pipeline wants it, portion by portion."""

from __future__ import annotations

from collections.abc import Callable

from pipelines.batch import Batch
from pipelines.executors.settling import is_settled, joined
from pipelines.result import Result


def run_in_portions(run: Callable[[Batch], Result], batch: Batch, size: int) -> Result:
    """What `run` makes of the rows of `batch`, given at most `size` of them at a time. For steps without state."""
    if batch.size <= size:
        return run(batch)
    portions = [batch.part(start, min(start + size, batch.size)) for start in range(0, batch.size, size)]
    results = [run(portion) for portion in portions]
    result = joined(results)
    if all(map(is_settled, results, portions)) and batch.splits is None:
        # By this very array of row numbers others know that all rows are there, in their order.
        result.batch = result.batch.numbered(batch.rows, batch.origin)
    return result
