"""Columns: the values of one key for N rows, in one of nine forms.

| form | holds | for |
| --- | --- | --- |
| `DenseColumn` | one array `(N, ...)` | arrays of one dtype and shape; int, float and bool scalars `(N,)` |
| `RaggedColumn` | all rows' samples in one array, `N + 1` splits | arrays that agree in all but the first axis |
| `ObjectColumn` | a list of N values | strings, images, boxes, nested data, lists, arrays that agree in nothing |
| `NumbersColumn` (`numberscolumn.py`) | one float64 array | INT64 beside DOUBLE, as JSON has them |
| `ListsColumn` (`listscolumn.py`) | the arrays of lists of numbers | lists that may be asked for as arrays |
| `SpansColumn` (`spanscolumn.py`) | N spans of one buffer | strings and bytes, as compiled decoders read them |
| `WireColumn` (`wirecolumn.py`) | N undecoded spans of the input | values that no step has asked for yet |
| `SparseColumn` (`sparsecolumn.py`) | the rows that have the key | keys that few rows have |
| `OddColumn` (`oddcolumn.py`) | a list of N values | values that no `Data` can hold, among others |

Columns are read-only and shared between batches: every change gives a new column.
"""

from __future__ import annotations

import copy
import itertools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from pipelines.data.data import WRITABLE, owned
from pipelines.data.stacking import SCALARS, as_scalars, filled, is_double, list_as_array, stacked, unequal
from pipelines.errors import DataError, RowsFailed, ValueNotFoundError
from pipelines.late import late
from pipelines.values import Image, ValueType, type_of
from pipelines.values.oddvalue import OddValue

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Missing:
    """The one value `MISSING`: this row has no such key."""

    _instance: Missing | None = None

    def __new__(cls) -> Missing:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()
_WRITABLE_TYPES: Final = frozenset({ValueType.LIST, ValueType.DATA, ValueType.BOUNDING_BOX, ValueType.POINT})
_SHORT_RUN: Final = 8
"""Mean length of runs of consecutive rows below which copying row by row is quicker."""


class Column(ABC):
    """The values of one key for `len(column)` rows; `column[i]` is a native value or `MISSING`.

    A row may lack the key. It has no default value: `array` fails such rows, `filled(value)` gives them a value, and
    `present` tells which rows have the key.
    """

    __slots__ = ("digits", "key", "mask", "type")

    type: ValueType | None
    """The rows' common value type; `None` if they differ or are not known yet."""
    mask: Mask | None
    """Which rows have the key, `bool (N,)`, as far as that is known without decoding; `None` when all do."""
    key: str | None
    """The key under which a batch returned the column, for error texts; `None` if no batch has."""
    digits: np.dtype[Any] | None
    """The narrower float that its DOUBLEs (also in arrays and lists) were made of exactly: text is written with the
    digits of that one, 0.1 instead of 0.10000000149011612. `None`: they have digits of their own."""

    def __init__(self, type: ValueType | None, mask: Mask | None) -> None:
        if mask is not None and mask.flags.writeable:
            mask = mask.view()
            mask.flags.writeable = False
        self.type = type
        self.mask = mask
        self.key = None
        self.digits = None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, row: int) -> Any: ...

    @property
    def may_hold_images(self) -> bool:
        """Whether values may be images, lists or `Data`, as far as that is known without decoding."""
        return False

    @abstractmethod
    def take(self, rows: Rows) -> Column:
        """The rows at these positions, in this order; a position may repeat."""

    def part(self, start: int, stop: int) -> Column:
        """The rows `[start, stop)`; they share this column's memory where they can."""
        return self.take(np.arange(start, stop, dtype=np.int64))

    @abstractmethod
    def values(self) -> list[Any]:
        """All rows as native values, `MISSING` where a row lacks the key.

        Raises `RowsFailed` naming the rows that cannot be decoded.
        """

    def cells(self, failed: dict[int, Exception]) -> Iterator[tuple[int, Any]]:
        """Position and value of each row that has the key; the errors of undecodable rows are put into `failed`."""
        try:
            values = self.values()
        except RowsFailed as error:
            for row, reason in error.failures.items():
                failed.setdefault(row, reason)
            values = [MISSING if row in error.failures else self[row] for row in range(len(self))]
        if not _has_gaps(values):
            return enumerate(values)
        return ((row, value) for row, value in enumerate(values) if value is not MISSING)

    def all_cells(self) -> Iterator[tuple[int, Any]]:
        """As `cells`, with an `OddValue` for each value that cannot be decoded: for passing values on unread."""
        failed: dict[int, Exception] = {}
        cells = self.cells(failed)
        if not failed:
            return cells
        odd = [(row, OddValue(None, None, str(error))) for row, error in failed.items()]
        return iter(sorted([*cells, *odd], key=operator.itemgetter(0)))

    @property
    def has_odd(self) -> bool:
        """Whether decoding has found values that cannot be decoded; false as long as the values are undecoded."""
        return False

    def settled(self) -> Column:
        """This column in a decoded form; if some rows cannot be, as it is, or with odd values if it `converts`."""
        try:
            return self.decoded()
        except RowsFailed:
            if not self.converts:
                return self
        # Else a value would be written as it came or converted by the values of other rows.
        values: list[Any] = [MISSING] * len(self)
        for row, value in self.all_cells():
            values[row] = value
        return Column.of(values)

    @property
    def converts(self) -> bool:
        """Whether undecoded values are of another type, as they came, than those that they are decoded to."""
        return False

    def positions(self) -> Sequence[int]:
        """The rows that have the key, rising, as far as that is known without decoding."""
        return range(len(self)) if self.mask is None else np.flatnonzero(self.mask).tolist()

    @property
    def present(self) -> Mask:
        """Which rows have the key, `bool (N,)`, read-only: an array also when all do.

        Raises `RowsFailed` naming the rows that cannot be decoded.
        """
        mask = self.decoded().mask
        if mask is not None:
            return mask
        everywhere = np.ones(len(self), np.bool_)
        everywhere.flags.writeable = False
        return everywhere

    @property
    def array(self) -> npt.NDArray[Any]:
        """The values of all rows as one array, read-only.

        INT64 beside DOUBLE is float64.

        Returns:
            `(N,)` of numbers or bools, `(N, ...)` of arrays and of lists of numbers.

        Raises:
            RowsFailed: Rows lack the key (`ValueNotFoundError`) or cannot be decoded: the executor fails these alone
                and runs the others again.
            WrongTypeError: The values do not fit into one array: `Batch.groups` gives parts that do.
        """
        self._check_complete()
        array = self._stacked()
        array.flags.writeable = False
        return array

    def filled(self, value: Any) -> npt.NDArray[Any]:
        """As `array`, with `value` in the rows that lack the key: a number, or an array of the shape of a row.

        The dtype is numpy's for both together, whether a row lacks the key or not: `filled(0.5)` of INT64 is float64,
        `filled(math.nan)` of float32 is float32. If all rows lack the key, all have `value`. Raises as `array` does for
        the rows that have the key, and `WrongTypeError` for a value that does not fit.
        """
        column = self.decoded()
        mask = column.mask
        there = column if mask is None else column.take(np.flatnonzero(mask))
        return filled(there._stacked(), mask, value, self._named())

    def called(self, key: str) -> Column:
        """This column, or another over the same values, with `key` as its `key`."""
        column = self if self.key is None else copy.copy(self)
        column.key = key
        return column

    @property
    def empty(self) -> bool:
        """Whether no row has the key, as far as that is known without decoding."""
        return len(self) == 0 or (self.mask is not None and not self.mask.any())

    def decoded(self) -> Column:
        """This column in a decoded form. Raises `RowsFailed` naming the rows that cannot be decoded."""
        return self

    @property
    def writable(self) -> bool:
        """Whether some values may be mutable: lists, `Data`, boxes, points."""
        return False

    def lent(self) -> Column:
        """The same rows for a function that may write to their values: it gets copies, made when it asks for them."""
        return self

    @property
    def untouched(self) -> Column:
        """The original of a lent column whose values were never asked for; else this column."""
        return self

    def is_decoded_as(self, column: object) -> bool:
        """Whether `column` is the decoded form of this one."""
        return False

    def inner(self, row: int) -> tuple[Any, ...] | None:
        """Value type, dtype and shape, which must agree for rows to make one `array`; `None` for a missing row."""
        value = self[row]
        if value is MISSING:
            return None
        if isinstance(value, np.ndarray):
            return (ValueType.NDARRAY, value.dtype, value.shape)
        if isinstance(value, list):
            array = list_as_array(value)
            return (ValueType.LIST, None if array is None else array.shape)
        if isinstance(value, Image):
            return (ValueType.IMAGE, value.height, value.width, value.channels)
        return (type_of(value),)

    def joined(self, columns: Sequence[Column]) -> Column | None:
        """The rows of all columns in the form of this one, which is among them; `None` if that is impossible."""
        return None

    def with_digits(self, digits: np.dtype[Any] | None) -> Self:
        """Set `digits` of a column that was just made, and return it."""
        self.digits = digits
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def _stacked(self) -> npt.NDArray[Any]:
        """The values of rows that all have the key as one array."""
        return stacked(self.values(), self._named())

    def _check_complete(self) -> None:
        if self.mask is None or self.mask.all():
            return
        error = ValueNotFoundError("Value not found" if self.key is None else f'Value not found for key "{self.key}"')
        raise RowsFailed(dict.fromkeys(np.flatnonzero(~self.mask).tolist(), error), of=self)

    def _named(self) -> str:
        return "the values of a column" if self.key is None else f'the values of "{self.key}"'

    @staticmethod
    def of(values: Sequence[Any]) -> Column:
        """The best form for these values (native values, odd ones or `MISSING`).

        Raises `WrongTypeError` for a value that a `Data` cannot hold.
        """
        return _column_of(values)

    @staticmethod
    def concat(columns: Sequence[Column]) -> Column:
        """The rows of all columns, one after the other."""
        return _concat(columns)

    @staticmethod
    def absent(count: int) -> Column:
        """A column of `count` rows that all lack the key."""
        return ObjectColumn([MISSING] * count)


class DenseColumn(Column):
    """One array whose first axis is the rows.

    `type` NDARRAY: the array is `(N, ...)` of any dtype and row i is `array[i]`. INT64, DOUBLE or BOOLEAN:
    the array is `(N,)` of int64, float64 or bool and row i is that scalar; integers for DOUBLE, and narrower numbers,
    are converted. Rows for which `present` is false lack the key; the numbers of the array there mean nothing.

    Raises `WrongTypeError` for an array of another shape or type, or with numbers that would change.
    """

    __slots__ = ("storage",)

    storage: npt.NDArray[Any]
    """The array, with any content in rows that lack the key; without a look at `mask`, use `array`."""

    def __init__(
        self, array: npt.NDArray[Any], type: ValueType = ValueType.NDARRAY, present: Mask | None = None
    ) -> None:
        super().__init__(type, present)
        if type is not ValueType.NDARRAY:
            array = as_scalars(array, type)
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        self.storage = array

    def __len__(self) -> int:
        return len(self.storage)

    def __getitem__(self, row: int) -> Any:
        if self.mask is not None and not self.mask[row]:
            return MISSING
        if self.type is ValueType.NDARRAY:
            return self.storage[row, ...]
        return self.storage[row].item()

    @property
    def array(self) -> npt.NDArray[Any]:
        if self.mask is not None:
            self._check_complete()
        return self.storage

    def inner(self, row: int) -> tuple[Any, ...] | None:
        if self.mask is not None and not self.mask[row]:
            return None
        if self.type is ValueType.NDARRAY:
            return (ValueType.NDARRAY, self.storage.dtype, self.storage.shape[1:])
        return (self.type,)

    def part(self, start: int, stop: int) -> DenseColumn:
        present = cut_mask(self.mask, start, stop)
        return DenseColumn(self.storage[start:stop], _typed(self), present).with_digits(self.digits)

    def take(self, rows: Rows) -> DenseColumn:
        return DenseColumn(self.storage[rows], _typed(self), mask_at(self.mask, rows)).with_digits(self.digits)

    def values(self) -> list[Any]:
        array = self.storage
        # `array[i, ...]` keeps a rank-0 row an array, where iterating would give a scalar.
        values = array.tolist() if self.type is not ValueType.NDARRAY else [array[i, ...] for i in range(len(array))]
        return values if self.mask is None else _masked(values, self.mask)

    def _stacked(self) -> npt.NDArray[Any]:
        return self.storage


class RaggedColumn(Column):
    """Arrays of one dtype that agree in all axes but the first.

    `samples` is `(total, ...)`; row i is `samples[splits[i]:splits[i + 1]]`; `splits` is `int64 (N + 1,)`, begins
    with 0, never falls and ends with `total`.
    """

    __slots__ = ("samples", "splits")

    def __init__(self, samples: npt.NDArray[Any], splits: Rows, present: Mask | None = None) -> None:
        super().__init__(ValueType.NDARRAY, present)
        if samples.flags.writeable:
            samples = samples.view()
            samples.flags.writeable = False
        self.samples = samples
        self.splits = splits

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, row: int) -> Any:
        if self.mask is not None and not self.mask[row]:
            return MISSING
        row = range(len(self))[row]
        return self.samples[self.splits[row] : self.splits[row + 1]]

    def take(self, rows: Rows) -> Column:
        """Dense if the rows have equally many samples."""
        starts, ends = self.splits[:-1][rows], self.splits[1:][rows]
        counts = ends - starts
        splits = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=splits[1:])
        samples = self._gathered(starts, ends, splits)
        present = mask_at(self.mask, rows)
        if len(counts) and (counts == counts[0]).all():
            return DenseColumn(samples.reshape((len(counts), counts[0], *samples.shape[1:])), present=present)
        return RaggedColumn(samples, splits, present)

    def _gathered(self, starts: Rows, ends: Rows, splits: Rows) -> npt.NDArray[Any]:
        breaks = np.flatnonzero(starts[1:] != ends[:-1])
        if len(breaks) * _SHORT_RUN < len(starts):
            # Nearly all rows, in their order: a few long pieces.
            pieces = zip([starts[0], *starts[breaks + 1].tolist()], [*ends[breaks].tolist(), ends[-1]], strict=True)
            return np.concatenate([self.samples[start:end] for start, end in pieces])
        index = np.repeat(starts - splits[:-1], ends - starts) + np.arange(splits[-1])
        gathered: npt.NDArray[Any] = self.samples[index]
        return gathered

    def values(self) -> list[Any]:
        edges = self.splits.tolist()
        values = [self.samples[a:b] for a, b in itertools.pairwise(edges)]
        return values if self.mask is None else _masked(values, self.mask)

    def _stacked(self) -> npt.NDArray[Any]:
        counts = np.diff(self.splits)
        if len(counts) and counts.min() != counts.max():
            kinds = (
                f"{self.samples.dtype}{[count, *self.samples.shape[1:]]}" for count in (counts.min(), counts.max())
            )
            raise unequal(self._named(), *kinds)
        return self.samples.reshape((len(counts), counts[0] if len(counts) else 0, *self.samples.shape[1:]))


class ObjectColumn(Column):
    """A list of native values, `MISSING` where a row lacks the key."""

    __slots__ = ("objects",)

    def __init__(self, objects: list[Any], type: ValueType | None = None, present: Mask | None = None) -> None:
        if present is None and _has_gaps(objects):
            present = np.fromiter((value is not MISSING for value in objects), np.bool_, len(objects))
        super().__init__(type, present)
        self.objects = objects

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, row: int) -> Any:
        return self.objects[row]

    @property
    def may_hold_images(self) -> bool:
        return self.type in (ValueType.IMAGE, ValueType.LIST, ValueType.DATA, None)

    @property
    def is_double(self) -> bool:
        """Whether all rows are DOUBLEs, or INT64s that float64 does not round: `array` is float64 then."""
        return self.type is None and all(map(is_double, self.objects))

    @property
    def writable(self) -> bool:
        if self.type is not None:
            return self.type in _WRITABLE_TYPES
        return any(issubclass(kind, WRITABLE) for kind in set(map(type, self.objects)))

    def lent(self) -> ObjectColumn:
        return LentColumn(self) if self.writable else self

    def take(self, rows: Rows) -> ObjectColumn:
        objects = self.objects
        return ObjectColumn([objects[row] for row in rows.tolist()], self.type).with_digits(self.digits)

    def inner(self, row: int) -> tuple[Any, ...] | None:
        if self.type is None and is_double(self.objects[row]):
            # INT64 beside DOUBLE.
            return (ValueType.DOUBLE,)
        return super().inner(row)

    def values(self) -> list[Any]:
        return list(self.objects)


class LentColumn(ObjectColumn):
    """The values of another column, copied when they are first asked for."""

    __slots__ = ("_copies", "source")

    def __init__(self, source: ObjectColumn) -> None:
        Column.__init__(self, source.type, source.mask)
        self.source = source
        self._copies: list[Any] | None = None

    @property
    def objects(self) -> list[Any]:  # type: ignore[override]
        if self._copies is None:
            self._copies = list(map(owned, self.source.objects))
        return self._copies

    @property
    def untouched(self) -> ObjectColumn:
        return self.source if self._copies is None else self

    def __len__(self) -> int:
        return len(self.source)

    def __copy__(self) -> LentColumn:
        again = LentColumn(self.source)
        again._copies = self._copies
        return again

    def take(self, rows: Rows) -> ObjectColumn:
        return LentColumn(self.source.take(rows)) if self._copies is None else super().take(rows)


def _typed(column: Column) -> ValueType:
    if column.type is None:
        raise DataError("a dense column without a value type")
    return column.type


def mask_at(present: Mask | None, rows: Rows) -> Mask | None:
    """Which of these rows have the key; `None` if all."""
    if present is None:
        return None
    mask = present[rows]
    return None if mask.all() else mask


def cut_mask(present: Mask | None, start: int, stop: int) -> Mask | None:
    """Which of the rows from `start` to `stop` have the key; `None` if all."""
    if present is None:
        return None
    cut = present[start:stop]
    return None if cut.all() else cut


def _masked(values: list[Any], present: Mask) -> list[Any]:
    return [value if there else MISSING for value, there in zip(values, present.tolist(), strict=True)]


def _has_gaps(objects: list[Any]) -> bool:
    # A set of the distinct classes is cheap and never compares values (arrays refuse to be compared).
    return Missing in set(map(type, objects))


_column_with_odd: Callable[[list[Any]], Column] = late("pipelines.data.oddcolumn:column_with_odd")


def _column_of(values: Sequence[Any]) -> Column:
    values = list(values)
    # One value of each class: classes are few, and the class decides the type.
    examples = {value.__class__: value for value in values}
    if OddValue in examples:
        return _column_with_odd(values)
    if Missing in examples:
        return _with_gaps(values)
    if not values:
        return ObjectColumn([])
    types = {type_of(example) for example in examples.values()}
    if len(types) > 1:
        return ObjectColumn(values)
    (only,) = types
    if only is ValueType.NDARRAY:
        return _column_of_arrays(values)
    if only in SCALARS:
        return DenseColumn(np.array(values, SCALARS[only]), only)
    return ObjectColumn(values, only)


def _with_gaps(values: list[Any]) -> Column:
    present = np.fromiter((value is not MISSING for value in values), np.bool_, len(values))
    there = np.flatnonzero(present)
    if len(there) == 0:
        return ObjectColumn(values, None, present)
    compact = _column_of([values[row] for row in there.tolist()])
    if not isinstance(compact, DenseColumn):
        if compact.type is ValueType.NDARRAY:
            values = list(map(owned, values))
        return ObjectColumn(values, compact.type, present)
    array = np.zeros((len(values), *compact.storage.shape[1:]), compact.storage.dtype)
    array[there] = compact.storage
    return DenseColumn(array, _typed(compact), present)


def _column_of_arrays(arrays: list[npt.NDArray[Any]]) -> Column:
    first = arrays[0]
    if len(arrays) == 1 and first.flags.c_contiguous and first.dtype.isnative:
        return DenseColumn(first[np.newaxis])  # no copy
    dtype, shape = first.dtype, first.shape
    if any(array.dtype != dtype for array in arrays):
        return ObjectColumn(list(map(owned, arrays)), ValueType.NDARRAY)
    if all(array.shape == shape for array in arrays):
        return DenseColumn(np.stack(arrays))
    inner = shape[1:]
    if first.ndim == 0 or any(array.ndim == 0 or array.shape[1:] != inner for array in arrays):
        return ObjectColumn(list(map(owned, arrays)), ValueType.NDARRAY)
    splits = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(array) for array in arrays], out=splits[1:])
    return RaggedColumn(np.concatenate(arrays), splits)


def _concat(columns: Sequence[Column]) -> Column:
    if len(columns) == 1:
        return columns[0]
    if not columns:
        return ObjectColumn([])
    kinds = {column.digits for column in columns}
    return _joined(columns).with_digits(kinds.pop() if len(kinds) == 1 else None)


def _joined(columns: Sequence[Column]) -> Column:
    for column in {column.__class__: column for column in columns}.values():
        joined = column.joined(columns)
        if joined is not None:
            return joined
    dense = [column for column in columns if isinstance(column, DenseColumn) and _stackable(columns[0], column)]
    if len(dense) == len(columns):
        return DenseColumn(np.concatenate([column.storage for column in dense]), _typed(dense[0]), joined_masks(dense))
    ragged = [column for column in columns if isinstance(column, RaggedColumn) and _joinable(columns[0], column)]
    if len(ragged) == len(columns):
        return _concat_ragged(ragged)
    return _column_of(_all_values(columns))


def _concat_ragged(columns: Sequence[RaggedColumn]) -> RaggedColumn:
    counts = np.concatenate([np.diff(column.splits) for column in columns])
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return RaggedColumn(np.concatenate([column.samples for column in columns]), splits, joined_masks(columns))


def _all_values(columns: Sequence[Column]) -> list[Any]:
    all_values: list[Any] = []
    for column in columns:
        try:
            all_values.extend(column.values())
        except RowsFailed:
            values: list[Any] = [MISSING] * len(column)
            for row, value in column.all_cells():
                values[row] = value
            all_values.extend(values)
    return all_values


def _joinable(a: Column, b: RaggedColumn) -> bool:
    if not isinstance(a, RaggedColumn):
        return False
    return a.samples.dtype == b.samples.dtype and a.samples.shape[1:] == b.samples.shape[1:]


def _stackable(a: Column, b: DenseColumn) -> bool:
    return (
        isinstance(a, DenseColumn)
        and a.type is b.type
        and a.storage.dtype == b.storage.dtype
        and a.storage.shape[1:] == b.storage.shape[1:]
    )


def joined_masks(columns: Sequence[Column]) -> Mask | None:
    """Which rows of all columns, one after the other, have the key; `None` if all."""
    if all(column.mask is None for column in columns):
        return None
    masks = [np.ones(len(column), np.bool_) if column.mask is None else column.mask for column in columns]
    return np.concatenate(masks)
