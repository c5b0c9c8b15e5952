"""Ragged tensors: rows whose lengths differ, along any axis but the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, WrongTypeError
from pipelines.tensors import index
from pipelines.tensors.access import Tensor, tensor_data
from pipelines.tensors.create import DType, checked_shape, view
from pipelines.tensors.dense import DenseView
from pipelines.tensors.errors import BoundsError, RankError, ReadOnlyError
from pipelines.tensors.index import IndexLike
from pipelines.tensors.numbers import Numbers
from pipelines.tensors.strings import strings
from pipelines.tensors.text import Collected
from pipelines.values.ndarray import array_type

S = TypeVar("S", bound=np.generic)
T = TypeVar("T")

Splits: TypeAlias = npt.NDArray[np.int64]
"""Where the rows of a ragged axis begin, one more than there are rows: row i is `[splits[i], splits[i + 1])`."""

RAGGED = -1
"""The length of a ragged axis in a shape."""


class RaggedTensor(Tensor[T]):
    """All elements in one row, `values` `(n,)`, and for each axis but the first its length or its `splits`.

    The form of TensorFlow's RaggedTensor (nested row splits) and of Arrow's lists. `shape` has -1 for ragged axes.
    """

    __slots__ = ("_levels", "_start", "_stop", "_values")

    def __init__(self, levels: tuple[int | Splits, ...], values: DenseView[T], start: int, stop: int) -> None:
        """For `RaggedTensor.of`, which checks its arguments: the rows from `start` up to `stop`."""
        self._levels = levels
        self._values = values
        self._start = start
        self._stop = stop

    @staticmethod
    def of(values: DenseView[T], shape: Sequence[int], splits: Sequence[Any]) -> RaggedTensor[T]:
        """A tensor over these, without a copy: one `splits` for each axis of `shape` that is -1.

        Raises `DataError` for splits that fall, do not begin with 0 or do not end with the last element.
        """
        lengths = checked_ragged(shape)
        given = [view(part, np.int64).array for part in splits]
        if len(given) != lengths.count(RAGGED) or values.rank != 1:
            raise DataError(
                f"the shape {list(lengths)} has {lengths.count(RAGGED)} ragged axes, and {len(given)} splits"
            )
        levels: list[int | Splits] = []
        rows = lengths[0]
        left = iter(given)
        for length in lengths[1:]:
            if length != RAGGED:
                levels.append(length)
                rows *= length
                continue
            edges = next(left)
            if edges.shape != (rows + 1,) or edges[0] != 0 or (np.diff(edges) < 0).any():
                raise DataError(f"the splits of {rows} rows are {rows + 1} numbers that rise from 0")
            levels.append(edges)
            rows = int(edges[-1])
        if rows != values.total_size:
            raise DataError(f"the splits end with {rows} elements, and there are {values.total_size}")
        return RaggedTensor(tuple(levels), values.reshaped((rows,)), 0, lengths[0])

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._stop - self._start, *(level if isinstance(level, int) else RAGGED for level in self._levels))

    def size(self, axis: int) -> int:
        """The length of an axis. `RankError` for a ragged one: its rows have lengths of their own."""
        length = super().size(axis)
        if length == RAGGED:
            raise RankError(f"axis {axis} of {list(self.shape)} is ragged; slice to one row and ask for its size")
        return length

    @property
    def total_size(self) -> int:
        start, stop = self._bounds()
        return stop - start

    @property
    def values(self) -> DenseView[T]:
        """All elements in row-major order, `(n,)`."""
        return self._values.slice(index.range(*self._bounds()))

    @property
    def splits(self) -> list[Splits]:
        """Where the rows of each ragged axis begin, int64, from 0 on. Of a whole tensor nothing is copied."""
        splits: list[Splits] = []
        start, stop = self._start, self._stop
        for level in self._levels:
            if isinstance(level, int):
                start, stop = start * level, stop * level
                continue
            edges = level[start : stop + 1]
            splits.append(edges if edges[0] == 0 else edges - edges[0])
            start, stop = int(level[start]), int(level[stop])
        return splits

    def get(self, *indices: int) -> T:
        if len(indices) != self.rank:
            raise RankError(f"an element of a tensor of rank {self.rank} has {self.rank} indices, not {len(indices)}")
        row = self._start + index.position(indices[0], self._stop - self._start)
        for position, level in zip(indices[1:], self._levels, strict=True):
            row = _child(row, position, level)
        return self._values.get(row)

    def slice(self, *indices: IndexLike) -> Tensor[T]:
        """The part at these integers, one for each of the first axes, without a copy: dense if no ragged axis is left.

        `WrongTypeError` for other indices.
        """
        part: Tensor[T] = self
        for number, selector in enumerate(index.expanded(indices)):
            if not isinstance(part, RaggedTensor):
                return part.slice(*index.expanded(indices)[number:])
            selected = selector.select(part.size(0))
            if not isinstance(selected, int):
                raise WrongTypeError("a ragged tensor is sliced by integers; slice its rows or its values further")
            part = part._element(selected)
        return part

    def elements(self) -> Iterator[Tensor[T]]:
        return (self._element(row) for row in range(self._stop - self._start))

    def stream(self, *indices: IndexLike) -> Iterator[T]:
        return (self.slice(*indices) if indices else self.values).stream()

    def to_list(self) -> list[Any]:
        """Nested lists of all elements."""
        return [_listed(element) for element in self.elements()]

    def as_data_value(self) -> Any:
        data = tensor_data("ragged", self.shape)
        axes = [axis for axis, length in enumerate(self.shape) if length == RAGGED]
        for axis, splits in zip(axes, self.splits, strict=True):
            data[f"splits_{axis}"] = splits
        data["values"] = self.values
        return data

    def _element(self, number: int) -> Tensor[T]:
        row, level, rest = self._start + number, self._levels[0], self._levels[1:]
        start, stop = (
            (row * level, (row + 1) * level) if isinstance(level, int) else (int(level[row]), int(level[row + 1]))
        )
        uniform = [axis for axis in rest if isinstance(axis, int)]
        if len(uniform) < len(rest):
            return RaggedTensor(rest, self._values, start, stop)
        inner = int(np.prod(uniform, dtype=np.int64))
        part = self._values.slice(index.range(start * inner, stop * inner))
        return part.reshaped((stop - start, *uniform))

    def _bounds(self) -> tuple[int, int]:
        start, stop = self._start, self._stop
        for level in self._levels:
            if isinstance(level, int):
                start, stop = start * level, stop * level
            else:
                start, stop = int(level[start]), int(level[stop])
        return start, stop


class RaggedWriter(Generic[T]):
    """The object that the initialiser of a ragged tensor writes to. Ragged axes grow, all others have their length."""

    def __init__(self, shape: tuple[int, ...], check: Callable[[Any], Any]) -> None:
        self.shape = shape
        self._check = check
        self._values: dict[tuple[int, ...], Any] = {}
        self._given: dict[tuple[int, ...], int] = {}
        self._open = True

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def put(self, value: Any, *indices: int) -> RaggedWriter[T]:
        """Set one element, or with fewer indices all elements of a row from nested lists.

        `BoundsError` beyond an axis that is not ragged, `RankError` for values of another depth.
        """
        if not self._open:
            raise ReadOnlyError("the tensor is complete and can no longer be written; write while it is created")
        if len(indices) > self.rank:
            raise RankError(f"{len(indices)} indices for a tensor of rank {self.rank} {list(self.shape)}")
        wanted = tuple(map(index.integer, indices))
        for position, size in zip(wanted, self.shape, strict=False):
            if size != RAGGED:
                index.position(position, size)
            elif position < 0:
                raise BoundsError(f"index {position} is negative; positions count from 0")
        values: dict[tuple[int, ...], Any] = {}
        given: dict[tuple[int, ...], int] = {}
        self._place(value, wanted, values, given)
        self._values.update(values)
        self._given.update(given)
        return self

    def complete(self) -> tuple[list[Splits], list[Any], list[int]]:
        """Splits, values in row-major order and the places of these among all; nothing can be written any more.

        `DataError` if a row has a gap.
        """
        self._open = False
        places = sorted(self._values)
        rows: list[tuple[int, ...]] = [(row,) for row in range(self.shape[0])]
        splits: list[Splits] = []
        for axis, size in enumerate(self.shape[1:], 1):
            lengths = dict.fromkeys(rows, size) if size != RAGGED else _lengths(rows, places, axis, self._given)
            if size == RAGGED:
                splits.append(np.concatenate([[0], np.cumsum(list(lengths.values()), dtype=np.int64)]).astype(np.int64))
            rows = [(*row, position) for row in rows for position in range(lengths[row])]
        at = {row: number for number, row in enumerate(rows)}
        return splits, [self._values[place] for place in places], [at[place] for place in places]

    def _place(
        self, value: Any, place: tuple[int, ...], values: dict[tuple[int, ...], Any], given: dict[tuple[int, ...], int]
    ) -> None:
        if len(place) == self.rank:
            values[place] = self._check(value)
            return
        if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
            raise RankError(f"a row at {list(place)} of {list(self.shape)} is written from a list, not {value!r}")
        inner = list(value)
        size = self.shape[len(place)]
        if size not in (RAGGED, len(inner)):
            raise BoundsError(f"{len(inner)} values for an axis of {size} elements")
        # Needed for empty rows, which have no elements that show their length.
        given[place] = len(inner)
        for number, item in enumerate(inner):
            self._place(item, (*place, number), values, given)


def ragged(shape: Sequence[int], dtype: DType[S], init: Callable[[RaggedWriter[S]], object]) -> RaggedTensor[S]:
    """A ragged tensor of numbers that `init` writes; ragged axes are -1 in `shape`, all but the first may be.

    Elements that it does not set on another axis are 0. `DataError` for a gap in a ragged row. Exceptions of `init` go
    through, and there is no tensor.
    """
    numbers: Numbers[S] = Numbers(np.dtype(dtype))
    array_type(numbers.dtype)
    writer: RaggedWriter[S] = RaggedWriter(checked_ragged(shape), numbers.cell)
    init(writer)
    splits, values, places = writer.complete()
    flat = np.zeros(_total(writer.shape, splits), numbers.dtype)
    flat[places] = values
    return RaggedTensor.of(view(flat), writer.shape, splits)


def ragged_string(shape: Sequence[int], init: Callable[[RaggedWriter[str]], object]) -> RaggedTensor[str]:
    """A ragged tensor of strings; as `ragged`, with empty strings for elements that are not set."""
    writer: RaggedWriter[str] = RaggedWriter(checked_ragged(shape), Collected().cell)
    init(writer)
    splits, values, places = writer.complete()
    flat = np.full(_total(writer.shape, splits), "", object)
    for place, value in zip(places, values, strict=True):
        flat[place] = value
    return RaggedTensor.of(strings(flat), writer.shape, splits)


def checked_ragged(shape: Sequence[int]) -> tuple[int, ...]:
    """`shape`, if a ragged tensor can have it. Raises `DataError`."""
    lengths = tuple(int(length) for length in shape)
    if RAGGED not in lengths:
        raise DataError(f"the shape {list(lengths)} has no ragged axis (-1); dense() makes such a tensor")
    if lengths[0] == RAGGED:
        raise DataError(f"the first axis of {list(lengths)} cannot be ragged: there is one of it; give its length")
    if min(lengths) < RAGGED:
        raise DataError(f"an axis has no length {min(lengths)}; -1 is for ragged ones")
    checked_shape([length for length in lengths if length != RAGGED])
    return lengths


def _child(row: int, position: int, level: int | Splits) -> int:
    if isinstance(level, int):
        return row * level + index.position(position, level)
    start, stop = int(level[row]), int(level[row + 1])
    return start + index.position(position, stop - start)


def _lengths(
    rows: list[tuple[int, ...]], places: list[tuple[int, ...]], axis: int, given: dict[tuple[int, ...], int]
) -> dict[tuple[int, ...], int]:
    lengths = {row: given.get(row, 0) for row in rows}
    for place in places:
        row, position = place[:axis], place[axis]
        if position > lengths[row]:
            raise DataError(f"the row {list(row)} has no element {lengths[row]}, but one at {position}; fill the gap")
        lengths[row] = max(lengths[row], position + 1)
    return lengths


def _total(shape: tuple[int, ...], splits: list[Splits]) -> int:
    left = iter(splits)
    rows = shape[0]
    for length in shape[1:]:
        rows = int(next(left)[-1]) if length == RAGGED else rows * length
    return rows


def _listed(tensor: Any) -> Any:
    return tensor.copy().tolist() if hasattr(tensor, "copy") else tensor.to_list()
