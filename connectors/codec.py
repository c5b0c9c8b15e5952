"""`Codec`: payload bytes to columns, and back. The only place that touches payload bytes."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from connectors.measures import Measure
from connectors.records import Header, Ints, Records
from connectors.source import Served
from pipelines.data.batch import NO_TIMESTAMP, Batch
from pipelines.data.data import RecordContext
from pipelines.data.record import RecordPlaces, objects
from pipelines.data.rowrange import RowRange, row_range
from pipelines.hotpath import NO_COMPILED_FORM, HotPathReport


@dataclass(frozen=True, slots=True)
class Decoded:
    """A block of records, decoded.

    `batch` holds the rows that could be decoded, `failed` the errors of the others by row number. Rows without a
    payload (tombstones) are in neither: the `tombstones` field of the source decides about them.
    """

    batch: Batch
    failed: Mapping[int, Exception]
    samples: Ints | None = None
    """How many samples for a model each row of `batch` brings, `int64 (N,)`, where payloads say that: it counts as so
    many records of `batch.max_records`. `None`: each row is one."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A batch, encoded: `values[i]` is the payload of row i of the batch, `None` if `failed` names position i.

    Payloads are bytes, or objects if the codec's configuration says so (`CodecConfig.carries`).

    `headers[i]` are headers that describe the payload of message i, such as `content-encoding`; `None` if no payload
    needs any. They replace headers of the record that have the same names.
    """

    values: Sequence[Any]
    failed: Mapping[int, Exception]
    headers: Sequence[Sequence[Header]] | None = None


@dataclass(frozen=True, slots=True)
class RecordsOrigin:
    """The records behind row numbers `first`, `first + 1`, ... (a `pipelines.data.batch.Origin`)."""

    records: Records
    first: int
    asks: Sequence[Any] | None = None
    """What each of these records asks of the message that answers it, an object of the codec that has read it: a
    request of the Open Inference Protocol names the outputs that it wants, for example. `None`: none asks for
    anything."""

    def with_asks_of(self, part: RecordsOrigin, places: Sequence[int]) -> RecordsOrigin:
        """The same, with what the records of `part` ask, which are those at these places of this block."""
        if part.asks is None:
            return self
        asks = [None] * len(self.records) if self.asks is None else list(self.asks)
        for place, ask in zip(places, part.asks, strict=True):
            asks[place] = ask
        return RecordsOrigin(self.records, self.first, asks)

    def part(self, records: Records, start: int) -> RecordsOrigin:
        """The origin of the block that these `records` are, which begin at place `start` of this one."""
        asks = None if self.asks is None else self.asks[start : start + len(records)]
        return RecordsOrigin(records, self.first + start, asks)

    def of_payloads(self, records: Records, names: Container[str]) -> RecordsOrigin:
        """The origin of records whose payloads held those of this one, without the headers of these lower-case names.

        So results do not have the headers that describe the envelope, nor those that describe the payload inside of it.
        """
        bare = self.records.with_values(records.values).without_headers(names)
        return RecordsOrigin(bare, self.first, self.asks)

    @property
    def rows(self) -> RowRange:
        """The numbers of all these records' rows."""
        return row_range(self.first, len(self.records))

    def record(self, row: int) -> RecordContext | None:
        """The context of this row's record; `None` if the row is not of this block."""
        index = row - self.first
        return self.records.context(index) if 0 <= index < len(self.records) else None

    def places(self, rows: Ints, *, keys: bool = True) -> RecordPlaces:
        """Where these rows' records came from; some may not be of this block."""
        at = rows - self.first
        inside = (at >= 0) & (at < len(self.records))
        if inside.all():
            return self.records.record_places(at, keys=keys)
        part = self.records.record_places(at[inside], keys=keys)
        numbers = np.full(len(rows), len(part.places), np.int64)
        offsets, keys_of = np.zeros(len(rows), np.int64), np.full(len(rows), None, object)
        numbers[inside], offsets[inside], keys_of[inside] = part.numbers, part.offsets, part.keys
        return RecordPlaces(objects([*part.places.tolist(), None]), numbers, offsets, keys_of)

    def timestamps(self, rows: Ints) -> Ints:
        """The timestamps of these rows' records; `NO_TIMESTAMP` for rows that are not of this block."""
        stamps, places = self.records.timestamp_column(), rows - self.first
        inside = (places >= 0) & (places < len(stamps))
        if inside.all():
            return stamps[places]
        known = np.full(len(rows), NO_TIMESTAMP, np.int64)
        known[inside] = stamps[places[inside]]
        return known


@dataclass(frozen=True, slots=True)
class Request:
    """A message that a codec wants published on the bus of its source.

    For example one that asks a device to describe itself again.
    """

    topic: str
    payload: bytes


def failure_document(batch: Batch, row: int) -> bytes:
    """The error and the step of a failed record as JSON: `{"error": TEXT, "step": NAME}`."""
    return json.dumps({key: batch[key][row] for key in ("error", "step")}, ensure_ascii=False).encode()


class Codec(ABC):
    """Turns payloads into rows and rows into payloads. Stateless as far as users can see; one per connector.

    A payload that cannot be decoded fails its own row (`WireError`) and no other. Payloads are hostile:
    sizes, depths and counts are limited, and nothing in them is ever executed.

    A schema registry that does not answer, or anything else that is missing for every record, is no failure of records:
    `decode` and `encode` raise a `ConnectorError`. If it is retriable, the service waits and calls again with the same
    records; else it stops.
    """

    opens_images: ClassVar[bool] = True
    """Whether `encode` may decode images that no step has decoded: then they count in `limits.pixels`."""

    @abstractmethod
    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """Read the payloads of these records into columns; `origin` of the batch is set.

        Args:
            records: N records. Tombstones (payload `None`) are left out of the result.
            wanted: Keys that the pipeline will read: they are decoded and checked now, so that errors in them fail
                here; others may stay undecoded (`WireColumn`). `None`: not known.
            first: The number of the first record's row; row i of the block has number `first + i`.

        Raises:
            ConnectorError: Something is missing for every record, such as a schema registry that does not answer.
        """

    @abstractmethod
    def encode(self, batch: Batch) -> Encoded:
        """Write each row of the batch, with all its columns, into one payload.

        Raises:
            ConnectorError: Something is missing for every row, such as a schema registry that does not answer.
        """

    def encode_failures(self, batch: Batch) -> Encoded:
        """Write the answers for records that failed: as results with the texts `error` and `step`, if not overridden.

        Rows that are in `failed` of what it returns are written as JSON.
        """
        return self.encode(batch)

    def serves(self, served: Served) -> None:
        """Called once by a service, before all others, for codecs that check payloads against its pipeline."""

    @property
    def hot_path(self) -> HotPathReport:
        """Which hot path it takes, and why it is plain Python if it is."""
        return NO_COMPILED_FORM

    def metrics(self) -> Sequence[Measure]:
        """Its own counters and gauges, for `/metrics`; the same ones at each call, from any thread."""
        return ()

    def requests(self) -> Sequence[Request]:
        """The messages to publish on the bus of its source, since the last call. Cheap if there are none.

        Called after each `decode`, by the same thread. Each message is published at most once, so a codec asks again
        for an answer that does not come. Sources that cannot publish ignore them.
        """
        return ()
