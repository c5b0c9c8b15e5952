"""Sparse tensors: the places and values of the few elements that are set; all others are zero, or empty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, WrongTypeError
from pipelines.tensors import index
from pipelines.tensors.access import Tensor, check_rank, tensor_data
from pipelines.tensors.cells import Array, sealed
from pipelines.tensors.create import DType, checked_shape, dense, view
from pipelines.tensors.dense import DenseView
from pipelines.tensors.errors import BoundsError, RankError, ReadOnlyError
from pipelines.tensors.index import IndexLike, selections
from pipelines.tensors.strings import StringView, dense_string, packed
from pipelines.tensors.view import TensorView

S = TypeVar("S", bound=np.generic)
T = TypeVar("T")

MOST_DENSE = 100_000_000
"""Most elements that `to_dense` makes by default."""

# Places are numbered in row-major order, in 64 bits.
_MOST_PLACES = 2**63 - 1


class SparseTensor(Tensor[T]):
    """The elements that are set, by rising place (COO): `indices` int64 `(n, rank)`, `values` `(n,)`, and the `shape`.

    The form of TensorFlow's SparseTensor. Elements that are not set read as 0, or "".
    """

    __slots__ = ("_first", "_indices", "_keys", "_shape", "_values")

    def __init__(
        self, indices: Array, values: DenseView[T], shape: tuple[int, ...], keys: Array, first: int = 0
    ) -> None:
        """For `SparseTensor.of`, which checks its arguments.

        `keys` are the places as numbers in row-major order, of which `first` is that of the first element.
        """
        self._indices = indices
        self._values = values
        self._shape = shape
        self._keys = keys
        self._first = first

    @staticmethod
    def of(indices: Any, values: DenseView[T], shape: Sequence[int]) -> SparseTensor[T]:
        """A tensor of these three; nothing is copied if the places rise in row-major order.

        Raises `DataError` for a place that is set twice or out of bounds, and for numbers that do not go together.
        """
        places = view(indices, np.int64).array
        lengths = checked_shape(shape, _MOST_PLACES)
        if places.shape != (values.total_size, len(lengths)) or values.rank != 1:
            raise DataError(
                f"{values.total_size} values in a tensor of rank {len(lengths)} have indices of the shape "
                f"{[values.total_size, len(lengths)]}, not {list(places.shape)}"
            )
        keys = _keys(places, lengths)
        if len(keys) and (np.diff(keys) <= 0).any():
            order = np.argsort(keys, kind="stable")
            keys, places = keys[order], sealed(places[order])
            if (np.diff(keys) == 0).any():
                raise DataError("a sparse tensor has one value for each place, and a place is there twice")
            values = _reordered(values, order)
        return SparseTensor(places, values, lengths, keys)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """Where elements are set, `(n, rank)`, by rising place; read-only."""
        return self._indices

    @property
    def values(self) -> DenseView[T]:
        """The elements that are set, `(n,)`."""
        return self._values

    @property
    def default(self) -> T:
        """The value of elements that are not set."""
        default: Any = "" if isinstance(self._values, StringView) else self._numbers().dtype.type(0)
        value: T = default
        return value

    def get(self, *indices: int) -> T:
        place = _place(indices, self._shape)
        key = self._first + _key(place, self._shape)
        at = int(np.searchsorted(self._keys, key))
        return self._values.get(at) if at < len(self._keys) and self._keys[at] == key else self.default

    def slice(self, *indices: IndexLike) -> SparseTensor[T]:
        """The part at these integers, one for each of the first axes, without a copy.

        `WrongTypeError` for other indices: `to_dense` makes a tensor that takes them.
        """
        chosen = selections(indices, self._shape)
        fixed = [choice for choice in chosen if isinstance(choice, int)]
        if len(fixed) < len(chosen):
            raise WrongTypeError("a sparse tensor is sliced by integers; to_dense() makes one that takes other indices")
        inner = self._shape[len(fixed) :]
        below = math.prod(inner)
        first = self._first + _key(fixed, self._shape) * below
        start, stop = (int(at) for at in np.searchsorted(self._keys, [first, first + below]))
        return SparseTensor(
            self._indices[start:stop, len(fixed) :],
            self._values.slice(index.range(start, stop)),
            inner,
            self._keys[start:stop],
            first,
        )

    def elements(self) -> Iterator[SparseTensor[T]]:
        check_rank(self, 1, None, "elements() goes over the first axis of a tensor")
        return (self.slice(row) for row in range(self._shape[0]))

    def stream(self, *indices: IndexLike) -> Iterator[T]:
        part = self.slice(*indices) if indices else self
        default, total, next_place = part.default, part.total_size, 0
        for key, value in zip(part._keys.tolist(), part._values.stream(), strict=True):
            place = key - part._first
            while next_place < place:
                yield default
                next_place += 1
            yield value
            next_place += 1
        while next_place < total:
            yield default
            next_place += 1

    def to_dense(self, *, most: int = MOST_DENSE) -> DenseView[T]:
        """A dense tensor of all elements. `DataError` if they are more than `most`: a few bytes can claim many."""
        if self.total_size > most:
            raise DataError(
                f"{list(self._shape)} are {self.total_size} elements, more than {most}; raise `most` if so many fit"
            )
        dense_view: Any
        if isinstance(self._values, StringView):
            listed = np.full(self.total_size, b"", object)
            listed[self._keys - self._first] = self._values.bytes_of_all()
            dense_view = packed(listed.tolist(), self._shape)
        else:
            array = np.zeros(self.total_size, self._numbers().dtype)
            array[self._keys - self._first] = self._numbers().copy()
            dense_view = view(array.reshape(self._shape))
        tensor: DenseView[T] = dense_view
        return tensor

    def as_data_value(self) -> Any:
        data = tensor_data("sparse", self.shape)
        data["indices"] = self.indices
        data["values"] = self.values
        return data

    def __repr__(self) -> str:
        return f"SparseTensor({list(self._shape)}, {self._values.total_size} set)"

    def _numbers(self) -> TensorView[Any]:
        assert isinstance(self._values, TensorView)
        return self._values


class SparseWriter(Generic[T]):
    """The object that the initialiser of a sparse tensor writes to."""

    def __init__(self, shape: tuple[int, ...], count: int, values: Any) -> None:
        self.shape = shape
        self._indices = np.zeros((count, len(shape)), np.int64)
        self._values = values
        self._places: dict[tuple[int, ...], int] = {}
        self._open = True

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def put(self, value: Any, *indices: int) -> SparseWriter[T]:
        """Set one element; setting it again replaces it.

        Raises:
            BoundsError: More elements than were declared, or an index beyond an axis.
            RankError: There is not one index for each axis.
        """
        if not self._open:
            raise ReadOnlyError("the tensor is complete and can no longer be written; write while it is created")
        place = _place(indices, self.shape)
        if not isinstance(value, (str, bytes)) and np.ndim(value):
            raise RankError(f"one element is put at {list(place)}, not {value!r}")
        at = self._places.get(place, len(self._places))
        if at == len(self._indices):
            raise BoundsError(f"{at} values were declared, and {list(place)} is one more")
        self._values.put(value, at)
        self._indices[at] = place
        self._places[place] = at
        return self

    def complete(self) -> Array:
        """The places that were set; nothing can be written any more. `DataError` if fewer were than declared."""
        self._open = False
        if len(self._places) < len(self._indices):
            raise DataError(f"{len(self._indices)} values were declared and {len(self._places)} were put")
        return self._indices


def sparse(
    shape: Sequence[int], dtype: DType[S], num_values: int, init: Callable[[SparseWriter[S]], object]
) -> SparseTensor[S]:
    """A sparse tensor of numbers of which `init` sets exactly `num_values`.

    Exceptions of `init` go through, and there is no tensor. `DataError` if it sets fewer.
    """
    lengths = checked_shape(shape, _MOST_PLACES)
    places: list[Array] = []

    def write(values: Any) -> None:
        writer: SparseWriter[S] = SparseWriter(lengths, num_values, values)
        init(writer)
        places.append(writer.complete())

    values = dense([num_values], dtype, write)
    return SparseTensor.of(places[0], values, lengths)


def sparse_string(
    shape: Sequence[int], num_values: int, init: Callable[[SparseWriter[str]], object], *, length: int | None = None
) -> SparseTensor[str]:
    """A sparse tensor of strings; `length` as for `dense_string`, the rest as for `sparse`."""
    lengths = checked_shape(shape, _MOST_PLACES)
    places: list[Array] = []

    def write(values: Any) -> None:
        writer: SparseWriter[str] = SparseWriter(lengths, num_values, values)
        init(writer)
        places.append(writer.complete())

    values = dense_string([num_values], write, length=length)
    return SparseTensor.of(places[0], values, lengths)


def _place(indices: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(indices) != len(shape):
        raise RankError(f"an element of a tensor of rank {len(shape)} has {len(shape)} indices, not {len(indices)}")
    return tuple(index.position(position, size) for position, size in zip(indices, shape, strict=True))


def _key(place: Sequence[int], shape: tuple[int, ...]) -> int:
    key = 0
    for position, size in zip(place, shape, strict=False):
        key = key * size + position
    return key


def _keys(places: Array, shape: tuple[int, ...]) -> Array:
    if len(places) and ((places < 0).any() or (places >= np.array(shape, np.int64)).any()):
        raise DataError(f"a place is out of bounds of the shape {list(shape)}")
    keys = np.zeros(len(places), np.int64)
    for axis, size in enumerate(shape):
        keys = keys * size + places[:, axis]
    return keys


def _reordered(values: DenseView[T], order: Array) -> DenseView[T]:
    reordered: Any
    if isinstance(values, StringView):
        listed = values.bytes_of_all()
        reordered = packed([listed[at] for at in order.tolist()], (len(listed),))
    else:
        assert isinstance(values, TensorView)
        reordered = view(values.copy()[order])
    tensor: DenseView[T] = reordered
    return tensor
