"""Batches whose records bring several samples each are run in parts of as many samples as a batch may have."""

from __future__ import annotations

import numpy as np

from connectors.codec import RecordsOrigin
from connectors.records import Lane, Records, Span
from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn
from streamer.agent.decodedbatch import DecodedBatch
from streamer.batching.cutting import by_samples


def decoded(count: int, first: int = 7) -> DecodedBatch:
    values = [b"%d" % number for number in range(count)]
    spans = [Span(Lane("http", "a", 0), 0, count)]
    records = Records("http", values, None, np.arange(count), spans, ["m"], [0], count)
    asks = [f"ask {number}" for number in range(count)]
    batch = Batch(
        {"x": DenseColumn(np.arange(count))},
        count,
        rows=range(first, first + count),
        origin=RecordsOrigin(records, first, asks),
    )
    return DecodedBatch("http", records, first, batch, {}, [])


def cut(samples: list[int], most: int) -> list[list[int]]:
    parts = by_samples(decoded(len(samples)), np.array(samples, np.int64), most)
    return [part.batch["x"].values() for part in parts]


def test_a_batch_has_at_most_so_many_samples_and_a_larger_request_is_a_batch_of_its_own() -> None:
    assert cut([1, 1, 1], 8) == [[0, 1, 2]]
    assert cut([4, 4, 1], 8) == [[0, 1], [2]]
    assert cut([1, 20, 1], 8) == [[0], [1], [2]]
    assert cut([0, 0, 9], 8) == [[0, 1], [2]]
    assert cut([9], 8) == [[0]]


def test_each_part_keeps_its_records_and_what_they_asked() -> None:
    first, second = by_samples(decoded(3), np.array([5, 5, 1], np.int64), 8)
    assert (list(first.rows), list(second.rows)) == ([7], [8, 9])
    assert [bytes(value) for value in second.records.values] == [b"1", b"2"]
    assert isinstance(second.batch.origin, RecordsOrigin)
    assert (second.batch.origin.first, second.batch.origin.asks) == (8, ["ask 1", "ask 2"])
