"""Arrays as PyArrow arrays and tensors and back. PyArrow is imported when one is asked for."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from pipelines.errors import DataError, MissingPackageError, WrongTypeError
from pipelines.values.ndarray import Array, array_type, in_order


def from_arrow_array(value: Any) -> Array:
    """An array over the Arrow array's memory (booleans and several chunks: a copy).

    Lists of one fixed size and fixed-shape tensors become further axes. `DataError` for nulls,
    `WrongTypeError` for elements that are not numbers.
    """
    arrow = sys.modules["pyarrow"]
    if isinstance(value, arrow.ChunkedArray):
        value = value.combine_chunks()
    if value.null_count:
        raise DataError(f"the Arrow array has {value.null_count} nulls, and arrays have none; fill or drop them first")
    if isinstance(value, arrow.FixedShapeTensorArray):
        tensors: Array = value.to_numpy_ndarray()
        return tensors
    lengths = [len(value)]
    while arrow.types.is_fixed_size_list(value.type):
        lengths.append(value.type.list_size)
        value = value.flatten()
    try:
        flat: Array = value.to_numpy(zero_copy_only=not arrow.types.is_boolean(value.type))
    except arrow.ArrowInvalid:
        raise WrongTypeError(f"an Arrow array of {value.type} is not an array of numbers") from None
    array_type(flat.dtype)
    # Arrow arrays do not change, and writing to a copy would not change them.
    flat.flags.writeable = False
    return flat.reshape(lengths)


def from_arrow_tensor(value: Any) -> Array:
    """An array over the Arrow tensor's memory."""
    array: Array = value.to_numpy()
    array_type(array.dtype)
    return array


def arrow_array(array: Array) -> Any:
    """An Arrow array: of one dimension plain, of more a fixed-shape tensor array whose rows are the first axis.

    Its memory is the array's; copied are booleans, and arrays in another than C order or the machine's byte order.
    """
    arrow = pyarrow()
    plain = in_order(_checked(array), sys.byteorder)
    if plain.ndim == 0:
        raise DataError("an Arrow array has at least one dimension; reshape the scalar to [1]")
    if plain.ndim == 1:
        return arrow.array(plain)
    if not plain.size or plain.dtype == np.bool_:
        raise DataError(f"Arrow has no array of tensors of {plain.dtype}{list(plain.shape)}; ask for arrow-tensor")
    return arrow.FixedShapeTensorArray.from_numpy_ndarray(plain)


def arrow_tensor(array: Array) -> Any:
    """An Arrow tensor over the array's memory, with any strides."""
    arrow = pyarrow()
    if array.dtype == np.bool_:
        raise WrongTypeError("an Arrow tensor has no booleans; ask for uint8")
    return arrow.Tensor.from_numpy(_checked(array).astype(array.dtype.newbyteorder("="), copy=False))


def _checked(array: Array) -> Array:
    if array.dtype.name == "bfloat16":
        raise WrongTypeError("Arrow has no bfloat16; ask for float32")
    return array


def pyarrow(purpose: str = "an array as an Arrow one") -> Any:
    """The module `pyarrow`, imported now. `MissingPackageError` names the purpose if it is not installed."""
    try:
        import pyarrow as module
    except ImportError:
        raise MissingPackageError("pyarrow", "arrow", purpose) from None
    return module
