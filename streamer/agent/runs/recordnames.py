"""How a worker process and its parent name records, across restarts: by positions, or by digests of their content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b

from connectors.records import Records
from pipelines.data.batch import Batch
from streamer.agent.decodedbatch import DecodedBatch
from streamer.workers.notes import Span


def spans_of(service: str, batches: Sequence[DecodedBatch], batch: Batch, digests: frozenset[str]) -> Iterator[Span]:
    """The records of `batch`, whose rows come from these batches, one span for each lane at most.

    `digests` names the sources that count positions from 0 again after a restart.
    """
    rows = batch.row_numbers
    if not len(rows):
        return
    for decoded in batches:
        records, first = decoded.records, decoded.first
        if isinstance(rows, range):
            start, stop = max(rows.start - first, 0), min(rows.stop - first, len(records))
        else:
            inside = rows[(rows >= first) & (rows < first + len(records))] - first
            start, stop = (int(inside.min()), int(inside.max()) + 1) if len(inside) else (0, 0)
        if start >= stop:
            continue
        if decoded.source in digests:
            yield from _by_digest(service, records, start, stop)
            continue
        positions = records.positions
        for lane, begin, end in records.spans:
            begin, end = max(begin, start), min(end, stop)
            if begin < end:
                yield Span(service, lane.source, lane.partition, int(positions[begin]), int(positions[end - 1]))


def digest(records: Records, index: int) -> int:
    """A number that stands for the topic and the payload of a record, from 0 to 2**63 - 1."""
    value = records.values[index]
    if value is None or isinstance(value, (bytes, bytearray, memoryview)):
        content = b"" if value is None else bytes(value)
    else:
        content = str(records.positions[index]).encode()
    hashed = blake2b(content, digest_size=8, key=records.topic_of(index).encode()[:64])
    return int.from_bytes(hashed.digest()) >> 1


def _by_digest(service: str, records: Records, start: int, stop: int) -> Iterator[Span]:
    for lane, begin, end in records.spans:
        for index in range(max(begin, start), min(end, stop)):
            name = digest(records, index)
            yield Span(service, lane.source, lane.partition, name, name, True)
