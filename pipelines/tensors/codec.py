"""`Codec`: converts between the cells of a view and its elements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from pipelines.tensors.cells import Array

T = TypeVar("T", covariant=True)


class Codec(Protocol[T]):
    """Makes elements of cells and cells of elements."""

    def element(self, cell: Any) -> T:
        """The element of one cell."""

    def many(self, cells: Array) -> Iterable[T]:
        """The elements of cells `(n,)`."""

    def cell(self, value: Any) -> Any:
        """The cell for `value`. Raises `DataError` for a value that does not fit."""

    def cells(self, values: Any, count: int) -> Array:
        """Cells for `values`, of their shape, or flat; of an iterator at most `count` are taken.

        Raises `DataError` for values that do not fit.
        """

    def release(self) -> None:
        """Let go of memory that elements have besides their cells."""
