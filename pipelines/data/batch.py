"""`Batch`: N rows in columns; a row may lack a key, and values of a column may differ in type and shape."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

import numpy as np

from pipelines.data.columns import Column, DenseColumn, ObjectColumn, Rows
from pipelines.data.data import LENT, Data, RecordContext, check_key, is_reserved, owned
from pipelines.data.record import RecordPlace, RecordPlaces, listed_places, objects
from pipelines.data.rowrange import RowNumbers, RowRange, as_array, as_range, row_range
from pipelines.data.sparsecolumn import SparseColumn, columns_of, concat, divide
from pipelines.data.views import Views, or_none
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import MOST_KEYS, DataError, KeyNotInBatchError, ValueNotFoundError, WrongTypeError, nearest

NO_TIMESTAMP: Final = -1


class Origin(Protocol):
    """Gives the record that a row number belongs to."""

    def record(self, row: int) -> RecordContext | None:
        """The context of the record with this row number; `None` if it has none."""

    def places(self, rows: Rows, *, keys: bool = True) -> RecordPlaces:
        """Where these records came from; without `keys` these may all be `None`, as reading them costs."""

    def timestamps(self, rows: Rows) -> Rows:
        """`RecordContext.timestamp` of these records, `int64 (n,)`; `NO_TIMESTAMP` for those that have none."""


class Batch:
    """N rows in columns.

    `rows` says which record each row came from, by its number: `int64 (N,)`. A row made of several records
    (a window) carries them all: then `splits` is `int64 (N + 1,)` and row i came from
    `rows[splits[i]:splits[i + 1]]`. Row numbers are those of the batch that entered the executor; inside an
    agent they grow without end, so that a row can outlive its batch. Consecutive numbers are a `RowRange` as well:
    `row_range`.

    `views` says of each row which part of its picture its arrays show, as far as that is known: it is never written, no
    value of the record, and equal batches may differ in it.

    A key that no `Data` can have, `@type` for example, may be that of an undecoded column: of a record in plain JSON,
    to be written as it came. `row`, `to_list` and `row_values` leave it out.

    Columns are read-only; `with_columns`, `without`, `select`, `take` and `concat` give new batches that
    share them.

    Making one raises, as do `with_columns` and `select`, `ReservedKeyError` or `WrongTypeError` for a key that no
    `Data` can have, and `DataError` for a column of another length.
    """

    __slots__ = ("_columns", "_rows", "metadata", "origin", "row_range", "self_numbered", "size", "splits", "views")

    row_range: RowRange | None
    """`rows`, if they are consecutive and each row came from one record; else `None`."""

    self_numbered: bool
    """Whether no row numbers were given, so that they count from 0."""

    def __init__(
        self,
        columns: Mapping[str, Column],
        size: int,
        *,
        rows: RowNumbers | None = None,
        splits: Rows | None = None,
        metadata: Sequence[Data | None] | None = None,
        origin: Origin | None = None,
        views: Views | None = None,
    ) -> None:
        _check_columns(columns, size)
        self._columns = dict(columns)
        self.size = size
        self.self_numbered = rows is None
        if rows is None:
            rows = range(size)
        self.splits = splits
        self.row_range = as_range(rows) if splits is None else None
        # The array of a range is made when `rows` is first read.
        self._rows: Rows | None = None if isinstance(rows, range) and self.row_range is not None else as_array(rows)
        if len(rows if splits is None else splits[1:]) != size:
            raise DataError(f"the batch has {size} rows, its row numbers do not")
        self.metadata = metadata
        self.origin = origin
        self.views = views

    @classmethod
    def of(cls, datas: Iterable[Data], first: int | None = None) -> Batch:
        """A batch of these records, in order; a key that only some have is missing in the rest.

        Rows are numbered from `first`; without it they are `self_numbered`.
        """
        datas = list(datas)
        columns = columns_of([data.held for data in datas])
        metadata = [data.metadata for data in datas]
        records = [data.record for data in datas]
        return cls(
            columns,
            len(datas),
            rows=None if first is None else row_range(first, len(datas)),
            metadata=metadata if any(entry is not None for entry in metadata) else None,
            origin=_ListedOrigin(records, first or 0) if any(record is not None for record in records) else None,
        )

    def __len__(self) -> int:
        return self.size

    @property
    def rows(self) -> Rows:
        """The numbers of the records that the rows came from, `int64`."""
        if self._rows is None:
            self._rows = as_array(range(0) if self.row_range is None else self.row_range)
        return self._rows

    @property
    def row_numbers(self) -> RowNumbers:
        """`rows`, as a range if they are one."""
        return self.rows if self.row_range is None else self.row_range

    def same_rows(self, other: Batch) -> bool:
        """Whether the rows of both came, one by one, from the same records."""
        if self.row_range is not None:
            return self.row_range == other.row_range
        return _equal(self.splits, other.splits) and _equal(self.rows, other.rows)

    def __contains__(self, key: object) -> bool:
        return key in self._columns

    def __getitem__(self, key: str) -> Column:
        """The decoded column of `key`.

        Raises `ValueNotFoundError` if no row has it, `RowsFailed` if some rows cannot be decoded.
        """
        return self.column(key).decoded()

    def column(self, key: str) -> Column:
        """The column of `key`, decoded or not; raises `ValueNotFoundError` if no row has it."""
        try:
            column = self._columns[key]
        except KeyError:
            message = f'Value not found for key "{key}"{nearest(str(key), self._columns, MOST_KEYS)}'
            raise (KeyNotInBatchError(message, self.size, self) if self.size else ValueNotFoundError(message)) from None
        if column.key != key:
            # Errors about its values name the key.
            column = self._columns[key] = column.called(key)
        return column

    def lent(self) -> Batch:
        """The same rows for a function that may write to their values.

        A mutable value is copied when the function first asks for it.
        """
        columns = {key: column.lent() for key, column in self._columns.items()}
        return self if all(map(operator.is_, columns.values(), self._columns.values())) else self._having(columns)

    def returned(self) -> Batch:
        """The same rows; columns of `lent` whose values were not asked for are replaced by the original ones."""
        return self._having({key: column.untouched for key, column in self._columns.items()})

    def holds(self, positions_of: object) -> bool:
        """Whether the object is this batch or one of its columns, so that row positions mean the same in both."""
        if positions_of is self:
            return True
        return any(column is positions_of or column.is_decoded_as(positions_of) for column in self._columns.values())

    def get(self, key: str) -> Column:
        """The decoded column of `key`; if no row has it, a column that all rows lack.

        For optional keys: `batch.get("t").filled(0.0)` does not depend on which other rows a batch has.
        Raises `RowsFailed` if some rows cannot be decoded.
        """
        return self[key] if key in self._columns else Column.absent(self.size).called(key)

    @property
    def columns(self) -> Mapping[str, Column]:
        """All columns, decoded or not, in order; read-only."""
        return MappingProxyType(self._columns)

    @property
    def may_hold_images(self) -> bool:
        """Whether values may be images, or hold some. It decodes nothing, so undecoded values may be any of these."""
        return any(column.may_hold_images for column in self._columns.values())

    def keys(self) -> list[str]:
        """The keys that any row has, in order."""
        return list(self._columns)

    def take(self, rows: Any) -> Batch:
        """The rows at these positions: an index array, a boolean mask, a slice or a list; columns are taken alike."""
        index = np.arange(self.size, dtype=np.int64)[rows]
        (columns,) = divide(self._columns, [index])
        return self.at(index, columns)

    def part(self, start: int, stop: int) -> Batch:
        """The rows `[start, stop)`; they share this batch's memory where they can."""
        (part,) = self.parts([range(self.size)[start:stop]])
        return part

    def parts(self, ranges: Sequence[range]) -> Iterator[Batch]:
        """The rows of each range of positions; they share this batch's memory where they can."""
        if self.splits is not None:
            yield from (self.take(slice(part.start, part.stop)) for part in ranges)
            return
        for part, columns in zip(ranges, divide(self._columns, ranges), strict=True):
            made = self._having(columns)
            if self.row_range is None:
                made._rows = self.rows[part.start : part.stop]
                made.row_range = as_range(made._rows)
            else:
                made._rows, made.row_range = None, self.row_range[part.start : part.stop]
            made.self_numbered = False
            made.size = len(part)
            made.metadata = None if self.metadata is None else self.metadata[part.start : part.stop]
            made.views = None if self.views is None else self.views[part.start : part.stop]
            yield made

    def copied(self) -> Batch:
        """The same rows with copies of all mutable values: the caller may change the originals."""
        made = self._having({key: _copied(column) for key, column in self._columns.items()})
        if self.metadata is not None:
            made.metadata = list(map(owned, self.metadata))
        return made

    def at(self, index: Rows, columns: Mapping[str, Column]) -> Batch:
        """`columns` as a batch whose row i came from the row of this one at position `index[i]`."""
        numbers, splits = self.numbers(index)
        listed = None if self.metadata is None else [self.metadata[row] for row in index.tolist()]
        views = None if self.views is None else or_none([self.views[row] for row in index.tolist()])
        return Batch(columns, len(index), rows=numbers, splits=splits, metadata=listed, origin=self.origin, views=views)

    def with_columns(self, columns: Mapping[str, Column]) -> Batch:
        """This batch with these columns added or replaced; a replaced one keeps its place."""
        _check_columns(columns, self.size)
        return self._having({**self._columns, **columns})

    def without(self, keys: Iterable[str]) -> Batch:
        """This batch without these keys; a key that no row has is ignored."""
        gone = set(keys)
        return self._having({key: column for key, column in self._columns.items() if key not in gone})

    def select(self, columns: Mapping[str, Column]) -> Batch:
        """The same rows with these columns only: the result of a step that drops its input columns."""
        _check_columns(columns, self.size)
        return self._having(dict(columns))

    def numbered(self, rows: RowNumbers, origin: Origin | None) -> Batch:
        """The same rows under other row numbers."""
        return Batch(self._columns, self.size, rows=rows, metadata=self.metadata, origin=origin, views=self.views)

    def with_origin(self, origin: Origin | None) -> Batch:
        """The same rows, with `origin` for their records."""
        made = self._having(self._columns)
        made.origin = origin
        return made

    def with_views(self, views: Views | None) -> Batch:
        """The same rows, with these views of their arrays; `None` where none is known any more."""
        made = self._having(self._columns)
        made.views = or_none(views)
        return made

    @staticmethod
    def concat(batches: Sequence[Batch]) -> Batch:
        """The rows of all batches, one after the other; a key that only some have is missing in the rest."""
        if len(batches) == 1:
            return batches[0]
        columns = concat([batch._columns for batch in batches], [batch.size for batch in batches])
        metadata: list[Data | None] | None = None
        if any(batch.metadata is not None for batch in batches):
            metadata = [entry for batch in batches for entry in (batch.metadata or [None] * batch.size)]
        return Batch(
            columns,
            sum(batch.size for batch in batches),
            rows=_joined_rows(batches) if batches else None,
            splits=_joined_splits(batches),
            metadata=metadata,
            origin=_joined_origin(batches),
            views=or_none([view for batch in batches for view in (batch.views or [None] * batch.size)])
            if any(batch.views is not None for batch in batches)
            else None,
        )

    def groups(self, keys: Sequence[str]) -> Iterator[tuple[Rows, Batch]]:
        """The parts whose rows have equal type, dtype and shape in all of `keys`, each with its positions.

        INT64 beside DOUBLE is of equal type. Rows that lack a key form parts of their own. Positions are `int64`,
        rising; parts come in the order of their first row. In a part, columns of arrays, lists of numbers and plain
        numbers have one `array`.
        """
        columns = [self._or_absent(key).decoded() for key in keys]
        if self.size and all(isinstance(column, DenseColumn) and column.mask is None for column in columns):
            yield np.arange(self.size, dtype=np.int64), self
            return
        rows_by_form: dict[tuple[Any, ...], list[int]] = {}
        for row in range(self.size):
            rows_by_form.setdefault(tuple(column.inner(row) for column in columns), []).append(row)
        parts = [np.array(positions, np.int64) for positions in rows_by_form.values()]
        for part, batch in zip(parts, self.divided(parts), strict=True):
            # Rebuilt from values: a column whose values agree within the part becomes dense there.
            dense = {
                key: Column.of(column.take(part).values())
                for key, column in zip(keys, columns, strict=True)
                if key in self
            }
            yield part, batch.with_columns(dense)

    def common_and_rare(self) -> tuple[dict[str, Column], dict[str, SparseColumn]]:
        """The columns of keys that many rows have, and those of rare keys, which are written last in a record."""
        columns = {key: self.column(key) for key in self.columns}
        rare = {key: column for key, column in columns.items() if isinstance(column, SparseColumn)}
        return {key: column for key, column in columns.items() if key not in rare}, rare

    def divided(self, parts: Sequence[Rows]) -> Iterator[Batch]:
        """The rows at the positions of each part, `int64`; this batch itself if the only part has all rows."""
        if len(parts) == 1 and len(parts[0]) == self.size:
            yield self
            return
        for part, columns in zip(parts, divide(self._columns, parts), strict=True):
            yield self.at(part, columns)

    def parents(self, row: int) -> Rows:
        """The numbers of the records that the row at this position came from, `int64 (k,)`."""
        if self.splits is None:
            return self.rows[row : row + 1]
        return self.rows[self.splits[row] : self.splits[row + 1]]

    def lanes(self) -> list[Hashable]:
        """`RecordContext.lane` of each row; of a row made of several records that of the first. `None`: not known."""
        return self._places(self._firsts, keys=False).lanes

    def topics(self) -> list[str | None]:
        """`RecordContext.topic` of each row; of a row made of several records that of the first. `None`: not known."""
        return self._places(self._firsts, keys=False).topics

    def places(self, positions: Rows) -> RecordPlaces:
        """Where the records of the rows at these positions came from; of a row made of several records the first."""
        return self._places(self._firsts[positions], keys=True)

    def timestamps(self) -> Rows:
        """The times of the rows' records, `int64 (N,)` milliseconds since 1970; `NO_TIMESTAMP` where there is none.

        Of a row made of several records it is that of the first.
        """
        if self.origin is None:
            return np.full(self.size, NO_TIMESTAMP, np.int64)
        return self.origin.timestamps(self._firsts)

    def numbers(self, index: Rows) -> tuple[Rows, Rows | None]:
        """`rows` and `splits` of the rows at these positions."""
        if self.splits is None:
            return self.rows[index], None
        parts = [self.parents(row) for row in index.tolist()]
        splits = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=splits[1:])
        return (np.concatenate(parts) if parts else np.zeros(0, np.int64)), splits

    def row(self, position: int) -> Data:
        """The row at this position as a `Data` of its own, with its metadata and its record's context."""
        return self.take([position]).to_list()[0]

    def to_list(self, values: Sequence[Mapping[str, Any]] | None = None, *, lent: bool = True) -> list[Data]:
        """All rows, each as a `Data`, which lists values that cannot be decoded in `Data.odd`.

        `values` is an earlier result of `all_values` or `row_values`: then the rows hold these very objects. If the
        rows are `lent`, their mutable values are copied when they are first asked for; without it the rows may only be
        read.
        """
        if values is None:
            values = self.all_values()
        columns = self._columns.values()
        lent = any(column.has_odd for column in columns) or (lent and any(column.writable for column in columns))
        return [self._data(dict(entries), position, lent=lent) for position, entries in enumerate(values)]

    def all_values(self) -> list[dict[str, Any]]:
        """Each row's keys and native values, with an `OddValue` for each that cannot be decoded."""
        rows: list[dict[str, Any]] = [{} for _ in range(self.size)]
        for key in self._columns:
            if is_reserved(key):
                continue
            for row, value in self.column(key).all_cells():
                rows[row][key] = value
        return rows

    def row_values(self, failed: dict[int, Exception]) -> list[dict[str, Any]]:
        """Each row's keys and native values. The errors of rows that cannot be decoded are put into `failed`."""
        rows: list[dict[str, Any]] = [{} for _ in range(self.size)]
        for key in self._columns:
            if is_reserved(key):
                continue
            for row, value in self.column(key).cells(failed):
                rows[row][key] = value
        return rows

    def __repr__(self) -> str:
        inside = ", ".join(f"{key}: {_described(column)}" for key, column in self._columns.items())
        return f"Batch({self.size} rows, {{{inside}}})"

    @property
    def _firsts(self) -> Rows:
        """The number of each row's record, or of the first of several."""
        return self.rows if self.splits is None else self.rows[self.splits[:-1]]

    def _places(self, rows: Rows, *, keys: bool) -> RecordPlaces:
        return listed_places([None] * len(rows)) if self.origin is None else self.origin.places(rows, keys=keys)

    def _or_absent(self, key: str) -> Column:
        return self._columns[key] if key in self._columns else Column.absent(self.size)

    def _data(self, values: dict[str, Any], position: int, *, lent: bool) -> Data:
        metadata = None if self.metadata is None else self.metadata[position]
        parents = self.parents(position)
        writable = {key for key, value in values.items() if isinstance(value, LENT)} if lent else None
        return Data.trusted(
            values,
            None if metadata is None else metadata.lent(),
            self.origin.record(int(parents[0])) if self.origin is not None and len(parents) else None,
            set(writable) if writable else None,
        )

    def _having(self, columns: dict[str, Column]) -> Batch:
        # Without the checks of `__init__`, which would take most of the time.
        made = Batch.__new__(Batch)
        made._columns = columns
        made.size = self.size
        made.self_numbered = self.self_numbered
        made.row_range = self.row_range
        made._rows = self._rows
        made.splits = self.splits
        made.metadata = self.metadata
        made.origin = self.origin
        made.views = self.views
        return made


def listed_timestamps(records: Iterable[RecordContext | None]) -> Rows:
    """The timestamps of these records, as `Origin.timestamps` gives them."""
    return np.array(
        [NO_TIMESTAMP if record is None or record.timestamp is None else record.timestamp for record in records],
        np.int64,
    )


@dataclass(frozen=True, slots=True)
class _ListedOrigin:
    records: list[RecordContext | None]
    first: int

    def record(self, row: int) -> RecordContext | None:
        position = row - self.first
        return self.records[position] if 0 <= position < len(self.records) else None

    def places(self, rows: Rows, *, keys: bool = True) -> RecordPlaces:
        return listed_places(map(self.record, rows.tolist()))

    def timestamps(self, rows: Rows) -> Rows:
        return listed_timestamps(map(self.record, rows.tolist()))


@dataclass(frozen=True, slots=True)
class JoinedOrigins:
    """The records of several origins; a row number is one of the first that knows it."""

    origins: Sequence[Origin]

    def record(self, row: int) -> RecordContext | None:
        """The context of the record with this row number."""
        return next((record for origin in self.origins if (record := origin.record(row)) is not None), None)

    def places(self, rows: Rows, *, keys: bool = True) -> RecordPlaces:
        """Where the records with these row numbers came from."""
        numbers: dict[RecordPlace | None, int] = {None: 0}
        at, offsets = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        keys_of = np.full(len(rows), None, object)
        left = np.arange(len(rows))
        for origin in self.origins:
            if not len(left):
                break
            part = origin.places(rows[left], keys=keys)
            of_part = [numbers.setdefault(place, len(numbers)) for place in part.places.tolist()]
            part_at = np.array(of_part, np.int64)[part.numbers]
            known = part_at > 0
            here = left[known]
            at[here], offsets[here], keys_of[here] = part_at[known], part.offsets[known], part.keys[known]
            left = left[~known]
        return RecordPlaces(objects(list(numbers)), at, offsets, keys_of)

    def timestamps(self, rows: Rows) -> Rows:
        """The times of the records with these row numbers."""
        known = np.full(len(rows), NO_TIMESTAMP, np.int64)
        for origin in self.origins:
            known = np.where(known == NO_TIMESTAMP, origin.timestamps(rows), known)
        return known


def _copied(column: Column) -> Column:
    if column.has_odd:
        return column.lent()
    return ObjectColumn(list(map(owned, column.values())), column.type) if column.writable else column


def _undecoded(column: Column) -> bool:
    """Whether a column holds undecoded input: then its key may be one that no `Data` can have, such as `@type`."""
    return isinstance(column.column if isinstance(column, SparseColumn) else column, WireColumn)


def _check_columns(columns: Mapping[str, Column], size: int) -> None:
    for key, column in columns.items():
        if not isinstance(column, Column):
            made = "DenseColumn(...)" if isinstance(column, np.ndarray) else "Column.of([...]), one value a row"
            raise WrongTypeError(f'column "{key}" is a {type(column).__name__}, not a Column: give {made}')
        try:
            check_key(key)
        except DataError:
            if not _undecoded(column):
                raise
        if len(column) != size:
            raise DataError(f'column "{key}" has {len(column)} rows, the batch has {size}')


def _joined_rows(batches: Sequence[Batch]) -> RowNumbers:
    joined = range(0)
    for batch in batches:
        rows = batch.row_range
        if rows is None or (joined and rows and joined.stop != rows.start):
            return np.concatenate([batch.rows for batch in batches])
        if rows:
            joined = range(joined.start if joined else rows.start, rows.stop)
    return joined


def _equal(a: Rows | None, b: Rows | None) -> bool:
    if a is None or b is None:
        return a is b
    return a is b or (len(a) == len(b) and bool((a == b).all()))


def _joined_origin(batches: Sequence[Batch]) -> Origin | None:
    origins: dict[int, Origin] = {}
    for batch in batches:
        if batch.origin is not None:
            origins.setdefault(id(batch.origin), batch.origin)
    if len(origins) <= 1:
        return next(iter(origins.values()), None)
    return JoinedOrigins(tuple(origins.values()))


def _joined_splits(batches: Sequence[Batch]) -> Rows | None:
    if all(batch.splits is None for batch in batches):
        return None
    counts = [np.ones(batch.size, np.int64) if batch.splits is None else np.diff(batch.splits) for batch in batches]
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts))])


def _described(column: Column) -> str:
    form = type(column).__name__.removesuffix("Column").lower()
    if not isinstance(column, DenseColumn):
        return form
    return f"{form} {column.storage.dtype}{list(column.storage.shape[1:])}"
