"""Columns: the values of one key for N rows, in one of five forms.

| form | holds | for |
| --- | --- | --- |
| `DenseColumn` | one array `(N, ...)` | arrays of one dtype and shape; int, float and bool scalars `(N,)` |
| `RaggedColumn` | all rows' samples in one array, `N + 1` splits | arrays that agree in all but the first axis |
| `ObjectColumn` | a list of N values | strings, images, boxes, nested data, lists, arrays that agree in nothing |
| `SpansColumn` (`pipelines.spanscolumn`) | N spans of one buffer | strings and bytes, as compiled decoders read them |
| `WireColumn` | N undecoded spans of the input | what nobody has asked for yet |

Columns are read-only and shared between batches: every change gives a new column.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, RowsFailed
from pipelines.spans import Spans
from pipelines.values import Image, ValueType, type_of

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Entries = Sequence[bytes | None]
"""Serialised map entries, a list or `Spans`; `None` where a row has none."""


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
_SHORT_RUN: Final = 8
"""Rows in a row, below which they are rather taken one by one."""

SCALARS: Final = {
    ValueType.INT64: np.dtype(np.int64),
    ValueType.DOUBLE: np.dtype(np.float64),
    ValueType.BOOLEAN: np.dtype(np.bool_),
}
"""Value types whose rows fit one array of plain numbers, with that array's dtype."""


class Column(ABC):
    """The values of one key for `len(column)` rows; `column[i]` is a native value or `MISSING`."""

    __slots__ = ("present", "type")

    type: ValueType | None
    """The rows' common value type; `None` where they differ or are not known yet."""
    present: Mask | None
    """Which rows have the key, `bool (N,)`; `None` when all do."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, row: int) -> Any: ...

    @abstractmethod
    def take(self, rows: Rows) -> Column:
        """The rows at these positions, in this order; a position may repeat."""

    def part(self, start: int, stop: int) -> Column:
        """The rows `[start, stop)`, sharing what they can with this column."""
        return self.take(np.arange(start, stop, dtype=np.int64))

    @abstractmethod
    def values(self) -> list[Any]:
        """All rows as native values, `MISSING` where a row lacks the key.

        Raises `RowsFailed` naming the rows that cannot be decoded.
        """

    @property
    def empty(self) -> bool:
        """Whether no row has the key."""
        return len(self) == 0 or (self.present is not None and not self.present.any())

    def decoded(self) -> Column:
        """This column in a decoded form. Raises `RowsFailed` naming the rows that cannot be decoded."""
        return self

    def inner(self, row: int) -> tuple[Any, ...] | None:
        """What must agree for rows to be stacked: value type, dtype and shape; `None` for a missing row."""
        value = self[row]
        if value is MISSING:
            return None
        if isinstance(value, np.ndarray):
            return (ValueType.NDARRAY, value.dtype, value.shape)
        if isinstance(value, Image):
            return (ValueType.IMAGE, value.height, value.width, value.channels)
        return (type_of(value),)

    def joined(self, columns: Sequence[Column]) -> Column | None:
        """The rows of all columns in the form of this one, which is among them; `None` if that cannot be."""
        return None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    @staticmethod
    def of(values: Sequence[Any]) -> Column:
        """The best form for these values (native values or `MISSING`).

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

    `type` NDARRAY: `array` is `(N, ...)` of any dtype and row i is `array[i]`. INT64, DOUBLE or BOOLEAN:
    `array` is `(N,)` of int64, float64 or bool and row i is that scalar. Where `present` is false the
    array's content means nothing.
    """

    __slots__ = ("array",)

    def __init__(
        self, array: npt.NDArray[Any], type: ValueType = ValueType.NDARRAY, present: Mask | None = None
    ) -> None:
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        self.array = array
        self.type = type
        self.present = present

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, row: int) -> Any:
        if self.present is not None and not self.present[row]:
            return MISSING
        if self.type is ValueType.NDARRAY:
            return self.array[row, ...]
        return self.array[row].item()

    def inner(self, row: int) -> tuple[Any, ...] | None:
        if self.present is not None and not self.present[row]:
            return None
        if self.type is ValueType.NDARRAY:
            return (ValueType.NDARRAY, self.array.dtype, self.array.shape[1:])
        return (self.type,)

    def part(self, start: int, stop: int) -> DenseColumn:
        present = _cut_mask(self.present, start, stop)
        return DenseColumn(self.array[start:stop], _typed(self), present)

    def take(self, rows: Rows) -> DenseColumn:
        return DenseColumn(self.array[rows], _typed(self), taken_mask(self.present, rows))

    def values(self) -> list[Any]:
        array = self.array
        # `array[i, ...]` keeps a rank-0 row an array, where iterating would give a scalar.
        found = array.tolist() if self.type is not ValueType.NDARRAY else [array[i, ...] for i in range(len(array))]
        return found if self.present is None else _masked(found, self.present)


class RaggedColumn(Column):
    """Arrays of one dtype that agree in all axes but the first.

    `samples` is `(total, ...)`; row i is `samples[splits[i]:splits[i + 1]]`; `splits` is `int64 (N + 1,)`, begins
    with 0, never falls and ends with `total`.
    """

    __slots__ = ("samples", "splits")

    def __init__(self, samples: npt.NDArray[Any], splits: Rows, present: Mask | None = None) -> None:
        if samples.flags.writeable:
            samples = samples.view()
            samples.flags.writeable = False
        self.samples = samples
        self.splits = splits
        self.type = ValueType.NDARRAY
        self.present = present

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, row: int) -> Any:
        if self.present is not None and not self.present[row]:
            return MISSING
        row = range(len(self))[row]
        return self.samples[self.splits[row] : self.splits[row + 1]]

    def take(self, rows: Rows) -> Column:
        """Dense if the rows taken have equally many samples, as when the odd ones are left behind."""
        starts, ends = self.splits[:-1][rows], self.splits[1:][rows]
        counts = ends - starts
        splits = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=splits[1:])
        samples = self._gathered(starts, ends, splits)
        present = taken_mask(self.present, rows)
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
        found = [self.samples[a:b] for a, b in itertools.pairwise(edges)]
        return found if self.present is None else _masked(found, self.present)


class ObjectColumn(Column):
    """A list of native values, `MISSING` where a row lacks the key."""

    __slots__ = ("objects",)

    def __init__(self, objects: list[Any], type: ValueType | None = None, present: Mask | None = None) -> None:
        if present is None and _has_gaps(objects):
            present = np.fromiter((value is not MISSING for value in objects), np.bool_, len(objects))
        self.objects = objects
        self.type = type
        self.present = present

    def __len__(self) -> int:
        return len(self.objects)

    def __getitem__(self, row: int) -> Any:
        return self.objects[row]

    def take(self, rows: Rows) -> ObjectColumn:
        objects = self.objects
        return ObjectColumn([objects[row] for row in rows.tolist()], self.type)

    def values(self) -> list[Any]:
        return list(self.objects)


class WireColumn(Column):
    """Undecoded map entries of the input, decoded when first asked for and passed through untouched.

    `entries[i]` is the serialised map entry of row i, tag and length included (so that joined entries are a
    message), or `None`. `decode` turns the entries into a decoded column or raises `RowsFailed`. Who has the entries
    as `Spans` says with `present` which are null; of a list that is found out.
    """

    __slots__ = ("_decode", "_decoded", "entries")

    def __init__(self, entries: Entries, decode: Callable[[Entries], Column], present: Mask | None = None) -> None:
        if present is None and not isinstance(entries, Spans) and None in entries:
            present = np.fromiter((entry is not None for entry in entries), np.bool_, len(entries))
        self.entries = entries
        self.type = None
        self.present = present
        self._decode = decode
        self._decoded: Column | None = None

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def is_decoded(self) -> bool:
        """Whether somebody has asked for the values."""
        return self._decoded is not None

    def decoded(self) -> Column:
        if self._decoded is None:
            self._decoded = self._decode(self.entries)
        return self._decoded

    def __getitem__(self, row: int) -> Any:
        if self._decoded is not None:
            return self._decoded[row]
        entry = self.entries[row]
        return MISSING if entry is None else self._decode([entry])[0]

    def part(self, start: int, stop: int) -> WireColumn:
        present = _cut_mask(self.present, start, stop)
        cut = WireColumn(self.entries[start:stop], self._decode, present)
        if self._decoded is not None:
            cut._decoded = self._decoded.part(start, stop)
        return cut

    def take(self, rows: Rows) -> WireColumn:
        entries = self.entries
        if isinstance(entries, Spans):
            taken = WireColumn(entries.take(rows), self._decode, taken_mask(self.present, rows))
        else:
            taken = WireColumn([entries[row] for row in rows.tolist()], self._decode)
        if self._decoded is not None:
            taken._decoded = self._decoded.take(rows)
        return taken

    def values(self) -> list[Any]:
        return self.decoded().values()

    @property
    def decoder(self) -> Callable[[Entries], Column]:
        """What decodes the entries: the codec's own, which knows what they are."""
        return self._decode

    def joined(self, columns: Sequence[Column]) -> WireColumn | None:
        """The rows of all columns, still undecoded; `None` unless each comes from this codec or has no values."""
        parts: list[Entries] = []
        for column in columns:
            if isinstance(column, WireColumn) and column._decode == self._decode:
                parts.append(column.entries)
            elif column.empty:
                parts.append([None] * len(column))
            else:
                return None
        if any(isinstance(part, Spans) for part in parts):
            return WireColumn(Spans.concat([Spans.of(part) for part in parts]), self._decode, joined_masks(columns))
        return WireColumn(list(itertools.chain.from_iterable(parts)), self._decode)


def _typed(column: Column) -> ValueType:
    if column.type is None:
        raise DataError("a dense column without a value type")
    return column.type


def taken_mask(present: Mask | None, rows: Rows) -> Mask | None:
    """Which of these rows have the key; `None` if all."""
    if present is None:
        return None
    taken = present[rows]
    return None if taken.all() else taken


def _cut_mask(present: Mask | None, start: int, stop: int) -> Mask | None:
    if present is None:
        return None
    cut = present[start:stop]
    return None if cut.all() else cut


def _masked(values: list[Any], present: Mask) -> list[Any]:
    return [value if there else MISSING for value, there in zip(values, present.tolist(), strict=True)]


def _has_gaps(objects: list[Any]) -> bool:
    # A set of the distinct classes is cheap and never compares values (arrays refuse to be compared).
    return Missing in set(map(type, objects))


def _column_of(values: Sequence[Any]) -> Column:
    values = list(values)
    # One value of each class: classes are few, and the class decides the type.
    examples = {value.__class__: value for value in values}
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
        return ObjectColumn(values, compact.type, present)
    array = np.zeros((len(values), *compact.array.shape[1:]), compact.array.dtype)
    array[there] = compact.array
    return DenseColumn(array, _typed(compact), present)


def _column_of_arrays(arrays: list[npt.NDArray[Any]]) -> Column:
    first = arrays[0]
    if len(arrays) == 1 and first.flags.c_contiguous and first.dtype.isnative:
        return DenseColumn(first[np.newaxis])  # no copy
    dtype, shape = first.dtype, first.shape
    if any(array.dtype != dtype for array in arrays):
        return ObjectColumn(list(arrays), ValueType.NDARRAY)
    if all(array.shape == shape for array in arrays):
        return DenseColumn(np.stack(arrays))
    inner = shape[1:]
    if first.ndim == 0 or any(array.ndim == 0 or array.shape[1:] != inner for array in arrays):
        return ObjectColumn(list(arrays), ValueType.NDARRAY)
    splits = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(array) for array in arrays], out=splits[1:])
    return RaggedColumn(np.concatenate(arrays), splits)


def _concat(columns: Sequence[Column]) -> Column:
    if len(columns) == 1:
        return columns[0]
    if not columns:
        return ObjectColumn([])
    for column in {column.__class__: column for column in columns}.values():
        joined = column.joined(columns)
        if joined is not None:
            return joined
    dense = [column for column in columns if isinstance(column, DenseColumn) and _stackable(columns[0], column)]
    if len(dense) == len(columns):
        return DenseColumn(np.concatenate([column.array for column in dense]), _typed(dense[0]), joined_masks(dense))
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
    found: list[Any] = []
    failures: dict[int, Exception] = {}
    for column in columns:
        try:
            found.extend(column.values())
        except RowsFailed as error:
            # Positions are those in the joined column.
            failures.update({len(found) + position: reason for position, reason in error.failures.items()})
            found.extend([MISSING] * len(column))
    if failures:
        raise RowsFailed(failures)
    return found


def _joinable(a: Column, b: RaggedColumn) -> bool:
    if not isinstance(a, RaggedColumn):
        return False
    return a.samples.dtype == b.samples.dtype and a.samples.shape[1:] == b.samples.shape[1:]


def _stackable(a: Column, b: DenseColumn) -> bool:
    return (
        isinstance(a, DenseColumn)
        and a.type is b.type
        and a.array.dtype == b.array.dtype
        and a.array.shape[1:] == b.array.shape[1:]
    )


def joined_masks(columns: Sequence[Column]) -> Mask | None:
    """Which rows of all columns, one after the other, have the key; `None` if all."""
    if all(column.present is None for column in columns):
        return None
    masks = [np.ones(len(column), np.bool_) if column.present is None else column.present for column in columns]
    return np.concatenate(masks)
