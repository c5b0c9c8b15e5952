"""`SparseColumn`: a key that few rows of a batch have; making, dividing and joining columns of such keys.

Records may have keys of their own, thousands in one batch. Columns with a place for every row would cost rows times
keys; here a key costs as much as its values, in a batch of any size. Most code does not see the difference: `decoded`
gives a column of an ordinary form.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import MISSING, Column, Mask, ObjectColumn, Rows
from pipelines.data.oddcolumn import column_with_odd
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import RowsFailed
from pipelines.values.oddvalue import OddValue

K = TypeVar("K")

RARE: Final = 8
"""A key is rare if fewer than one row in eight has it."""


def is_rare(count: int, size: int) -> bool:
    """Whether a key that `count` of `size` rows have is rare, and so is kept in a `SparseColumn`."""
    return count * RARE < size


class SparseColumn(Column):
    """The values of the few rows that have the key; they may be undecoded.

    `rows` are the positions of these rows, rising, in a column of `size` rows; `column` has a row for each of them.
    """

    __slots__ = ("_decoded", "_size", "column", "rows")

    def __init__(self, size: int, rows: Sequence[int], column: Column) -> None:
        self._size = size
        self._decoded: Column | None = None
        self.rows = rows
        self.column = column
        self.type = column.type
        self.key = None
        self.digits = None

    @property
    def mask(self) -> Mask | None:  # type: ignore[override]
        """Which rows have the key, `bool (N,)`; `None` when all do. Made of `rows` at each call."""
        if len(self.rows) == self._size:
            return None
        mask = np.zeros(self._size, np.bool_)
        mask[list(self.rows)] = True
        mask.flags.writeable = False
        return mask

    @property
    def may_hold_images(self) -> bool:
        return self.column.may_hold_images

    def positions(self) -> Sequence[int]:
        return self.rows

    @property
    def empty(self) -> bool:
        return not self.rows

    @property
    def has_odd(self) -> bool:
        return self.column.has_odd

    @property
    def converts(self) -> bool:
        return self.column.converts

    @property
    def writable(self) -> bool:
        return self.column.writable

    def lent(self) -> SparseColumn:
        return self._over(self.column.lent())

    @property
    def untouched(self) -> SparseColumn:
        return self._over(self.column.untouched)

    def is_decoded_as(self, column: object) -> bool:
        return self._decoded is not None and self._decoded is column

    def __len__(self) -> int:
        return self._size

    def __copy__(self) -> SparseColumn:
        return SparseColumn(self._size, self.rows, self.column)

    def __getitem__(self, row: int) -> Any:
        place = self.place(range(self._size)[row])
        return MISSING if place is None else self.column[place]

    def place(self, row: int) -> int | None:
        """The row of `column` that holds the value of this row; `None` if it has none."""
        place = bisect_left(self.rows, row)
        return place if place < len(self.rows) and self.rows[place] == row else None

    def cells(self, failed: dict[int, Exception]) -> Iterator[tuple[int, Any]]:
        wrong: dict[int, Exception] = {}
        cells = [(self.rows[place], value) for place, value in self._with_key().cells(wrong)]
        for place, error in wrong.items():
            failed.setdefault(self.rows[place], error)
        return iter(cells)

    def all_cells(self) -> Iterator[tuple[int, Any]]:
        return ((self.rows[place], value) for place, value in self._with_key().all_cells())

    def _with_key(self) -> Column:
        """`column`, with the key for the errors about its values."""
        return self.column if self.key is None or self.column.key == self.key else self.column.called(self.key)

    def values(self) -> list[Any]:
        failed: dict[int, Exception] = {}
        values: list[Any] = [MISSING] * self._size
        for row, value in self.cells(failed):
            values[row] = value
        if failed:
            raise RowsFailed(failed, of=self)
        return values

    @property
    def array(self) -> npt.NDArray[Any]:
        return self.decoded().array

    def decoded(self) -> Column:
        """A column of an ordinary form, with a place for every row. Raises `RowsFailed`."""
        if self._decoded is None:
            self._decoded = Column.of(self.values())
        self._decoded.key = self.key
        return self._decoded

    def spread(self) -> Column:
        """A column with a place for every row; undecoded values stay undecoded."""
        column = self.column
        if not isinstance(column, WireColumn):
            try:
                return self.decoded()
            except RowsFailed:
                values: list[Any] = [MISSING] * self._size
                for row, value in self.all_cells():
                    values[row] = value
                return Column.of(values)
        entries: list[bytes | None] = [None] * self._size
        for row, entry in zip(self.rows, column.entries, strict=True):
            entries[row] = entry
        return WireColumn(entries, column.decoder)

    def _over(self, column: Column) -> SparseColumn:
        return self if column is self.column else SparseColumn(self._size, self.rows, column)

    def take(self, rows: Rows) -> SparseColumn:
        (columns,) = divide({"": self}, [np.arange(self._size, dtype=np.int64)[rows]])
        column = columns.get("", SparseColumn(len(rows), (), ObjectColumn([])))
        assert isinstance(column, SparseColumn)
        return column

    def joined(self, columns: Sequence[Column]) -> Column:
        if not all(isinstance(column, SparseColumn) for column in columns):
            return Column.concat(
                [column.spread() if isinstance(column, SparseColumn) else column for column in columns]
            )
        *starts, size = itertools.accumulate(map(len, columns), initial=0)
        return _placed(size, list(zip(starts, columns, strict=True)))

    def overlaid(self, other: SparseColumn) -> SparseColumn:
        """These values, and those of `other` in rows that have none here."""
        present = set(self.rows)
        more = [place for place, row in enumerate(other.rows) if row not in present]
        rows = [*self.rows, *(other.rows[place] for place in more)]
        inner = Column.concat([self.column, other.column.take(np.array(more, np.int64))])
        order = sorted(range(len(rows)), key=rows.__getitem__)
        return SparseColumn(self._size, [rows[place] for place in order], inner.take(np.array(order, np.int64)))


def columns_of(
    rows: Sequence[Mapping[str, Any]], column: Callable[[str, list[Any]], Column] | None = None
) -> dict[str, Column]:
    """The columns of rows of keys and values, in the order in which the keys appear.

    `column(key, values)` makes that of a key that is not rare, from one value a row, `MISSING` where a row lacks it; by
    default `Column.of(values)`. Raises `WrongTypeError` for a value that a `Data` cannot hold.
    """
    make = column or (lambda key, values: Column.of(values))
    return {
        key: make(key, values) if positions is None else SparseColumn(len(rows), positions, _rare(values))
        for key, positions, values in by_key(rows, MISSING)
    }


def _rare(values: list[Any]) -> Column:
    return column_with_odd(values) if OddValue in set(map(type, values)) else ObjectColumn(values)


def by_key(rows: Sequence[Mapping[K, Any]], default: Any) -> Iterator[tuple[K, list[int] | None, list[Any]]]:
    """Each key of some rows, its positions and its values, in the order in which the keys appear.

    Of a rare key there are the positions of the rows that have it, and their values. Of any other key there is a value
    for each row, `default` where the row lacks it, and `None` for the positions.
    """
    size = len(rows)
    if rows and len(set(map(tuple, rows))) == 1:
        # Most producers send the same keys in the same order.
        for key in rows[0]:
            yield key, None, list(map(itemgetter(key), rows))
        return
    counts = Counter(itertools.chain.from_iterable(rows))
    rare: dict[K, tuple[list[int], list[Any]]] = {
        key: ([], []) for key, count in counts.items() if is_rare(count, size)
    }
    if rare:
        for number, row in enumerate(rows):
            for key in row:
                if key in rare:
                    rare[key][0].append(number)
                    rare[key][1].append(row[key])
    for key in counts:
        if key in rare:
            yield key, *rare[key]
        else:
            yield key, None, [row.get(key, default) for row in rows]


def divide(columns: Mapping[str, Column], parts: Sequence[Rows | range]) -> Iterator[dict[str, Column]]:
    """The columns of each part of the rows: those at these positions, in this order; of a range, without a copy.

    Rare keys come last, and only in parts that have them: however many parts there are, a value is touched once. At
    a position below 0 they have no value.
    """
    sparse = {key: column for key, column in columns.items() if isinstance(column, SparseColumn)}
    others = {key: column for key, column in columns.items() if key not in sparse} if sparse else columns
    rare = _divided(sparse, parts) if sparse else {}
    for number, part in enumerate(parts):
        if isinstance(part, range):
            part_columns = {key: column.part(part.start, part.stop) for key, column in others.items()}
        else:
            part_columns = {key: column.take(part) for key, column in others.items()}
        yield {**part_columns, **rare[number]} if number in rare else part_columns


def concat(parts: Sequence[Mapping[str, Column]], sizes: Sequence[int]) -> dict[str, Column]:
    """The rows of all parts, one after the other; part i has `sizes[i]` rows. A row may lack a key that others have."""
    *starts, size = itertools.accumulate(sizes, initial=0)
    having: dict[str, list[int]] = {}
    for number, part in enumerate(parts):
        for key in part:
            having.setdefault(key, []).append(number)
    columns: dict[str, Column] = {}
    for key, numbers in having.items():
        key_columns = [parts[number][key] for number in numbers]
        if is_rare(sum(map(_places, key_columns)), size):
            placed = [(starts[number], column) for number, column in zip(numbers, key_columns, strict=True)]
            columns[key] = _placed(size, placed)
        else:
            columns[key] = Column.concat(
                [part[key] if key in part else Column.absent(rows) for part, rows in zip(parts, sizes, strict=True)]
            )
    return columns


def _places(column: Column) -> int:
    return len(column.rows) if isinstance(column, SparseColumn) else len(column)


def in_form(columns: Mapping[str, Column], size: int, asked: Container[str]) -> dict[str, Column]:
    """The same columns, sparse if the key is rare among `size` rows and not in `asked`."""
    formed: dict[str, Column] = {}
    for key, column in columns.items():
        rare = key not in asked and is_rare(len(column.positions()), size)
        if isinstance(column, SparseColumn):
            formed[key] = column if rare else column.spread()
        else:
            formed[key] = _placed(size, [(0, column)]) if rare else column
    return formed


def _divided(columns: Mapping[str, SparseColumn], parts: Sequence[Rows | range]) -> dict[int, dict[str, SparseColumn]]:
    """Number of a part to the columns that have values there."""
    places: dict[int, list[tuple[int, int]]] = {}
    for number, part in enumerate(parts):
        for place, row in enumerate(part if isinstance(part, range) else part.tolist()):
            places.setdefault(row, []).append((number, place))
    divided: dict[int, dict[str, SparseColumn]] = {}
    for key, column in columns.items():
        cells: dict[int, list[tuple[int, int]]] = {}
        for at, row in enumerate(column.rows):
            for number, place in places.get(row, ()):
                cells.setdefault(number, []).append((place, at))
        for number, there in cells.items():
            there.sort()
            picked = [at for _, at in there]
            inner = column.column if picked == list(range(len(column.rows))) else column.column.take(np.array(picked))
            sparse = SparseColumn(len(parts[number]), [place for place, _ in there], inner)
            divided.setdefault(number, {})[key] = sparse
    return divided


def _placed(size: int, columns: Sequence[tuple[int, Column]]) -> SparseColumn:
    """One sparse column of the values of all columns, each given with the position of its first row."""
    rows: list[int] = []
    inner: list[Column] = []
    for start, column in columns:
        positions = column.positions()
        rows.extend(start + row for row in positions)
        if isinstance(column, SparseColumn):
            inner.append(column.column)
        else:
            inner.append(column if column.mask is None else column.take(np.array(positions, np.int64)))
    return SparseColumn(size, rows, Column.concat(inner))
