"""Making dense tensors of numbers: views over memory that is there, and new ones written where they will stay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np

from pipelines.data.columns import DenseColumn
from pipelines.errors import DataError, WrongTypeError
from pipelines.tensors.cells import Array, Cells, Lease, sealed
from pipelines.tensors.errors import BoundsError, ReadOnlyError
from pipelines.tensors.index import position
from pipelines.tensors.view import TensorView, WritableView
from pipelines.values.conversion.arrayconverters import array_conversions
from pipelines.values.conversion.formats import ArrayFormat
from pipelines.values.conversion.holder import NDArray
from pipelines.values.ndarray import MAX_RANK, array_type

S = TypeVar("S", bound=np.generic)

DType: TypeAlias = type[S] | np.dtype[S]
"""An element type as numpy names it: `numpy.float32`."""

# Formats of buffers that are bytes, not elements.
_PLAIN = frozenset({"B", "b", "c"})
# Elements of 16 bytes whose bytes numpy can count.
_MOST_ELEMENTS = 2**59


@overload
def view(
    source: Any, dtype: None = None, shape: Sequence[int] | None = None, *, offset: int = 0
) -> TensorView[Any]: ...
@overload
def view(source: Any, dtype: DType[S], shape: Sequence[int] | None = None, *, offset: int = 0) -> TensorView[S]: ...
def view(source: Any, dtype: Any = None, shape: Sequence[int] | None = None, *, offset: int = 0) -> TensorView[Any]:
    """A read-only view over memory, without a copy.

    `source` is anything with a buffer (bytes, mmap, SharedMemory, a camera frame's plane), whose bytes from `offset`
    on are elements of `dtype` in C order in the machine's byte order, `shape` of them (without it as many as there
    are, along one axis); or an array: numpy's, a PyTorch or Arrow one, anything with DLPack, an `NDArray`, whose own
    dtype and shape count. It stays alive as long as the view, and cannot be changed through it.

    Raises `BoundsError` for memory that is too small, `WrongTypeError` for an array of another dtype.
    """
    return TensorView(Cells(sealed(_memory(source, dtype, shape, offset))))


@overload
def writable(
    source: Any, dtype: None = None, shape: Sequence[int] | None = None, *, offset: int = 0
) -> WritableView[Any]: ...
@overload
def writable(
    source: Any, dtype: DType[S], shape: Sequence[int] | None = None, *, offset: int = 0
) -> WritableView[S]: ...
def writable(
    source: Any, dtype: Any = None, shape: Sequence[int] | None = None, *, offset: int = 0
) -> WritableView[Any]:
    """A view that writes into the memory of `source`, which is as for `view`.

    Raises as `view` does, and `ReadOnlyError` for memory that cannot be written.
    """
    array = _memory(source, dtype, shape, offset)
    if not array.flags.writeable:
        raise ReadOnlyError(f"the memory of this {type(source).__name__} cannot be written; view() reads it")
    return WritableView(Cells(array))


def dense(
    shape: Sequence[int], dtype: DType[S], init: Callable[[WritableView[S]], object], *, out: Any = None
) -> TensorView[S]:
    """A tensor that `init` writes where it will stay: in new memory, or in that of `out` (a buffer or an array).

    New memory holds zeros at first. Once `init` is done the tensor is complete: the view that it was given, the
    slices of that and their arrays write no more. New memory of which `init` keeps an array is left to it, and the
    tensor is a copy: numpy may have made slices of that array, which cannot be made read-only. Exceptions of `init` go
    through, and there is no tensor.
    """
    lengths = checked_shape(shape)
    array = np.zeros(lengths, dtype) if out is None else writable(out, dtype, lengths).array
    array_type(array.dtype)
    lease = Lease(writable=True)
    try:
        init(WritableView(Cells(array, lease=lease)))
    finally:
        kept = lease.complete()
    return TensorView(Cells(sealed(array.copy() if kept and out is None else array)))


class Slots(Generic[S]):
    """Memory for the arrays of a batch: one slot a row, filled in place, then a column without a copy.

    `dtype`, `shape` are those of one row. `slots.fill(row, init)` writes a row, `column()` makes the column, in which
    rows that were not filled lack the key. The column is a copy if an array of a row was kept, as for `dense`.
    """

    def __init__(self, count: int, shape: Sequence[int], dtype: DType[S]) -> None:
        self._array: Array = np.zeros((count, *checked_shape(shape)), dtype)
        array_type(self._array.dtype)
        self._present = np.zeros(count, np.bool_)
        self._kept = False

    def __len__(self) -> int:
        return len(self._array)

    def fill(self, row: int, init: Callable[[WritableView[S]], object]) -> None:
        """Let `init` write a row. If it raises, the exception goes through, and the row stays unfilled."""
        place = self._array[position(row, len(self)), ...]
        if not place.flags.writeable:
            raise ReadOnlyError("the column was made; its rows can no longer be written")
        self._present[row] = False
        lease = Lease(writable=True)
        try:
            init(WritableView(Cells(place, lease=lease)))
        finally:
            self._kept |= lease.complete()
        self._present[row] = True

    def column(self) -> DenseColumn:
        """The rows as a column of a `Batch`, over the same memory, which can no longer be written through this."""
        self._array.flags.writeable = False
        array = self._array.copy() if self._kept else self._array
        return DenseColumn(array, present=None if self._present.all() else self._present.copy())


def checked_shape(shape: Sequence[int], most: int = _MOST_ELEMENTS) -> tuple[int, ...]:
    """`shape`, if a tensor without ragged axes and with at most so many elements can have it. Raises `DataError`."""
    lengths = tuple(int(length) for length in shape)
    if any(length < 0 for length in lengths):
        raise DataError(
            f"a dense tensor has no axis of the length {min(lengths)}; ragged() makes one with rows of any length"
        )
    if len(lengths) > MAX_RANK or math.prod(length or 1 for length in lengths) > most:
        raise DataError(f"no tensor can have the shape {list(lengths[: MAX_RANK + 1])}")
    return lengths


def _memory(source: Any, dtype: Any, shape: Sequence[int] | None, offset: int) -> Array:
    wanted = None if dtype is None else np.dtype(dtype)
    if isinstance(source, NDArray):
        source = source.value
    array = _array_of(source, wanted)
    if array is None:
        return _over_buffer(getattr(source, "buf", source), wanted or np.dtype(np.uint8), shape, offset)
    array_type(array.dtype)
    if wanted is not None and array.dtype != wanted:
        raise WrongTypeError(f"the array holds {array.dtype}, not {wanted}; a view converts nothing")
    if offset:
        raise DataError("an offset is for plain memory; slice the array instead")
    return array if shape is None or tuple(shape) == array.shape else _reshaped(array, checked_shape(shape))


def _array_of(source: Any, wanted: np.dtype[Any] | None) -> Array | None:
    if isinstance(source, TensorView):
        return source.array
    if isinstance(source, np.ndarray):
        # An array of bytes counts as plain memory if another dtype is wanted.
        return None if source.dtype == np.uint8 and wanted not in (None, np.uint8) else source
    conversions = array_conversions()
    factory = conversions.factories.of(source)
    if factory is None or factory.form == "list":
        raise WrongTypeError(f"a {type(source).__name__} is not memory; dense() makes a tensor of values")
    if factory.form in ("bytes", "buffer") and memoryview(getattr(source, "buf", source)).format in _PLAIN:
        return None
    array: Array = conversions.convert(source, factory.form, ArrayFormat())
    return array


def _over_buffer(source: Any, dtype: np.dtype[Any], shape: Sequence[int] | None, offset: int) -> Array:
    try:
        memory = memoryview(source).cast("B")
    except TypeError as error:
        raise DataError(f"memory that is not in one piece cannot be viewed: {error}") from None
    room = memory.nbytes - offset
    lengths = checked_shape([room // dtype.itemsize] if shape is None else shape)
    needed = math.prod(lengths) * dtype.itemsize
    if offset < 0 or needed > room or (shape is None and room % dtype.itemsize):
        raise BoundsError(
            f"{dtype}{list(lengths)} takes {needed} bytes; there are {memory.nbytes}, of which {offset} are skipped"
        )
    if not needed:
        return np.zeros(lengths, dtype)
    return np.frombuffer(memory, dtype, math.prod(lengths), offset).reshape(lengths)


def _reshaped(array: Array, shape: tuple[int, ...]) -> Array:
    if math.prod(shape) != array.size:
        raise BoundsError(f"an array of the shape {list(array.shape)} cannot be seen as {list(shape)}")
    reshaped = array.reshape(shape)
    if array.size and not np.shares_memory(reshaped, array):
        raise DataError(f"an array with these strides cannot be seen as {list(shape)} without a copy")
    return reshaped
