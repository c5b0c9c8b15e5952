"""`BlockDecoder`: the records of one source to batches, with numbers for their rows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from connectors.blockcolumns import where_null
from connectors.codec import Codec, Decoded
from connectors.records import Ints, Records
from connectors.source import Source
from pipelines.data.batch import Batch
from pipelines.errors import ConnectorError, StepError
from pipelines.executors.accounting import NO_ROWS
from streamer.agent.decodedbatch import NONE_PASSED, SOURCE_BITS, DecodedBatch
from streamer.agent.where import Where
from streamer.batching.batcher import Closed
from streamer.batching.cutting import by_samples
from streamer.batching.pictures import in_parts
from streamer.batching.residence import Arrivals
from streamer.delivery.sending import pause
from streamer.routing.into import Into
from streamer.routing.recordtime import RecordTime

Wait = Callable[[float, str], bool]
"""Called with seconds to wait and the reason; returns `False` if the service stops."""
NOTHING: Final = Decoded(NO_ROWS, {})
"""What is decoded of a block from which no record is run."""
LATENCY_SAMPLE = 8
"""Latency is measured in every eighth of the full-sized batches: reading timestamps costs 0.1 us a record."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a service decodes the records of all its sources."""

    wanted: frozenset[str] | None
    """The keys that the pipeline reads; `None`: all."""
    pixels: int | None
    """Limit of one batch's images in pixels; `None`: no limit."""
    samples: int | None
    """The most samples for a model in a batch; `None`: no limit."""
    opens_images: bool
    """Whether a step or a sink may look at the pixels of images that arrive undecoded."""


class BlockDecoder:
    """Decodes blocks of records, in the intake thread of their source."""

    def __init__(
        self,
        source: str,
        codec: Codec,
        index: int,
        into: Into,
        record_time: RecordTime | None,
        where: Where | None,
        decoding: Decoding,
        log: Any,
    ) -> None:
        """`source` and `index`: the name and the number of the source. `record_time`: `None` if the times of its
        records are those of the bus. `where`: which of its records are run; `None`: all."""
        self.codec = codec
        self._source = source
        self._next_row = index << SOURCE_BITS
        self._into = into
        self._time = record_time
        self._where = where
        self._wanted = decoding.wanted
        if record_time is not None:
            self._wanted = (self._wanted or frozenset()) | {record_time.field}
        if where is not None and where.keys:
            self._wanted = (self._wanted or frozenset()) | where.keys
        self._decoding = decoding
        self._log = log
        self._blocks = 0
        self._has_warned = False

    def decoded(self, closed: Closed, wait: Wait) -> deque[DecodedBatch] | None:
        """The batch; in parts if its images are too large to be run together.

        `wait` is called while the codec can decode no record at all, for lack of a schema for example.

        `None` if the service stopped while the codec waited: the records come again in its next run. Raises
        `ConnectorError` if the codec cannot recover by waiting.
        """
        began = time.perf_counter()
        records = closed.records
        count, first = len(records), self._next_row
        self._next_row += count
        if self._where is None:
            decoding, passed = self._read(records, first, wait), NONE_PASSED
        else:
            fitting = self._where.before(records, first)
            decoding = NOTHING if fitting.is_empty else self._read(fitting.records, first, wait)
            if decoding is not None:
                decoding, passed = self._where.after(decoding, fitting)
        if decoding is None:
            return None
        batch = decoding.batch
        failed = (
            {row: StepError.of("decode", error) for row, error in decoding.failed.items()} if decoding.failed else {}
        )
        tombstones: list[int] = []
        if batch.size + len(failed) + len(passed) < count or _has_several(batch):
            others = {*passed.tolist(), *(first + row for row in records.faults)}
            tombstones = [first + row for row in where_null(records.values) if first + row not in others]
            passed = _not_among(first, count, (batch.rows, list(failed), tombstones))
        decoded = DecodedBatch(self._source, records, first, batch, failed, tombstones, passed, self._stamps(closed))
        decoded.arrivals = arrivals = Arrivals(first, closed.arrivals)
        arrivals.decoding = time.perf_counter() - began
        arrivals.decoding_began, arrivals.gathering = began, closed.seconds
        pixels, most = self._decoding.pixels, self._decoding.samples
        parts = [decoded]
        if most is not None and decoding.samples is not None:
            parts = by_samples(decoded, decoding.samples, most)
        if pixels is None or not batch.may_hold_images:
            return deque(parts)
        return deque(cut for part in parts for cut in in_parts(part, pixels, undecoded=self._decoding.opens_images))

    def publish_requests(self, source: Source) -> None:
        """Publish the codec's requests to the senders of the records (for another birth certificate, for example)."""
        for request in self.codec.requests():
            if source.publish(request.topic, request.payload) or self._has_warned:
                continue
            self._has_warned = True
            self._log.warning(
                "the codec's request is not published: the source cannot publish, or not now",
                source=self._source,
                topic=request.topic,
            )

    def _read(self, records: Records, first: int, wait: Wait) -> Decoded | None:
        """The records with their metadata as values; `None` if the service stopped while the codec waited."""
        tries = 0
        while True:
            try:
                decoding = self.codec.decode(records, self._wanted, first)
                if self._into:
                    decoding = self._into.put(decoding, records, first)
            except ConnectorError as error:
                if not error.retriable:
                    raise
                if tries == 0:
                    self._log.warning("records wait to be decoded", source=self._source, reason=str(error))
                if not wait(pause(tries), str(error)):
                    return None
                tries += 1
                continue
            if tries:
                self._log.info("records are decoded again", source=self._source)
            return decoding if self._time is None else self._time.put(decoding, records, first)

    def _stamps(self, closed: Closed) -> Ints | None:
        self._blocks += 1
        if closed.reason in ("records", "bytes") and self._blocks % LATENCY_SAMPLE:
            return None
        return closed.records.timestamp_column()


def _not_among(first: int, count: int, parts: Iterable[Ints | list[int]]) -> Ints:
    """The others of `count` rows from `first` on: of records that passed by, or hold nothing that would be a row."""
    others = np.ones(count, np.bool_)
    for rows in parts:
        others[np.asarray(rows, np.int64) - first] = False
    return first + np.flatnonzero(others)


def _has_several(batch: Batch) -> bool:
    """Whether the codec made several rows of one record."""
    return batch.row_range is None and bool((batch.rows[1:] == batch.rows[:-1]).any())
