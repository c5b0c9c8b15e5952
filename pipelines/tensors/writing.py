"""`WritableDense`: writing through a view, and through cursors over its elements and parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np

from pipelines.tensors.access import check_rank
from pipelines.tensors.cells import CHUNK, Array, Cells
from pipelines.tensors.dense import Cursor, DenseView, Elements
from pipelines.tensors.errors import BoundsError, RankError
from pipelines.tensors.index import IndexLike, selections

T = TypeVar("T")
W = TypeVar("W", bound="WritableDense[Any]")


class WritableCursor(Cursor[T]):
    """A cursor that also writes: `cursor.put(10).put(20)`."""

    def __init__(self, view: WritableDense[T]) -> None:
        super().__init__(view)
        self._target = view

    def put(self, value: Any) -> Self:
        """Write the element here and move on. `BoundsError` behind the last one, `DataError` if it does not fit."""
        if not self.has_more:
            raise BoundsError(f"the cursor is at the end of its {self._count} elements")
        self._target.put_part(self._next, [value])
        self._next += 1
        return self

    def on_each(self, supply: Callable[[], Any]) -> None:
        """Write a value of `supply` into each element that is left. Values before an error stay written."""
        while self.has_more:
            count = min(CHUNK, self._count - self._next)
            values: list[Any] = []
            try:
                for _ in range(count):
                    values.append(supply())
            finally:
                self._target.put_part(self._next, values)
                self._next += len(values)


class WritableElements(Elements[W]):
    """Goes over the parts of a view along its first axis and writes them."""

    def put(self, values: Any) -> Self:
        """Write the part here and move on. Raises as `WritableDense.copy_from` does."""
        if not self.has_more:
            raise BoundsError(f"there are {self._view.shape[0]} elements along the first axis, and no more")
        self._view.slice(self._next).copy_from(values)
        self._next += 1
        return self

    def scalars(self) -> WritableCursor[Any]:
        """A writing cursor over the part here, which is of rank 1; moves on."""
        return self.get().scalars()


class WritableDense(DenseView[T]):
    """A view that writes into its memory; so do its slices."""

    __slots__ = ()

    def put(self, value: Any, *indices: IndexLike) -> Self:
        """Write `value` where the indices say; the view itself comes back.

        With one index for each axis one element, or several that lie one after the other on the last axis from there
        on; with fewer indices all elements of that part (see `copy_from`). Raises `RankError`, `BoundsError`, and
        `DataError` for values that do not fit the element type; nothing is changed then.
        """
        if type(value) in _SINGLE and len(indices) == self.rank and set(map(type, indices)) == {int}:
            self._cells.put(indices, self._codec.cell(value))
            return self
        part = self._cells.sliced(indices)
        if part.shape:
            _copy(part, self._codec.cells(value, part.count))
        elif self.rank and not _is_single(value):
            self._put_run(value, indices)
        else:
            part.check_writable()
            part.array[()] = self._codec.cell(value)
        return self

    def copy_from(self, source: Any, *indices: IndexLike) -> Self:
        """Write all elements, or those of a part.

        Args:
            source: A tensor, an array or nested lists of the same shape, or as many values in a row: a buffer, bytes
                (elements as they lie in memory), an iterator. Of a longer row the first values are taken.
            *indices: The part, by default all.

        Raises:
            BoundsError: Too few values or another shape; nothing is changed then.
            DataError: Values do not fit; nothing is changed then.
        """
        part = self._cells.sliced(indices) if indices else self._cells
        _copy(part, self._codec.cells(source, part.count))
        return self

    def complete(self) -> None:
        """End all writing through this view, those it was sliced from, its slices and their arrays; reading goes on."""
        self._cells.lease.complete()

    def put_part(self, start: int, values: list[Any]) -> None:
        """Write these elements from `start` on in row-major order."""
        if values:
            self._cells.write(start, self._codec.cells(values, len(values)))

    def elements(self) -> WritableElements[Self]:
        check_rank(self, 1, None, "elements() goes over the first axis of a tensor")
        return WritableElements(self)

    def scalars(self) -> WritableCursor[T]:
        check_rank(self, 1, 1, "scalars() goes over a tensor of rank 1")
        return self.cursor()

    def cursor(self) -> WritableCursor[T]:
        return WritableCursor(self)

    def _put_run(self, values: Any, indices: tuple[IndexLike, ...]) -> None:
        *before, start = selections(indices, self.shape)
        row = self._cells.sliced([index for index in before if isinstance(index, int)])
        if len(row.shape) != 1 or not isinstance(start, int):
            raise RankError("values that lie one after the other begin at one integer for each axis")
        run = self._codec.cells(values, row.shape[0] + 1)
        if run.ndim != 1 or start + run.size > row.shape[0]:
            raise BoundsError(
                f"{run.size} values from {start} on do not fit an axis of {row.shape[0]} elements; nothing was written"
            )
        row.write(start, run)


def _is_single(value: Any) -> bool:
    return type(value) in _SINGLE or isinstance(value, (str, bytes)) or np.ndim(value) == 0


def _copy(target: Cells, values: Array) -> None:
    count = target.count
    if values.shape != target.shape:
        if values.ndim != 1 or values.size < count:
            raise BoundsError(
                f"values of the shape {list(values.shape)} do not fill {list(target.shape)}; nothing was written"
            )
        values = values[:count]
    target.check_writable()
    if target.direct and values.shape == target.shape:
        np.copyto(target.array, values)
        return
    if np.may_share_memory(values, target.array):
        values = values.copy()
    target.write(0, values.reshape(-1))


_SINGLE = frozenset({int, float, bool, str, bytes})
