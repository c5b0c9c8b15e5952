"""A decoded batch cut into parts that are run one after the other, each with its records."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from connectors.codec import RecordsOrigin
from connectors.records import Ints, Records
from streamer.agent.decodedbatch import DecodedBatch


def by_samples(decoded: DecodedBatch, samples: Ints, most: int) -> list[DecodedBatch]:
    """The batch in parts of at most `most` samples for a model each, of which a row brings `samples`, `int64 (N,)`.

    A row that brings more is a part of its own: its samples belong together.
    """
    if len(samples) < 2 or int(samples.sum()) <= most:
        return [decoded]
    return list(cut(decoded, ranges_of(samples, most)))


def ranges_of(sizes: Ints, most: int) -> list[range]:
    """Ranges of rows, in order, whose sizes `int64 (N,)` sum up to `most` at most; a larger row is one of its own."""
    parts: list[range] = []
    start, total = 0, 0
    for row, size in enumerate(sizes.tolist()):
        if row > start and total + size > most:
            parts.append(range(start, row))
            start, total = row, 0
        total += size
    return [*parts, range(start, len(sizes))]


def cut(decoded: DecodedBatch, ranges: list[range]) -> Iterator[DecodedBatch]:
    """A part for each range of the batch's rows, with the records up to the first of the next range."""
    batch, first, passed = decoded.batch, decoded.first, decoded.passed
    starts = [0, *(int(batch.rows[rows.start]) - first for rows in ranges[1:]), len(decoded.records)]
    for start, stop, part in zip(starts, starts[1:], batch.parts(ranges), strict=False):
        records = decoded.records.part(start, stop)
        rows = range(first + start, first + stop)
        yield DecodedBatch(
            decoded.source,
            records,
            rows.start,
            part.with_origin(_origin_of(decoded, records, start)),
            {row: error for row, error in decoded.failed.items() if row in rows},
            [row for row in decoded.tombstones if row in rows],
            passed[slice(*np.searchsorted(passed, [rows.start, rows.stop]))],
            None if decoded.stamps is None else decoded.stamps[start:stop],
            arrivals=decoded.arrivals,
            picture_bytes=decoded.picture_bytes,
        )


def _origin_of(decoded: DecodedBatch, records: Records, start: int) -> RecordsOrigin:
    """The origin of the part of the batch that came from these `records`, which begin at place `start`."""
    origin = decoded.batch.origin
    if not isinstance(origin, RecordsOrigin):
        return RecordsOrigin(records, decoded.first + start)
    if origin.records is not decoded.records:
        # A codec took headers out.
        records = origin.records.part(start, start + len(records))
    return origin.part(records, start)
