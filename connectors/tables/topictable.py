"""`TopicTable`: the records of a topic as rows of a table, read on any bus that can be browsed."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from connectors.blockcolumns import lengths
from connectors.browser import TopicReader
from connectors.codec import Codec
from connectors.codecs.registry import anchored, codec_of
from connectors.metadata.bytetypes import ByteType, read_bytes
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING
from pipelines.data.data import Data
from pipelines.errors import ConnectorError, StreamerError, WireError
from pipelines.plugins.tables import TableRows

if TYPE_CHECKING:
    from connectors.tables.config import TopicTableConfig

LOOK: Final = 30.0
"""Seconds between two looks whether the bus answers, and the topic is still the same."""
_GROUP: Final = "streamer-tables"
"""A reader needs the name of a group; nothing is committed, so that none is made."""


class TopicTable:
    """Reads all partitions of a topic from their first records on. A `pipelines.plugins.tables.TableReader`."""

    def __init__(self, config: TopicTableConfig, columns: Sequence[str], base: Path) -> None:
        """`columns` are keys of values, or, where no value has that key, `limits.max`: the key `max` in `limits`."""
        self._config = config
        self._columns = columns
        self._codec: Codec = codec_of(anchored(config.codec, base))
        self._wanted = frozenset(name for column in columns for name in (column, column.partition(".")[0]))
        self._stack = ExitStack()
        self._reader: TopicReader
        self._next: dict[int, int] = {}
        self._id = ""
        self._looked = 0.0
        self.total = 0

    def __enter__(self) -> Self:
        browser = self._config.browser(self._config.properties)
        if browser is None or not browser.topics_end:
            raise StreamerError(f"topics of {self._config.type} cannot be read to their end, as tables have to be")
        self._reader = self._stack.enter_context(browser.reader(self._config.topic, _GROUP))
        try:
            self._id = self._reader.topic_id()
            firsts, ends = self._reader.range()
            self.total = sum(end - firsts[number] for number, end in ends.items())
            self._reader.begin(firsts)
            self._next = dict(firsts)
            self._looked = time.monotonic()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def at_end(self) -> bool:
        return self._reader.at_end

    def poll(self, timeout: float) -> TableRows:
        if time.monotonic() - self._looked > LOOK:
            self._look()
            self._looked = time.monotonic()
        records = self._reader.poll(timeout)
        if not len(records):
            return _NONE
        for span, partition in zip(records.spans, records.partitions, strict=True):
            self._next[partition] = int(records.positions[span.stop - 1]) + 1
        return rows_of(records, self._columns, self._codec, self._wanted, self._config.key)

    def _look(self) -> None:
        """Raise `ConnectorError` if the bus does not answer, or the topic is another one: a client is silent then."""
        if self._reader.partitions_now() != self._reader.partitions:
            raise ConnectorError(f'topic "{self._config.topic}" has other partitions than before', retriable=True)
        ends = self._reader.starts("latest")
        if any(end < self._next.get(number, 0) for number, end in ends.items()):
            raise ConnectorError(f'topic "{self._config.topic}" has fewer records than before', retriable=True)
        now = self._reader.topic_id()
        if now and self._id and now != self._id:
            raise ConnectorError(f'topic "{self._config.topic}" was deleted and created again', retriable=True)
        self._id = self._id or now


def rows_of(records: Records, columns: Sequence[str], codec: Codec, wanted: frozenset[str], key: ByteType) -> TableRows:
    """What these records say about the rows of their table; their keys have the type `key`."""
    decoded = codec.decode(records, wanted)
    failed = dict(decoded.failed)
    counts = np.bincount(decoded.batch.rows, minlength=len(records))
    for place in np.flatnonzero(counts > 1).tolist():
        failed[place] = WireError(f"the payload has {counts[place]} rows, and a record of a table is one row")
    return TableRows(
        _keys(records, key),
        {name: _cells(decoded.batch, name, len(records), failed) for name in columns},
        lengths(records.values).tolist(),
        # Tombstones, and payloads that hold no row.
        frozenset(np.flatnonzero(counts == 0).tolist()) - failed.keys(),
        failed,
    )


def _keys(records: Records, key: ByteType) -> Sequence[Hashable]:
    if records.keys is None:
        return [None] * len(records)
    misread: dict[int, WireError] = {}
    values = read_bytes(records.keys, key, "the key", misread).values()
    return [None if value is MISSING else value for value in values]


def _cells(batch: Batch, name: str, count: int, failed: dict[int, Exception]) -> list[Any]:
    """The values of a column, by the place of their record among all `count`."""
    cells: list[Any] = [MISSING] * count
    key, path = (name, ()) if name in batch or "." not in name else _parted(name)
    if key not in batch:
        return cells
    # The number of a row is the place of its record.
    places = batch.rows.tolist()
    wrong: dict[int, Exception] = {}
    for row, value in batch[key].cells(wrong):
        for part in path:
            value = value.get(part, MISSING) if isinstance(value, Data) else MISSING
        # An array may be a part of the memory of all records.
        cells[places[row]] = value.copy() if isinstance(value, np.ndarray) else value
    failed |= {places[row]: error for row, error in wrong.items()}
    return cells


def _parted(name: str) -> tuple[str, tuple[str, ...]]:
    key, *path = name.split(".")
    return key, tuple(path)


_NONE: Final = TableRows()
