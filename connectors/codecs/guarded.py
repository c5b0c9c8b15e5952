"""`Guarded`: an exception of a codec fails a record, and never ends the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from connectors.blockcolumns import where_null
from connectors.codec import Codec, Decoded, Encoded, RecordsOrigin, Request
from connectors.measures import Measure
from connectors.records import Header, Ints, Records
from connectors.source import Served
from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.data.data import RecordContext
from pipelines.errors import RAISED, ConnectorError, DataError, RowsFailed, WireError, blamed
from pipelines.executors.isolation import concatenated, isolated, isolated_rows
from pipelines.hotpath import HotPathReport


class Guarded(Codec):
    """Wraps a codec, ours or a plug-in's, so that a record that it cannot read or write fails alone.

    When `decode` or `encode` raises an exception instead of naming failed rows, the rows to blame are found by halving
    the block or batch (`pipelines.executors.isolation`), so the codec is called again with parts of it. The record's
    error has topic, partition and offset, and the exception. A `ConnectorError`, which concerns every record, is passed
    on, and so is `KeyboardInterrupt`. Rows that the source found to be wrong (`Records.faults`) fail with
    its error, and the codec does not see them.
    """

    def __init__(self, codec: Codec, name: str) -> None:
        """`name` is the codec's name in errors."""
        self.codec = codec
        self._name = name

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """As `Codec.decode`."""
        if records.faults:
            return self._decoded_without_faults(records, wanted, first)
        try:
            decoded = self.codec.decode(records, wanted, first)
        except ConnectorError:
            raise
        except RAISED:  # The rows are decoded apart below, to find the record to blame.
            decoded = self._decoded_apart(records, wanted, first)
        if not decoded.failed:
            return decoded
        failed = {row: self._wrap(error, lambda: records.context(row - first)) for row, error in decoded.failed.items()}  # noqa: B023
        return Decoded(decoded.batch, failed, decoded.samples)

    def encode(self, batch: Batch) -> Encoded:
        """As `Codec.encode`."""
        try:
            encoded = self.codec.encode(batch)
        except ConnectorError:
            raise
        except RAISED:  # As in `decode`.
            encoded = self._encoded_apart(batch)
        if not encoded.failed:
            return encoded
        failed = {at: self._wrap(error, lambda: _record(batch, at)) for at, error in encoded.failed.items()}  # noqa: B023
        return Encoded(encoded.values, failed, encoded.headers)

    def encode_failures(self, batch: Batch) -> Encoded:
        """As `Codec.encode_failures`; if the codec raises, it cannot write any."""
        try:
            return self.codec.encode_failures(batch)
        except ConnectorError:
            raise
        except RAISED as error:
            return Encoded([None] * batch.size, dict.fromkeys(range(batch.size), blamed(error)))

    def serves(self, served: Served) -> None:
        """As `Codec.serves`, of the wrapped codec."""
        self.codec.serves(served)

    @property
    def opens_images(self) -> bool:  # type: ignore[override]
        """Whether the wrapped codec opens images."""
        return self.codec.opens_images

    @property
    def hot_path(self) -> HotPathReport:
        """The hot path of the wrapped codec."""
        return self.codec.hot_path

    def metrics(self) -> Sequence[Measure]:
        """The metrics of the wrapped codec."""
        return self.codec.metrics()

    def requests(self) -> Sequence[Request]:
        """The requests of the wrapped codec."""
        return self.codec.requests()

    def _decoded_without_faults(self, records: Records, wanted: frozenset[str] | None, first: int) -> Decoded:
        sound = np.setdiff1d(np.arange(len(records)), np.array(list(records.faults), np.int64))
        decoded = self.decode(records.take(sound), wanted)
        failed = {first + row: error for row, error in records.faults.items()}
        failed.update((first + int(sound[row]), error) for row, error in decoded.failed.items())
        batch = decoded.batch.numbered(first + sound[decoded.batch.rows], None)
        origin = _origin(records, first, [(sound, decoded.batch)])
        return Decoded(batch.with_origin(origin), failed, decoded.samples)

    def _decoded_apart(self, records: Records, wanted: frozenset[str] | None, first: int) -> Decoded:
        # Records without a payload are not given to the codec again: there is nothing to decode.
        places = np.setdiff1d(np.arange(len(records)), np.array(where_null(records.values), np.int64))

        everyones: list[ConnectorError] = []

        def run(rows: Rows | None) -> tuple[Ints, Decoded]:
            numbers = places if rows is None else places[rows]
            try:
                return numbers, self.codec.decode(records.take(numbers), wanted)
            except RowsFailed as error:
                raise next(iter(error.failures.values())) from error
            except ConnectorError as error:
                everyones.append(error)
                raise

        parts, raised = isolated(len(places), run)
        if everyones:
            raise everyones[0]
        failed = {first + int(places[position]): error for position, error in raised.items()}
        batches: list[Batch] = []
        for numbers, decoded in parts:
            failed.update((first + int(numbers[row]), error) for row, error in decoded.failed.items())
            batches.append(decoded.batch.numbered(first + numbers[decoded.batch.rows], None))
        batch = concatenated(batches)
        origin = _origin(records, first, [(numbers, decoded.batch) for numbers, decoded in parts])
        samples = [decoded.samples for _, decoded in parts if decoded.samples is not None]
        whole = bool(parts) and len(samples) == len(parts)
        return Decoded(batch.with_origin(origin), failed, np.concatenate(samples) if whole else None)

    def _encoded_apart(self, batch: Batch) -> Encoded:
        everyones: list[ConnectorError] = []

        def run(parts: Sequence[Batch]) -> tuple[Ints, Encoded]:
            part, places = parts
            try:
                return places.rows, self.codec.encode(part)
            except ConnectorError as error:
                everyones.append(error)
                raise
            except RowsFailed as error:
                if error.of is not None:
                    raise
                # The codec counts the rows of this error in its own way, so the rows of the batch are not known.
                raise next(iter(error.failures.values())) from error

        encoded_parts, failed = isolated_rows([batch, Batch({}, batch.size)], run)
        if everyones:
            raise everyones[0]
        values: list[bytes | None] = [None] * batch.size
        headers: list[Sequence[Header]] = [()] * batch.size
        for places, encoded in encoded_parts:
            for place, value in zip(places.tolist(), encoded.values, strict=True):
                values[place] = value
            for place, row_headers in zip(places.tolist(), encoded.headers or (), strict=False):
                headers[place] = row_headers
            failed.update((int(places[at]), error) for at, error in encoded.failed.items())
        return Encoded(values, failed, headers if any(headers) else None)

    def _wrap(self, error: Exception, record: Callable[[], RecordContext | None]) -> Exception:
        """The error of a record, as users see it.

        Unchanged if the codec raised it for bad data, else with the name of the exception and the place of the record.
        """
        if isinstance(error, (WireError, DataError)):
            return error
        wire_error = WireError(f"{_where(record())}the codec {self._name} raised {type(error).__name__}: {error}")
        wire_error.__cause__ = error
        return wire_error


def _origin(records: Records, first: int, parts: Sequence[tuple[Ints, Batch]]) -> RecordsOrigin:
    """The origin of all these records, of which parts were decoded alone: at which places, and the batch of each."""
    whole = RecordsOrigin(records, first)
    for places, batch in parts:
        if isinstance(batch.origin, RecordsOrigin):
            whole = whole.with_asks_of(batch.origin, places.tolist())
    return whole


def _record(batch: Batch, position: int) -> RecordContext | None:
    parents = batch.parents(position)
    return None if batch.origin is None or not len(parents) else batch.origin.record(int(parents[0]))


def _where(record: RecordContext | None) -> str:
    if record is None:
        return ""
    return f"topic {record.topic}, partition {record.partition}, offset {record.offset}: "
