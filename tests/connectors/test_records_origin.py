"""Where the records behind row numbers came from, for all of them at once as for each alone."""

from __future__ import annotations

import numpy as np
import pytest

from connectors.codec import RecordsOrigin
from connectors.coded import Coded
from connectors.records import Lane, Records, Span
from pipelines.data.batch import JoinedOrigins, Origin


def origin(first: int, partitions: int, count: int, source: str = "bus", topics: Coded | None = None) -> RecordsOrigin:
    """The origin of so many records, each `partitions`-th of which begins another partition."""
    edges = np.linspace(0, count, partitions + 1).astype(int).tolist()
    spans = [Span(Lane(source, str(at), 0), edges[at], edges[at + 1]) for at in range(partitions)]
    records = Records(
        source,
        [b""] * count,
        [b"key %d" % (first + row) for row in range(count)],
        np.arange(count) + 100,
        spans,
        ["topic"] * partitions if topics is None else topics,
        list(range(partitions)),
        0,
        timestamps=lambda: np.arange(count) + 1000,
    )
    return RecordsOrigin(records, first)


ORIGINS: dict[str, Origin] = {
    "one block": origin(10, 3, 7),
    "several blocks": JoinedOrigins([origin(10, 3, 7), origin(20, 1, 5), origin(1 << 48, 2, 4, "other")]),
    "blocks that overlap": JoinedOrigins([origin(10, 1, 7), origin(12, 2, 20, "other")]),
    "topics of records": JoinedOrigins([origin(10, 1, 4, topics=Coded.of(["a", "b", "a", "c"])), origin(20, 1, 5)]),
    "blocks of blocks": JoinedOrigins([JoinedOrigins([origin(10, 1, 4), origin(14, 2, 4)]), origin(20, 1, 5)]),
}


@pytest.mark.parametrize("of", ORIGINS.values(), ids=ORIGINS)
def test_places_are_those_of_the_records_one_by_one(of: Origin) -> None:
    rows = np.random.default_rng(1).permutation([*range(8, 34), *range((1 << 48) - 1, (1 << 48) + 5)])
    places = of.places(rows)
    records = [of.record(row) for row in rows.tolist()]
    assert places.topics == [None if record is None else record.topic for record in records]
    assert places.lanes == [None if record is None else record.lane for record in records]
    for record, place, offset, key in zip(
        records, places.places[places.numbers], places.offsets.tolist(), places.keys.tolist(), strict=True
    ):
        if record is None:
            assert (place, key) == (None, None)
        else:
            assert (place.source, place.partition, offset, key) == (
                record.source,
                record.partition,
                record.offset,
                record.key,
            )


@pytest.mark.parametrize("of", ORIGINS.values(), ids=ORIGINS)
def test_no_rows_have_no_places(of: Origin) -> None:
    places = of.places(np.zeros(0, np.int64))
    assert (places.lanes, len(places.offsets), len(places.keys)) == ([], 0, 0)
