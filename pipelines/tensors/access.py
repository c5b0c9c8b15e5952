"""`Tensor`: read access to tensors of all kinds: dense, sparse or ragged, of numbers or of strings."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from pipelines.data.data import Data
from pipelines.tensors.errors import RankError
from pipelines.tensors.index import IndexLike

KIND = "tensor"
"""The key that says which tensor a nested `Data` is."""

T = TypeVar("T")


class Tensor(ABC, Generic[T]):
    """Elements of the type T along `rank` axes.

    Not a library for calculations: elements are read, and written while a tensor is created; for arithmetic there is
    numpy, which shares its memory (`TensorView.array`).
    """

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The length of each axis; -1 where rows have lengths of their own."""

    @property
    def rank(self) -> int:
        """The number of axes; a scalar has none."""
        return len(self.shape)

    def size(self, axis: int) -> int:
        """The length of an axis. `RankError` if there is no such axis."""
        if not 0 <= axis < self.rank:
            raise RankError(f"a tensor of rank {self.rank} {list(self.shape)} has no axis {axis}")
        return self.shape[axis]

    @property
    def total_size(self) -> int:
        """The number of elements along all axes."""
        return math.prod(self.shape)

    @abstractmethod
    def get(self, *indices: int) -> T:
        """One element. `RankError` if there is not one index for each axis, `BoundsError` beyond an axis."""

    @abstractmethod
    def slice(self, *indices: IndexLike) -> Tensor[T]:
        """A part, without a copy (see `pipelines.tensors.index`). Raises `RankError` and `BoundsError`."""

    @abstractmethod
    def elements(self) -> Iterator[Tensor[T]]:
        """The parts along the first axis, one after the other. `RankError` for a scalar."""

    @abstractmethod
    def stream(self, *indices: IndexLike) -> Iterator[T]:
        """All elements, or those of a part, in row-major order."""

    @abstractmethod
    def as_data_value(self) -> Any:
        """The value that a `Data` keeps when the tensor is put into one (docs/tensors.md)."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.shape)})"


def check_rank(tensor: Tensor[Any], least: int, most: int | None, what: str) -> None:
    """Raise `RankError` if `what` cannot be done with a tensor of this rank."""
    if tensor.rank < least or (most is not None and tensor.rank > most):
        raise RankError(f"{what}, not one of rank {tensor.rank} {list(tensor.shape)}")


def tensor_data(kind: str, shape: tuple[int, ...]) -> Data:
    """A nested `Data` that says which tensor it is, without its values (`pipelines.tensors.carry` lists them)."""
    data = Data({KIND: kind})
    if shape:
        data["shape"] = list(shape)
    return data
