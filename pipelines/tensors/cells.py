"""Cells: the memory of a view, element by element, with the positions of each axis that it shows."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError
from pipelines.tensors.errors import RankError, ReadOnlyError, ReleasedError
from pipelines.tensors.index import IndexLike, position, selections
from pipelines.tensors.selection import Selection, Span, composed

Array: TypeAlias = npt.NDArray[Any]

CHUNK = 1 << 16
"""Elements that are moved at a time where they do not lie in one piece."""


class Lease:
    """State shared by a view and all views made of it: whether they may still read and write."""

    __slots__ = ("_lent", "_shown", "writable")

    def __init__(self, *, writable: bool) -> None:
        self.writable = writable
        self._lent: list[tuple[weakref.ref[Array], weakref.ref[Array]]] = []
        self._shown: weakref.WeakSet[Cells] = weakref.WeakSet()

    def show(self, cells: Cells) -> None:
        """`cells` show the memory, until `release`."""
        self._shown.add(cells)

    def release(self) -> None:
        """End all reading and writing.

        All cells let go of the memory, so that its owner can close or resize it; an array that was lent still keeps it.
        """
        self.complete()
        for cells in list(self._shown):
            cells.drop()

    def lend(self, array: Array) -> Array:
        """`array`, the memory of the view, for a caller that may write into it until `complete`."""
        if not array.flags.writeable:
            return array
        if not self.writable:
            return sealed(array)
        # Arrays that numpy makes of the lent one, such as slices, keep the root alive.
        root, lent = _lent(array)
        self._lent = [known for known in self._lent if known[0]() is not None]
        self._lent.append((weakref.ref(root), weakref.ref(lent)))
        return lent

    def complete(self) -> bool:
        """End all writing; arrays that were lent are read-only from now on. Returns whether one of them still exists.

        An array also exists while a slice of it does. That slice stays writable: numpy has no way to change that.
        """
        self.writable = False
        known, self._lent = self._lent, []
        kept = [array for pair in known for reference in pair if (array := reference()) is not None]
        for array in kept:
            array.flags.writeable = False
        return bool(kept)


class Cells:
    """An array, and for each of its axes the positions shown (`None`: all). Never copies its array."""

    __slots__ = ("__weakref__", "_array", "_axes", "lease", "shape")

    def __init__(self, array: Array, axes: tuple[Selection | None, ...] = (), lease: Lease | None = None) -> None:
        self._array: Array | None = array
        self._axes = axes if any(axes) else ()
        self.lease = Lease(writable=array.flags.writeable) if lease is None else lease
        self.lease.show(self)
        lengths = array.shape
        if self._axes:
            lengths = tuple(
                size if axis is None else axis.count for size, axis in zip(lengths, self._axes, strict=True)
            )
        self.shape: tuple[int, ...] = lengths

    @property
    def count(self) -> int:
        """The number of elements shown."""
        return math.prod(self.shape)

    @property
    def direct(self) -> bool:
        """Whether the cells are those of the whole array, unselected."""
        return not self._axes

    @property
    def array(self) -> Array:
        """The array, of which `direct` cells show all. Raises `ReleasedError`."""
        if self._array is None:
            raise ReleasedError("the view was released; make another one")
        return self._array

    def lend(self) -> Array:
        """The array for a caller: writable only as long as the lease is."""
        return self.lease.lend(self.array)

    def drop(self) -> None:
        """Let go of the array."""
        self._array = None

    def check_writable(self) -> None:
        """Raise `ReadOnlyError` if writing has ended."""
        if not self.lease.writable:
            raise ReadOnlyError("the tensor is complete and can no longer be written; write while it is created")

    def locate(self, indices: Sequence[int]) -> tuple[int, ...]:
        """Where in the array one element is. Raises `RankError` and `BoundsError`."""
        if len(indices) != len(self.shape):
            raise RankError(
                f"an element of a tensor of rank {len(self.shape)} {list(self.shape)} has {len(self.shape)} indices, "
                f"not {len(indices)}; slice() gives parts"
            )
        checked = [position(index, size) for index, size in zip(indices, self.shape, strict=True)]
        if self._axes:
            return tuple(
                place if axis is None else int(axis.resolve(np.array([place]))[0])
                for place, axis in zip(checked, self._axes, strict=True)
            )
        return tuple(checked)

    def put(self, indices: Sequence[Any], cell: Any) -> None:
        """Write one cell. Raises `RankError`, `BoundsError` and `ReadOnlyError`."""
        where = self.locate(indices)
        self.check_writable()
        self.array[where] = cell

    def sliced(self, indices: Sequence[IndexLike]) -> Cells:
        """The part that these indices show. Raises `RankError` and `BoundsError`."""
        basic: list[int | slice] = []
        axes: list[Selection | None] = []
        chosen = selections(indices, self.shape)
        for number, selected in enumerate(chosen):
            axis = self._axes[number] if self._axes else None
            if isinstance(selected, int):
                basic.append(selected if axis is None else int(axis.resolve(np.array([selected]))[0]))
            elif axis is None and isinstance(selected, Span):
                basic.append(selected.slice())
                axes.append(None)
            else:
                basic.append(slice(None))
                axes.append(composed(axis, selected))
        rest = self._axes[len(chosen) :] or (None,) * (len(self.shape) - len(chosen))
        # The ellipsis keeps a single element an array, which is a view.
        return Cells(self.array[(*basic, ...)], (*axes, *rest), self.lease)

    def reshaped(self, shape: tuple[int, ...]) -> Cells:
        """The same elements along other axes. `DataError` for elements that were picked one by one."""
        if self._axes:
            raise DataError("elements that were picked with incl or excl have no other shape; copy() them first")
        return Cells(self.array.reshape(shape), lease=self.lease)

    def read(self, start: int, stop: int) -> Array:
        """The elements from `start` up to `stop` in row-major order, `(stop - start,)`; a view where possible."""
        array = self.array
        if self._axes:
            elements: Array = array[self._scattered(start, stop)]
            return elements
        if array.flags.c_contiguous:
            return array.reshape(-1)[start:stop]
        return array.flat[start:stop]

    def write(self, start: int, values: Array) -> None:
        """Put `values` `(n,)`, of the array's dtype, at the places from `start` on in row-major order."""
        array = self.array
        self.check_writable()
        if self._axes:
            for first in range(0, len(values), CHUNK):
                part = values[first : first + CHUNK]
                array[self._scattered(start + first, start + first + len(part))] = part
        elif array.flags.c_contiguous:
            array.reshape(-1)[start : start + len(values)] = values
        else:
            array.flat[start : start + len(values)] = values

    def copy(self) -> Array:
        """All elements in a new array in C order."""
        if not self._axes:
            return np.array(self.array, order="C")
        made = np.empty(self.shape, self.array.dtype)
        flat = made.reshape(-1)
        for start in range(0, self.count, CHUNK):
            flat[start : start + CHUNK] = self.read(start, min(start + CHUNK, self.count))
        return made

    def _scattered(self, start: int, stop: int) -> tuple[npt.NDArray[np.int64], ...]:
        places = np.unravel_index(np.arange(start, stop), self.shape)
        return tuple(nth if axis is None else axis.resolve(nth) for nth, axis in zip(places, self._axes, strict=True))


def sealed(array: Array) -> Array:
    """The same memory as an array that cannot be made writable."""
    if array.dtype.name == "bfloat16":
        return sealed(array.view(np.uint16)).view(array.dtype)
    return np.asarray(array.data.toreadonly())


def _lent(array: Array) -> tuple[Array, Array]:
    """Two arrays over the same memory: the base that numpy keeps alive for every slice, and the array to lend."""
    if array.dtype.name == "bfloat16":
        root = np.asarray(array.view(np.uint16).data)
        return root, root.view(array.dtype)
    root = np.asarray(array.data)
    return root, root
