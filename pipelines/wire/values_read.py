"""Map entries of one key to a column of values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from pipelines.data.columns import MISSING, Column, DenseColumn, RaggedColumn, Rows
from pipelines.errors import DataError, WireError
from pipelines.values.valuetype import ValueType
from pipelines.wire.entries import ReadOptions
from pipelines.wire.layouts import Layout, learn
from pipelines.wire.protobuf import UNKNOWN, value_of
from protos import data_pb2 as pb

MAX_LAYOUTS: Final = 4096
"""Sizes of entries, of all keys together, whose layouts are remembered."""


class ReadValues(NamedTuple):
    """What became of N entries of one key."""

    column: Column
    """N rows; the key is missing where there was no entry, or none that could be read."""
    failed: dict[int, WireError]
    """Row to what is wrong with its value."""
    odd: list[int]
    """Rows whose entry is not well-formed, or of another key after all."""


def read_values(key: str, entries: Sequence[bytes | None], options: ReadOptions) -> ReadValues:
    """The column of these entries, each a plainly framed map entry or `None`.

    It is dense or ragged where the values allow it (see `pipelines.data.columns`). Values of a type that is not known
    are missing, as in `pipelines.wire.protobuf.decode`.
    """
    column = _alike(key, entries)
    if column is not None:
        return ReadValues(column, {}, [])
    reading = _Reading(key, entries, options)
    for rows in _by_size(entries, reading.read_texts()):
        reading.read(rows)
    return ReadValues(reading.column(), reading.failed, reading.odd)


def _alike(key: str, entries: Sequence[bytes | None]) -> DenseColumn | None:
    """The column of entries that all have the layout that their first had when it was last seen; else `None`."""
    size = len(entries[0] or b"") if entries else 0
    known = _LAYOUTS.get((key, size))
    if not known or known[0].type is ValueType.STRING or None in entries:
        return None
    whole: Any = entries
    if set(map(len, whole)) != {size}:
        return None
    values, fits = known[0].read(whole)
    return DenseColumn(values, known[0].type) if fits is None or fits.all() else None


class _Piece(NamedTuple):
    rows: Rows
    layout: Layout
    values: npt.NDArray[Any]


class _Reading:
    def __init__(self, key: str, entries: Sequence[bytes | None], options: ReadOptions) -> None:
        self.failed: dict[int, WireError] = {}
        self.odd: list[int] = []
        self._key = key
        self._entries = entries
        self._options = options
        self._pieces: list[_Piece] = []
        self._others: dict[int, Any] = {}

    def read_texts(self) -> list[int] | None:
        """Read the strings among the entries if they begin with one; the rows left to read, `None` for all.

        Strings differ in size, and a size at a time would be a few of them at a time.
        """
        if not self._is_text(self._entries[0] if self._entries else None):
            return None
        left = []
        for row, entry in enumerate(self._entries):
            if entry is None:
                continue
            for layout in _LAYOUTS.get((self._key, len(entry)), ()):
                text = layout.text(entry)
                if text is not None:
                    self._others[row] = text
                    break
            else:
                left.append(row)
        return left

    def read(self, rows: Rows) -> None:
        """Read entries of equal size: by the layouts that are known, else one by one, learning from them."""
        place = (self._key, len(self._entry(rows[0])))
        known = _LAYOUTS.get(place)
        for layout in known or ():
            rows = self._by_layout(layout, rows)
            if not len(rows):
                return
        # What is met for the first time and stands alone may never be met again.
        lessons = _LESSONS if known is not None or len(rows) > 1 else 0
        if known is None:
            _remember(place, ())
        while len(rows):
            row = int(rows[0])
            value = self._one(row)
            if value is not MISSING and lessons:
                lessons -= 1
                learned = learn(self._key, self._entry(row))
                if learned is not None:
                    known = (learned, *(known or ()))[:_LAYOUTS_OF_A_SIZE]
                    _remember(place, known)
                    rows = self._by_layout(learned, rows)
                    continue
            if value is not MISSING:
                self._others[row] = value
            rows = rows[1:]

    def column(self) -> Column:
        """All that was read, together."""
        kinds = {(piece.layout.type, piece.layout.dtype, piece.layout.shape) for piece in self._pieces}
        if len(kinds) == 1 and not self._others:
            return self._dense()
        if self._is_ragged():
            return self._ragged()
        values: list[Any] = [MISSING] * len(self._entries)
        for piece in self._pieces:
            for row, value in zip(piece.rows.tolist(), _natives(piece), strict=True):
                values[row] = value
        for row, value in self._others.items():
            values[row] = value
        return Column.of(values)

    def _dense(self) -> DenseColumn:
        total, first = len(self._entries), self._pieces[0]
        if len(first.rows) == total:
            return DenseColumn(first.values, first.layout.type)
        array = np.zeros((total, *first.values.shape[1:]), first.values.dtype)
        present = np.zeros(total, np.bool_)
        for piece in self._pieces:
            array[piece.rows] = piece.values
            present[piece.rows] = True
        return DenseColumn(array, first.layout.type, None if present.all() else present)

    def _is_ragged(self) -> bool:
        """Whether all rows have arrays that differ in their first axis only."""
        layouts = [piece.layout for piece in self._pieces]
        return (
            sum(len(piece.rows) for piece in self._pieces) == len(self._entries)
            and all(layout.shape for layout in layouts)
            and len({(layout.dtype, layout.shape[1:]) for layout in layouts}) == 1
        )

    def _ragged(self) -> Column:
        parts = []
        for piece in self._pieces:
            count, samples, *inner = piece.values.shape
            splits = np.arange(count + 1, dtype=np.int64) * samples
            parts.append(RaggedColumn(piece.values.reshape(count * samples, *inner), splits))
        return Column.concat(parts).take(np.argsort(np.concatenate([piece.rows for piece in self._pieces])))

    def _by_layout(self, layout: Layout, rows: Rows) -> Rows:
        """Read what has this layout; the rows that have not."""
        every = len(rows) == len(self._entries)
        entries: Any = self._entries if every else [self._entries[row] for row in rows.tolist()]
        if layout.type is ValueType.STRING:
            texts = [layout.text(entry) for entry in entries]
            self._others.update((row, text) for row, text in zip(rows.tolist(), texts, strict=True) if text is not None)
            return rows[[text is None for text in texts]]
        values, fits = layout.read(entries)
        if fits is None or fits.all():
            self._pieces.append(_Piece(rows, layout, values))
            return rows[:0]
        if fits.any():
            self._pieces.append(_Piece(rows[fits], layout, values[fits]))
        return rows[~fits]

    def _one(self, row: int) -> Any:
        scheme = self._scheme(self._entry(row))
        if scheme is None:
            self.odd.append(row)
            return MISSING
        try:
            value = value_of(scheme, self._options.limits, float_lists=self._options.float_lists)
        except (WireError, DataError) as error:
            self.failed[row] = WireError(f'key "{self._key}" cannot be read: {error}')
            return MISSING
        return MISSING if value is UNKNOWN else value

    def _scheme(self, entry: bytes) -> pb.DataScheme | None:
        try:
            items = pb.DataMap.FromString(entry).mapItems
        except DecodeError:
            return None
        return items.get(self._key)

    def _is_text(self, entry: bytes | None) -> bool:
        known = _LAYOUTS.get((self._key, len(entry))) if entry is not None else None
        return bool(known) and known[0].type is ValueType.STRING  # type: ignore[index]

    def _entry(self, row: int) -> bytes:
        entry = self._entries[row]
        assert entry is not None
        return entry


def _by_size(entries: Sequence[bytes | None], rows: Sequence[int] | None) -> Iterator[Rows]:
    """Rows of entries of equal size, out of `rows` (`None`: all that there are)."""
    if rows is None and None not in entries and len(set(map(len, entries))) == 1:  # type: ignore[arg-type]
        yield np.arange(len(entries), dtype=np.int64)
        return
    sizes: dict[int, list[int]] = {}
    for row in range(len(entries)) if rows is None else rows:
        entry = entries[row]
        if entry is not None:
            sizes.setdefault(len(entry), []).append(row)
    for same in sizes.values():
        yield np.array(same, np.int64)


def _natives(piece: _Piece) -> list[Any]:
    if piece.layout.type is ValueType.NDARRAY:
        # Not `list`: iterating makes scalars of arrays of rank 0.
        return [piece.values[index, ...] for index in range(len(piece.values))]
    natives: list[Any] = piece.values.tolist()
    return natives


def _remember(place: tuple[str, int], layouts: tuple[Layout, ...]) -> None:
    # Forgetting all of it costs little, and keys and sizes may come from strangers.
    if len(_LAYOUTS) >= MAX_LAYOUTS and place not in _LAYOUTS:
        _LAYOUTS.clear()
    _LAYOUTS[place] = layouts


# By key and size of the entry. What was learned is true of any message, so all threads share it; each step on the
# dictionary is atomic, and the worst of a race is to learn twice.
_LAYOUTS: dict[tuple[str, int], tuple[Layout, ...]] = {}
# Producers differ in the order of the fields in an entry, so a size may have some layouts, but not many.
_LAYOUTS_OF_A_SIZE = 4
_LESSONS = 2
