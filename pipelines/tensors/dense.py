"""`DenseView`: a tensor of any elements over memory that another object may own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pipelines.tensors.access import Tensor, check_rank
from pipelines.tensors.cells import CHUNK, Cells
from pipelines.tensors.codec import Codec
from pipelines.tensors.cursor import Cursor, Elements
from pipelines.tensors.errors import ReadOnlyError
from pipelines.tensors.index import IndexLike

T = TypeVar("T")

_WRITES = frozenset({"put", "copy_from", "load", "put_part"})


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
        return self._codec.one(self._cells.array[where])

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
