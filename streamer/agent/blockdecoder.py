"""`BlockDecoder`: the records of one source to batches, with numbers for their rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from connectors.blockcolumns import where_null
from connectors.codec import Codec, Decoded
from connectors.records import Ints, Records
from pipelines.data.batch import Batch
from pipelines.errors import ConnectorError, StepError
from streamer.agent.decodedbatch import SOURCE_BITS, DecodedBatch
from streamer.batching.batcher import Closed
from streamer.batching.pictures import in_parts
from streamer.delivery.sending import pause

LATENCY_SAMPLE = 8
"""Of full-sized batches every eighth has its latency measured: reading timestamps costs 0.1 us a record."""


class BlockDecoder:
    """Decodes blocks of records, in the intake thread of their source."""

    def __init__(
        self,
        source: str,
        codec: Codec,
        *,
        index: int,
        wanted: frozenset[str] | None,
        enrich: Callable[[Batch, Records, int], Batch] | None,
        pixels: int | None,
        opens_images: bool,
        wait: Callable[[float, str], bool],
        log: Any,
    ) -> None:
        """`source` and `index`: the name and the number of the source.

        `wanted`: the keys that the pipeline reads, `None` for all. `enrich` adds metadata to a decoded batch. `pixels`:
        how many pixels one batch may have, `None` for any number.

        `wait(seconds, reason)` is called while the codec can decode no record at all, for lack of a schema for
        example. It returns `False` if the service stops.
        """
        self.codec = codec
        self._source = source
        self._next_row = index << SOURCE_BITS
        self._wanted = wanted
        self._enrich = enrich
        self._pixels = pixels
        self._opens_images = opens_images
        self._wait = wait
        self._log = log
        self._blocks = 0

    def decoded(self, closed: Closed) -> deque[DecodedBatch] | None:
        """The batch; in parts if its images are too large to be run together.

        `None` if the service stopped while the codec waited: the records come again in its next run. Raises
        `ConnectorError` if waiting is no use.
        """
        records = closed.records
        count, first = len(records), self._next_row
        self._next_row += count
        found = self._read(records, first)
        if found is None:
            return None
        batch = found.batch if self._enrich is None else self._enrich(found.batch, records, first)
        failed = {row: StepError.of("decode", error) for row, error in found.failed.items()} if found.failed else {}
        tombstones: list[int] = []
        if batch.size + len(failed) < count or batch.row_range is None:
            # A codec may make several rows of one record.
            tombstones = [first + row for row in where_null(records.values) if row not in records.faults]
        decoded = DecodedBatch(self._source, records, first, batch, failed, tombstones, self._stamps(closed))
        return deque(
            [decoded] if self._pixels is None else in_parts(decoded, self._pixels, undecoded=self._opens_images)
        )

    def _read(self, records: Records, first: int) -> Decoded | None:
        tries = 0
        while True:
            try:
                found = self.codec.decode(records, self._wanted, first)
            except ConnectorError as error:
                if not error.retriable:
                    raise
                if tries == 0:
                    self._log.warning("records wait to be decoded", source=self._source, reason=str(error))
                if not self._wait(pause(tries), str(error)):
                    return None
                tries += 1
                continue
            if tries:
                self._log.info("records are decoded again", source=self._source)
            return found

    def _stamps(self, closed: Closed) -> Ints | None:
        self._blocks += 1
        if closed.reason in ("records", "bytes") and self._blocks % LATENCY_SAMPLE:
            return None
        return closed.records.timestamp_column()
