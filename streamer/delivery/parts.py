"""Parts of a batch that was run, with their part of its result."""

from __future__ import annotations

import numpy as np

from connectors.records import Ints
from pipelines.data.result import Result
from streamer.agent.decodedbatch import DecodedBatch


def part_of(decoded: DecodedBatch, result: Result, rows: Ints) -> tuple[DecodedBatch, Result]:
    """These rows of a batch, and the pipeline's results for them. A result of several rows needs all of them."""
    part = decoded.part(rows)
    kept = set(rows.tolist())
    batch = result.batch
    inside = np.isin(batch.rows, rows)
    if batch.splits is not None:
        # A result without parents is none of these rows'; `reduceat` would not say so.
        total = np.concatenate([[0], np.cumsum(inside)])
        counts = np.diff(batch.splits)
        inside = (total[batch.splits[1:]] - total[batch.splits[:-1]] == counts) & (counts > 0)
    return part, Result(
        batch.take(inside),
        {row: error for row, error in result.failed.items() if row in kept},
        {row: reason for row, reason in result.dropped.items() if row in kept},
        result.held[np.isin(result.held, rows)],
    )


def failing(decoded: DecodedBatch, result: Result, errors: dict[int, Exception]) -> tuple[DecodedBatch, Result]:
    """The same batch, in which these rows have failed, in place of the pipeline's results for them."""
    rows = np.array([row for row in decoded.rows if row not in errors], np.int64)
    _, others = part_of(decoded, result, rows)
    others.failed = {**others.failed, **errors}
    return decoded, others
