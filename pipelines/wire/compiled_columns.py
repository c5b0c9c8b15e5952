"""The result of a reader of the compiled extension as columns, the same for all formats that it reads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import numpy as np

from pipelines.data.columns import Column, DenseColumn, Mask, RaggedColumn, Rows
from pipelines.data.entries import Entries
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.data.sparsecolumn import SparseColumn, concat, divide, in_form
from pipelines.data.wirecolumn import WireColumn
from pipelines.values.ndarray import NDArrayType, dtype_of
from pipelines.values.valuetype import ValueType

if TYPE_CHECKING:
    from streamer_native import _native

WIRE, MIXED, TEXT, COPIED, BYTES, INTEGER, DOUBLE, NUMBERS, BOOLEAN, DENSE, RAGGED, RARE = range(12)
"""Forms of columns: those of native/src/columnar/core/block.rs, in its order."""

R = TypeVar("R")
Found_co = TypeVar("Found_co", covariant=True)


class Reader(Protocol[Found_co]):
    """A reader of the extension, for one kind of payload and one set of wanted keys."""

    def read(self, buffer: Any, starts: Any, lengths: Any) -> Found_co: ...


class Readers(Generic[R]):
    """The readers for each set of wanted keys, made by `make` of the keys that a payload may have."""

    def __init__(self, make: Callable[[list[str]], R]) -> None:
        self._make = make
        self._made: dict[frozenset[str], R] = {}

    def of(self, wanted: frozenset[str]) -> R:
        """The reader that decodes the values of these keys."""
        reader = self._made.get(wanted)
        if reader is None:
            # Sets of keys come from pipelines; there is one, as a rule.
            if len(self._made) >= _SETS:
                self._made.clear()
            # A key with half of a surrogate pair is no UTF-8, so no payload has it.
            keys = [key for key in wanted if key.isascii() or key.encode(errors="ignore").decode() == key]
            reader = self._made[wanted] = self._make(keys)
        return reader


def joined(native: Any, values: Sequence[Any]) -> Spans:
    """`bytes` in one buffer; of length -1 where there is `None`, -2 where there is anything else."""
    return Spans.of_block(native.join(values if type(values) is list else list(values)), len(values))


def read_spans(reader: Reader[R], spans: Spans) -> tuple[Spans, R]:
    """The spans that were read, copied if their arrays were not contiguous, and the reader's result for them."""
    try:
        return spans, reader.read(spans.buffer, spans.starts, spans.lengths)
    except (BufferError, ValueError):
        contiguous = Spans(*map(np.ascontiguousarray, (spans.buffer, spans.starts, spans.lengths)))
        if all(getattr(contiguous, part) is getattr(spans, part) for part in Spans.__slots__):
            raise
        return contiguous, reader.read(contiguous.buffer, contiguous.starts, contiguous.lengths)


class FoundColumns:
    """The columns of a block that the extension made of the records in `spans`."""

    def __init__(self, spans: Spans, result: _native.Found) -> None:
        self._spans = spans
        block, self.size, lines, (rare, count), odd, self.parts = result
        self._block = memoryview(block)
        self._table: Any = np.ndarray((lines, self.size), np.int64, self._block)
        self.odd: list[int] = odd or []
        """Positions of the records that are left to plain Python, rising."""
        self._rare_rows: list[int] = []
        self._rare_values: list[bytes | None] = []
        if count:
            table: Any = np.ndarray((3, count), np.int64, self._block, rare)
            self._rare_rows = table[0].tolist()
            self._rare_values = Spans(spans.buffer, table[1], table[2]).tolist()

    @property
    def rows(self) -> Rows:
        """Positions of the records that the rows came from, `int64`, never falling."""
        rows: Rows = self._table[0]
        return rows

    def undecoded(self, part: _native.Part) -> Spans:
        """The undecoded values of a part that is `WIRE` or `MIXED`, one a row."""
        line = part[2]
        return Spans(self._spans.buffer, self._table[line], self._table[line + 1])

    def filled(self, part: _native.Part) -> Rows:
        """The rows that have the key."""
        if part[1] == RARE:
            return np.array(self._rare_rows[self._rare_places(part)], np.int64)
        present = self._flags(part[3])
        return np.arange(self.size) if present is None else np.flatnonzero(present)

    def column(self, part: _native.Part, decoder: Callable[[Entries], Column]) -> Column:
        """The column of a part that is not `MIXED`. Undecoded values are left to `decoder`."""
        _, form, line, mask, whole, _, element, shape, total, offset, splits = part
        if form == RARE:
            place = self._rare_places(part)
            return SparseColumn(self.size, self._rare_rows[place], WireColumn(self._rare_values[place], decoder))
        present = self._flags(mask)
        if form == WIRE:
            return WireColumn(self.undecoded(part), decoder, present)
        if form == TEXT:
            return SpansColumn(self.undecoded(part), ValueType.STRING, present)
        if form == COPIED:
            texts = Spans(self._array((total,), np.uint8, offset), self._table[line], self._table[line + 1])
            return SpansColumn(texts, ValueType.STRING, present)
        if form == BYTES:
            return SpansColumn(self.undecoded(part), ValueType.BYTES, present)
        if form == INTEGER:
            return DenseColumn(self._table[line], ValueType.INT64, present)
        if form == DOUBLE:
            return DenseColumn(self._table[line].view(np.float64), ValueType.DOUBLE, present)
        if form == NUMBERS:
            return NumbersColumn(
                self._table[line].view(np.float64), self._array((self.size,), np.bool_, whole), present
            )
        if form == BOOLEAN:
            return DenseColumn(self._array((self.size,), np.bool_, offset), ValueType.BOOLEAN, present)
        if form == DENSE:
            array = self._array((self.size, *shape), DTYPES[element], offset)
            return DenseColumn(array, ValueType.NDARRAY, present)
        samples = self._array((total, *shape), DTYPES[element], offset)
        return RaggedColumn(samples, self._array((self.size + 1,), np.int64, splits), present)

    def present(self, part: _native.Part) -> Mask | None:
        """Which rows have the key of a part that is not `RARE`; `None`: all have it."""
        return self._flags(part[3])

    def whole(self, part: _native.Part) -> Mask | None:
        """Which rows of lists are lists of integers, where others are not, `bool (N,)`; `None`: they are all alike."""
        return self._flags(part[4])

    def in_order(self, others: Mapping[str, Column], positions: Rows) -> dict[str, tuple[int, int]]:
        """Each key's first record and its place in that, also of the columns that were read of the odd records.

        `positions` are the positions of the records that the rows of `others` came from.
        """
        places = {part[0]: (part[5], place) for place, part in enumerate(self.parts)}
        for place, (key, column) in enumerate(others.items()):
            first = int(positions[next(iter(column.positions()), 0)])
            places[key] = min(places.get(key, (sys.maxsize, 0)), (first, place))
        return places

    def _rare_places(self, part: _native.Part) -> slice:
        return slice(part[9], part[9] + part[8])

    def _flags(self, offset: int) -> Mask | None:
        return None if offset < 0 else self._array((self.size,), np.bool_, offset)

    def _array(self, shape: tuple[int, ...], dtype: Any, offset: int) -> Any:
        return np.ndarray(shape, dtype, self._block, offset)


def together(
    parts: Sequence[Mapping[str, Column]],
    rows: Sequence[Rows],
    places: Mapping[str, tuple[int, int]],
    wanted: frozenset[str],
) -> tuple[dict[str, Column], Rows, Rows]:
    """The parts that the extension and plain Python read, in the order of the records: columns, positions, the order.

    `rows` are the positions of the records of each part; `places` says where keys come first (`FoundColumns.in_order`).
    """
    positions = np.concatenate(rows)
    order = np.argsort(positions, kind="stable")
    columns = concat(parts, [len(positions) for positions in rows])
    (ordered,) = divide({key: columns[key] for key in sorted(columns, key=places.__getitem__)}, [order])
    return in_form(ordered, len(order), wanted), positions[order], order


DTYPES: Final = {int(element): dtype for element in NDArrayType if (dtype := dtype_of(element)) is not None}
_SETS: Final = 64
