"""Iteration: cursors over the elements of a view, and over its parts along the first axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pipelines.tensors.cells import CHUNK
from pipelines.tensors.errors import BoundsError

if TYPE_CHECKING:
    from pipelines.tensors.dense import DenseView
    from pipelines.tensors.writing import WritableDense

T = TypeVar("T")
V = TypeVar("V", bound="DenseView[Any]")
W = TypeVar("W", bound="WritableDense[Any]")


class Cursor(Iterator[T], Generic[T]):
    """Goes over the elements of a view in row-major order; each read moves on."""

    def __init__(self, view: DenseView[T]) -> None:
        self._view = view
        self._next = 0
        self._count = view.total_size

    @property
    def has_more(self) -> bool:
        """Whether there are elements left."""
        return self._next < self._count

    def get(self) -> T:
        """The element here. `BoundsError` behind the last one."""
        if not self.has_more:
            raise BoundsError(f"the cursor is at the end of its {self._count} elements")
        (found,) = self._view.part(self._next, self._next + 1)
        self._next += 1
        return found

    def for_each(self, consume: Callable[[T], object]) -> None:
        """Call `consume` with each element that is left."""
        for element in self:
            consume(element)

    def __iter__(self) -> Iterator[T]:
        # In chunks: reading one element at a time costs much more.
        while self.has_more:
            for element in self._view.part(self._next, min(self._next + CHUNK, self._count)):
                self._next += 1
                yield element

    def __next__(self) -> T:
        if not self.has_more:
            raise StopIteration
        return self.get()


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
            found: list[Any] = []
            try:
                for _ in range(count):
                    found.append(supply())
            finally:
                self._target.put_part(self._next, found)
                self._next += len(found)


class Elements(Iterator[V], Generic[V]):
    """Goes over the parts of a view along its first axis."""

    def __init__(self, view: V) -> None:
        self._view = view
        self._next = 0

    @property
    def has_more(self) -> bool:
        """Whether there are parts left."""
        return self._next < self._view.shape[0]

    def scalars(self) -> Cursor[Any]:
        """A cursor over the part here, which is of rank 1; moves on."""
        return self.get().scalars()

    def get(self) -> V:
        """The part here; moves on. `BoundsError` behind the last one."""
        if not self.has_more:
            raise BoundsError(f"there are {self._view.shape[0]} elements along the first axis, and no more")
        part = self._view.slice(self._next)
        self._next += 1
        return part

    def __next__(self) -> V:
        if not self.has_more:
            raise StopIteration
        return self.get()


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
