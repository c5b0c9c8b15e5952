"""Indices for slices: `view.slice(index.all(), index.at(0), index.incl(0, 2))`.

One index for an axis; axes without one are taken whole. An integer stands for `at`, and so does a tensor or an array
of one integer; one of rank 1 stands for as many `at` as it has elements. Positions are checked; none are
negative.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import WrongTypeError
from pipelines.tensors.errors import BoundsError, RankError
from pipelines.tensors.selection import Positions, Selection, Span, listed, skipping

__all__ = [
    "Index",
    "IndexLike",
    "all",
    "at",
    "even",
    "excl",
    "expanded",
    "incl",
    "integer",
    "mod",
    "odd",
    "position",
    "range",
    "selections",
]


class Index(ABC):
    """Which positions of an axis."""

    @abstractmethod
    def select(self, size: int) -> int | Selection:
        """The selection on an axis of `size`, or one position, whose axis is gone then. Raises `BoundsError`."""


IndexLike: TypeAlias = "SupportsIndex | Index | npt.NDArray[Any] | Any"
"""An integer, an `Index`, or a tensor or an array of integers of rank 0 or 1."""


def at(position: SupportsIndex) -> Index:
    """The element at `position`; its axis is gone then."""
    return _At(integer(position))


def all() -> Index:  # noqa: A001 - the names are those of the proposal that they come from
    """All elements of the axis."""
    return _Steps(0, 1)


def incl(*positions: SupportsIndex) -> Index:
    """The elements at these positions only, in this order."""
    return _ListedIndex(tuple(map(integer, positions)), included=True)


def excl(*positions: SupportsIndex) -> Index:
    """All elements but those at these positions."""
    return _ListedIndex(tuple(map(integer, positions)), included=False)


def range(start: SupportsIndex, end: SupportsIndex) -> Index:  # noqa: A001
    """The elements from `start` up to `end`, which is not among them."""
    return _Range(integer(start), integer(end))


def even() -> Index:
    """The elements at positions 0, 2, 4, ..."""
    return _Steps(0, 2)


def odd() -> Index:
    """The elements at positions 1, 3, 5, ..."""
    return _Steps(1, 2)


def mod(divisor: SupportsIndex) -> Index:
    """The elements whose positions are multiples of `divisor`, 0 among them."""
    step = integer(divisor)
    if step < 1:
        raise BoundsError(f"mod({step}): a divisor is at least 1")
    return _Steps(0, step)


def expanded(indices: Iterable[IndexLike]) -> list[Index]:
    """One `Index` for each axis that `indices` cover. `WrongTypeError` for an object that is not an index."""
    return [index for entry in indices for index in _expanded(entry)]


def selections(indices: Iterable[IndexLike], shape: tuple[int, ...]) -> list[int | Selection]:
    """One selection for each of the first axes of `shape`. Raises `BoundsError`, and `RankError` for too many."""
    wanted: list[Any] = list(indices)
    if set(map(type, wanted)) == {int} and len(wanted) <= len(shape):
        return [position(index, size) for index, size in zip(wanted, shape, strict=False)]
    given = expanded(wanted)
    if len(given) > len(shape):
        raise RankError(f"{len(given)} indices for a tensor of rank {len(shape)} {list(shape)}")
    return [index.select(size) for index, size in zip(given, shape, strict=False)]


def position(index: SupportsIndex, size: int) -> int:
    """`index`, if it is one of an axis of `size`. Raises `BoundsError`, and `WrongTypeError` for other types."""
    if type(index) is not int:
        index = integer(index)
    if 0 <= index < size:
        return index
    hint = "; positions count from 0, there are no negative ones" if index < 0 else ""
    raise BoundsError(f"index {index} is out of bounds of an axis of {size} elements{hint}")


@dataclass(frozen=True, slots=True)
class _At(Index):
    position: int

    def select(self, size: int) -> int:
        return position(self.position, size)


@dataclass(frozen=True, slots=True)
class _Steps(Index):
    start: int
    step: int

    def select(self, size: int) -> Selection:
        return Span(self.start, self.step, max(0, -(-(size - self.start) // self.step)))


@dataclass(frozen=True, slots=True)
class _Range(Index):
    start: int
    end: int

    def select(self, size: int) -> Selection:
        if not 0 <= self.start <= self.end <= size:
            raise BoundsError(f"range({self.start}, {self.end}) is not a part of an axis of {size} elements")
        return Span(self.start, 1, self.end - self.start)


@dataclass(frozen=True, slots=True)
class _ListedIndex(Index):
    positions: tuple[int, ...]
    included: bool

    def select(self, size: int) -> Selection:
        positions: Positions = np.array([position(index, size) for index in self.positions], np.int64)
        return listed(positions) if self.included else skipping(np.unique(positions), size)


def integer(index: SupportsIndex) -> int:
    """`index` as an `int`. `WrongTypeError` for a boolean, and for any other object that is not an integer."""
    if isinstance(index, (bool, np.bool_)):
        raise _boolean()
    try:
        return operator.index(index)
    except TypeError:
        raise WrongTypeError(f"an index is an integer, not {index!r}") from None


def _boolean() -> WrongTypeError:
    return WrongTypeError("a boolean is not an index; use incl with the positions that are wanted")


def _expanded(index: IndexLike) -> list[Index]:
    if isinstance(index, Index):
        return [index]
    if isinstance(index, (bool, np.bool_)):
        raise _boolean()
    if isinstance(index, SupportsIndex) and not isinstance(index, np.ndarray):
        return [at(index)]
    # A tensor's own elements come as an array.
    array = np.asarray(index)
    if array.ndim > 1 or array.dtype.kind not in "iu":
        raise WrongTypeError(
            f"{array.dtype}{list(array.shape)} is not an index; an integer, an index object, or integers of rank 0 "
            "or 1 are"
        )
    return [at(int(number)) for number in array.reshape(-1)]
