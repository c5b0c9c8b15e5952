"""`TensorView` and `WritableView`: numbers over any memory, read-only and writable."""

from __future__ import annotations

import io
from typing import IO, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, WrongTypeError
from pipelines.tensors import index
from pipelines.tensors.cells import CHUNK, Array, Cells, sealed
from pipelines.tensors.dense import DenseView
from pipelines.tensors.errors import BoundsError, ReadOnlyError
from pipelines.tensors.index import IndexLike
from pipelines.tensors.numbers import Numbers
from pipelines.tensors.writing import WritableDense
from pipelines.values.ndarray import array_type, in_order

S = TypeVar("S", bound=np.generic)
U = TypeVar("U", bound=np.generic)


class TypedAccess:
    """A method for each element type, which gives the view itself, for the type checker too.

    None of them converts anything.

    Raises:
        WrongTypeError: By a method of another type than the view's.
    """

    __slots__ = ()

    def as_type(self, dtype: type[U]) -> TensorView[U]:
        """The view, if it holds elements of `dtype`."""
        raise NotImplementedError

    def as_float16(self) -> TensorView[np.float16]:
        """This view of float16."""
        return self.as_type(np.float16)

    def as_float32(self) -> TensorView[np.float32]:
        """This view of float32."""
        return self.as_type(np.float32)

    def as_float64(self) -> TensorView[np.float64]:
        """This view of float64."""
        return self.as_type(np.float64)

    def as_int8(self) -> TensorView[np.int8]:
        """This view of int8."""
        return self.as_type(np.int8)

    def as_int16(self) -> TensorView[np.int16]:
        """This view of int16."""
        return self.as_type(np.int16)

    def as_int32(self) -> TensorView[np.int32]:
        """This view of int32."""
        return self.as_type(np.int32)

    def as_int64(self) -> TensorView[np.int64]:
        """This view of int64."""
        return self.as_type(np.int64)

    def as_uint8(self) -> TensorView[np.uint8]:
        """This view of uint8."""
        return self.as_type(np.uint8)

    def as_uint16(self) -> TensorView[np.uint16]:
        """This view of uint16."""
        return self.as_type(np.uint16)

    def as_uint32(self) -> TensorView[np.uint32]:
        """This view of uint32."""
        return self.as_type(np.uint32)

    def as_uint64(self) -> TensorView[np.uint64]:
        """This view of uint64."""
        return self.as_type(np.uint64)

    def as_bool(self) -> TensorView[np.bool_]:
        """This view of bool."""
        return self.as_type(np.bool_)


class TensorView(TypedAccess, DenseView[S]):
    """Numbers that are read where they lie. `pipelines.tensors.view` makes one.

    Elements come as numpy scalars of the tensor's dtype. Nothing can be written through it, nor through its `array`.
    """

    __slots__ = ()

    def __init__(self, cells: Cells, codec: Any = None) -> None:
        super().__init__(cells, Numbers(cells.array.dtype) if codec is None else codec)

    @property
    def dtype(self) -> np.dtype[S]:
        """The type of the elements."""
        dtype: np.dtype[S] = self._cells.array.dtype
        return dtype

    @property
    def array(self) -> npt.NDArray[S]:
        """The elements as a numpy array over the same memory, writable only as long as the view is.

        `DataError` for elements that were picked one by one (`incl`, `excl`) and are not one array: `copy` makes it.
        """
        if not self._cells.direct:
            raise DataError("elements that were picked with incl or excl are not an array in memory; copy() makes one")
        return self._cells.lend()

    def copy(self) -> npt.NDArray[S]:
        """All elements in a new array in C order."""
        return self._cells.copy()

    def as_type(self, dtype: type[U]) -> TensorView[U]:
        """This view, typed as one of `dtype`. `WrongTypeError` for another element type: nothing is converted."""
        if self.dtype != np.dtype(dtype):
            raise WrongTypeError(
                f"the tensor holds {self.dtype}, not {np.dtype(dtype)}; copy().astype(...) converts it"
            )
        return cast("TensorView[U]", self)

    def copy_into(self, target: Any, *indices: IndexLike) -> None:
        """Copy all elements, or those of a part, to a writable view, an array, or a buffer (its first bytes).

        An array or a view has the same shape, or one axis and room enough. Raises `BoundsError` for too little room,
        `ReadOnlyError` for a target that cannot be written, `WrongTypeError` for another element type; nothing is
        changed then.
        """
        part = self.slice(*indices) if indices else self
        if isinstance(target, WritableView):
            target = _room(part, target)
            target.copy_from(part.array if part._cells.direct else part.copy())
            return
        room = _target(target, self.dtype)
        if room.shape != part.shape:
            if room.ndim != 1 or room.size < part.total_size:
                raise BoundsError(f"{list(room.shape)} has no room for {list(part.shape)}; nothing was written")
            room = room[: part.total_size].reshape(part.shape)
        _fill(room, part._cells)

    def dump(self, stream: IO[bytes]) -> None:
        """Write all elements to a binary stream: little-endian, in row-major order, without padding."""
        for start in range(0, self.total_size, CHUNK):
            cells = self._cells.read(start, min(start + CHUNK, self.total_size))
            stream.write(in_order(cells, "little").tobytes())

    def as_data_value(self) -> Array:
        """The value that a `Data` keeps: the array over the same memory, read-only."""
        array = self._cells.array if self._cells.direct else self.copy()
        array_type(array.dtype)
        return sealed(array) if array.flags.writeable else array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if self._cells.direct and not copy:
            return np.asarray(self._cells.lend(), dtype)
        if copy is False:
            raise ValueError("elements that were picked with incl or excl are not an array in memory")
        return self.copy().astype(dtype or self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dtype}{list(self.shape)})"


class WritableView(TensorView[S], WritableDense[S]):
    """Numbers that are read and written where they lie. `pipelines.tensors.writable` makes one."""

    __slots__ = ()

    def as_type(self, dtype: type[U]) -> WritableView[U]:
        return cast("WritableView[U]", super().as_type(dtype))

    def load(self, stream: IO[bytes]) -> None:
        """Read all elements from a binary stream, as `dump` writes them.

        `BoundsError` if it ends before; nothing is changed then.
        """
        width = self.dtype.itemsize
        memory = _read_exactly(stream, self.total_size * width)
        little = self.dtype.newbyteorder("<") if self.dtype.name != "bfloat16" else self.dtype
        self.copy_from(np.frombuffer(memory, little).astype(self.dtype, copy=False))


def _room(part: TensorView[Any], target: WritableView[Any]) -> WritableView[Any]:
    if target.shape == part.shape:
        return target
    if target.rank != 1 or target.total_size < part.total_size:
        raise BoundsError(f"{list(target.shape)} has no room for {list(part.shape)}; nothing was written")
    return target.slice(index.range(0, part.total_size))


def _target(target: Any, dtype: np.dtype[Any]) -> Array:
    if isinstance(target, np.ndarray):
        array = target
    else:
        memory = memoryview(target)
        if memory.readonly:
            raise ReadOnlyError(f"a {type(target).__name__} cannot be written")
        array = np.asarray(memory)
        if array.dtype != dtype and memory.format in ("B", "b", "c"):
            array = np.frombuffer(memory.cast("B")[: memory.nbytes // dtype.itemsize * dtype.itemsize], dtype)
    if not array.flags.writeable:
        raise ReadOnlyError("the target cannot be written")
    if array.dtype != dtype:
        raise WrongTypeError(f"the target holds {array.dtype}, not {dtype}; nothing is converted")
    return array


def _fill(room: Array, cells: Cells) -> None:
    if cells.direct:
        np.copyto(room, cells.array)
        return
    target = Cells(room)
    for start in range(0, cells.count, CHUNK):
        target.write(start, cells.read(start, min(start + CHUNK, cells.count)))


def _read_exactly(stream: IO[bytes], size: int) -> bytearray:
    memory = bytearray(size)
    with memoryview(memory) as whole:
        filled = 0
        while filled < size:
            part = stream.read(min(size - filled, io.DEFAULT_BUFFER_SIZE * 16))
            if not part:
                raise BoundsError(f"the stream ended after {filled} of {size} bytes; nothing was written")
            whole[filled : filled + len(part)] = part
            filled += len(part)
    return memory
