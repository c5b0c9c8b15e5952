"""`WritableDense`: writing through a view."""

from __future__ import annotations

from typing import Any, Self, TypeVar

import numpy as np

from pipelines.tensors.access import check_rank
from pipelines.tensors.cells import Array, Cells
from pipelines.tensors.cursor import WritableCursor, WritableElements
from pipelines.tensors.dense import DenseView
from pipelines.tensors.errors import BoundsError, RankError
from pipelines.tensors.index import IndexLike, selections

T = TypeVar("T")


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
        row = self._cells.sliced([one for one in before if isinstance(one, int)])
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
