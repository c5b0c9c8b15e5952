"""`DenseView`: a tensor of any elements over memory that another object may own; cursors over elements and parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pipelines.tensors.access import Tensor, check_rank
from pipelines.tensors.cells import CHUNK, Cells
from pipelines.tensors.codec import Codec
from pipelines.tensors.errors import BoundsError, ReadOnlyError
from pipelines.tensors.index import IndexLike

T = TypeVar("T")
V = TypeVar("V", bound="DenseView[Any]")

_WRITES = frozenset({"put", "copy_from", "load", "put_part"})


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
        (element,) = self._view.part(self._next, self._next + 1)
        self._next += 1
        return element

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


class DenseView(Tensor[T]):
    """Elements in memory, one cell each. A slice shows the same memory; nothing is copied before it is asked for."""

    __slots__ = ("_cells", "_codec")

    def __init__(self, cells: Cells, codec: Codec[T]) -> None:
        self._cells = cells
        self._codec = codec

    @property
    def shape(self) -> tuple[int, ...]:
        return self._cells.shape

    def get(self, *indices: int) -> T:
        where = self._cells.locate(indices)
        return self._codec.element(self._cells.array[where])

    def slice(self, *indices: IndexLike) -> Self:
        return type(self)(self._cells.sliced(indices), self._codec)

    def reshaped(self, shape: tuple[int, ...]) -> Self:
        """The elements of a row along several axes, without a copy.

        `DataError` for elements that were picked with `incl` or `excl`.
        """
        check_rank(self, 1, 1, "reshaped() takes a tensor of rank 1")
        return type(self)(self._cells.reshaped(shape), self._codec)

    def elements(self) -> Elements[Self]:
        check_rank(self, 1, None, "elements() goes over the first axis of a tensor")
        return Elements(self)

    def scalars(self) -> Cursor[T]:
        """A cursor over the elements of a tensor of rank 1. `RankError` for another rank; `cursor` takes any."""
        check_rank(self, 1, 1, "scalars() goes over a tensor of rank 1")
        return self.cursor()

    def cursor(self) -> Cursor[T]:
        """A cursor over all elements in row-major order."""
        return Cursor(self)

    def stream(self, *indices: IndexLike) -> Iterator[T]:
        view = self.slice(*indices) if indices else self
        count = view.total_size
        for start in range(0, count, CHUNK):
            yield from view.part(start, min(start + CHUNK, count))

    def part(self, start: int, stop: int) -> Iterable[T]:
        """The elements from `start` up to `stop` in row-major order."""
        # Copied, so that an iterator that is not at its end keeps no memory after a release.
        return self._codec.many(self._cells.read(start, stop).copy())

    def release(self) -> None:
        """Let go of the memory now.

        This view, the view that it was sliced from and their slices can no longer be used; they raise `ReleasedError`.
        An array that was taken out of one (`array`) keeps the memory.
        """
        self._cells.lease.release()
        self._codec.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in _WRITES:
                raise ReadOnlyError(
                    f"{type(self).__name__} is read-only and has no {name}(); writable() makes a view that has"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
