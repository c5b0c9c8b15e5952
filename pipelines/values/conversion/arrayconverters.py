"""The forms of arrays and the converters between them.

Everything converts to and from numpy directly, and so to and from `SerializedNDArray`; two other forms meet there.
Memory is shared wherever both sides can: see docs/conversion.md for where a copy is made.
"""

from __future__ import annotations

import array as typed_arrays
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from pipelines.errors import DataError, WrongTypeError
from pipelines.plugins.requirements import Package
from pipelines.values.casting import cast, castable
from pipelines.values.conversion.arrowarrays import arrow_array, arrow_tensor, from_arrow_array, from_arrow_tensor
from pipelines.values.conversion.convert import Conversions, Converter, Factory
from pipelines.values.conversion.formats import ArrayFormat
from pipelines.values.conversion.torcharrays import from_torch, torch_shape, torch_tensor
from pipelines.values.ndarray import Array, array_type, in_order
from pipelines.values.serialized import SerializedNDArray

CANONICAL = "serialized"


@cache
def array_conversions() -> Conversions[ArrayFormat]:
    """The forms and converters of arrays in this process: built in, and those of installed plug-ins."""
    conversions = Conversions("array", ArrayFormat, CANONICAL)
    conversions.add(*FACTORIES, *builtin_converters())
    return conversions


def builtin_converters() -> list[Converter]:
    """Every built-in converter of arrays."""
    converters = [
        Converter("array", "numpy", "numpy", detailed, _ALL),
        Converter("array", "numpy", CANONICAL, _serialize, frozenset({"dtype"})),
        Converter("array", CANONICAL, CANONICAL, _serializing(SerializedNDArray.numpy), frozenset({"dtype"})),
        Converter("array", CANONICAL, "numpy", lambda value, wanted: detailed(value.numpy(), wanted), _ALL),
    ]
    for form, read in _TO_NUMPY.items():
        converters.append(Converter("array", form, "numpy", _reading(read), _ALL))
        converters.append(Converter("array", form, CANONICAL, _serializing(read), frozenset({"dtype"})))
    for form, (write, honours) in _FROM_NUMPY.items():
        converters.append(Converter("array", "numpy", form, _writing(write), frozenset(honours)))
        converters.append(Converter("array", CANONICAL, form, _unserializing(write), frozenset(honours)))
    return converters


def detailed(array: Array, wanted: ArrayFormat) -> Array:
    """`array` with the element type and orders that are wanted: itself if it has them, else a copy.

    Element types are converted as long as every value fits (floats lose digits); `WrongTypeError` for types that are
    not converted into one another, `DataError` for values that do not fit.
    """
    if wanted.dtype is not None:
        array = as_dtype(array, wanted.dtype)
    if wanted.byte_order is not None and array.dtype.itemsize > 1:
        if array.dtype.name == "bfloat16" and wanted.byte_order != sys.byteorder:
            raise DataError("numpy has bfloat16 only in the machine's byte order; ask for float32")
        array = array.astype(array.dtype.newbyteorder(wanted.byte_order), copy=False)
    return array if wanted.order is None else np.asarray(array, order=wanted.order)


def as_dtype(array: Array, dtype: np.dtype[Any]) -> Array:
    """`array` with elements of `dtype`. Raises as `detailed` does."""
    if array.dtype == dtype:
        return array
    if dtype.name == "bfloat16" and array.dtype.kind in "iuf":
        return _as_bfloat16(as_dtype(array, np.dtype(np.float32)), dtype)
    if not castable(array.dtype, dtype):
        raise WrongTypeError(
            f"an array of {array.dtype} is not converted to {dtype}, because values would change; use numpy's astype"
        )
    converted, misfits = cast(array, dtype)
    if misfits is not None:
        raise DataError(f"an array of {array.dtype} has values that {dtype} cannot hold")
    return converted


def _as_bfloat16(array: Array, dtype: np.dtype[Any]) -> Array:
    converted = array.astype(dtype)
    if (np.isfinite(array) & ~np.isfinite(converted.astype(np.float32))).any():
        raise DataError(f"an array of {array.dtype} has values that {dtype} cannot hold")
    return converted


def _reading(read: Callable[[Any], Array]) -> Callable[[Any, ArrayFormat], Array]:
    return lambda value, wanted: detailed(read(value), wanted)


def _writing(write: Callable[[Array], Any]) -> Callable[[Array, ArrayFormat], Any]:
    return lambda array, wanted: write(detailed(array, wanted))


def _serializing(read: Callable[[Any], Array]) -> Callable[[Any, ArrayFormat], SerializedNDArray]:
    return lambda value, wanted: _serialize(read(value), wanted)


def _unserializing(write: Callable[[Array], Any]) -> Callable[[SerializedNDArray, ArrayFormat], Any]:
    return lambda value, wanted: write(detailed(value.numpy(), wanted))


def _serialize(array: Array, wanted: ArrayFormat) -> SerializedNDArray:
    return SerializedNDArray.of(detailed(array, wanted))


def _of_list(values: Any) -> Array:
    try:
        array = np.array(values)
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"the lists have different lengths and make no array ({error}); pipelines.tensors.ragged holds such values"
        ) from None
    if array.dtype == np.float64 and array.size and array.max() >= _BEYOND_INT64:
        # numpy makes floats of integers of which some need the 64th bit.
        objects = np.array(values, object)
        if all(type(number) is int for number in objects.flat):
            array = _of_large(objects)
    if array.dtype.kind not in "biuf":
        raise WrongTypeError(f"the lists hold no numbers but {array.dtype}; pipelines.tensors.strings holds strings")
    return array


def _of_large(integers: Array) -> Array:
    try:
        return integers.astype(np.uint64)
    except OverflowError:
        raise DataError(
            "the lists hold negative integers and some beyond 64 bits with a sign; no type has both"
        ) from None


def _of_array_array(values: typed_arrays.array[Any]) -> Array:
    if values.typecode in "uw":
        raise WrongTypeError("an array of characters is not an array of numbers; use a list of strings")
    return np.frombuffer(values, np.dtype(values.typecode)) if len(values) else np.zeros(0, values.typecode)


def _to_array_array(array: Array) -> typed_arrays.array[Any]:
    code = _TYPECODES.get(array.dtype.newbyteorder("="))
    if array.ndim != 1 or code is None:
        raise WrongTypeError(
            f"array.array holds one dimension of integers or float32 and float64, not {array.dtype}{list(array.shape)}"
        )
    made = typed_arrays.array(code)
    made.frombytes(in_order(array, sys.byteorder).tobytes())
    return made


def _of_buffer(value: Any) -> Array:
    # A SharedMemory holds its memory in `buf`.
    memory = memoryview(getattr(value, "buf", value))
    try:
        array = np.asarray(memory)
        array_type(array.dtype)
    except (ValueError, TypeError):
        raise WrongTypeError(f'a buffer with elements "{memory.format}" is not an array of numbers; cast it') from None
    return array


def _to_buffer(array: Array) -> memoryview:
    if array.dtype.name == "bfloat16":
        raise WrongTypeError("a memoryview has no bfloat16; ask for float32, or for bytes")
    return array.data


def _to_bytes(array: Array) -> bytes:
    return in_order(array, "big" if array.dtype == array.dtype.newbyteorder(">") else "little").tobytes()


def _of_interface(value: Any) -> Array:
    array = np.asarray(value).view()
    array_type(array.dtype)
    # Whether it is the object's own memory is not known.
    array.flags.writeable = False
    return array


def _of_dlpack(value: Any) -> Array:
    try:
        return np.from_dlpack(value)
    except (RuntimeError, BufferError, TypeError) as error:
        raise DataError(
            f"numpy cannot take the memory of this {type(value).__name__} ({error}); copy it to the CPU first"
        ) from None


def _to_dlpack(array: Array) -> Array:
    # Older consumers know no read-only memory, and none knows another byte order: those get a copy.
    usable = array.flags.writeable and array.dtype.isnative and array.dtype.name != "bfloat16"
    if array.dtype.name == "bfloat16":
        raise WrongTypeError("numpy hands out no bfloat16 by DLPack; ask for float32, or for torch")
    return array if usable else array.astype(array.dtype.newbyteorder("="))


def _has_buffer(value: object) -> bool:
    try:
        memoryview(value).release()  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return False
    return True


_ALL = frozenset({"dtype", "order", "byte_order"})

FACTORIES = (
    Factory("array", "numpy", ("numpy.ndarray",), aliases=("ndarray",), measure=lambda array: array.shape),
    Factory("array", "list", ("builtins.list", "builtins.tuple", "builtins.float", "builtins.int", "builtins.bool")),
    Factory("array", "array", ("array.array",), measure=lambda values: (len(values),)),
    Factory("array", "bytes", ("builtins.bytes",), measure=lambda values: (len(values),)),
    Factory(
        "array",
        "buffer",
        ("builtins.memoryview", "builtins.bytearray", "mmap.mmap", "multiprocessing.shared_memory.SharedMemory"),
        accepts=_has_buffer,
        aliases=("memoryview",),
    ),
    Factory(
        "array",
        CANONICAL,
        ("pipelines.values.serialized.SerializedNDArray",),
        measure=lambda serialized: serialized.shape,
    ),
    Factory("array", "torch", ("torch.Tensor",), requires=Package("torch", "torch"), measure=torch_shape),
    Factory(
        "array",
        "arrow",
        ("pyarrow.lib.Array", "pyarrow.lib.ChunkedArray"),
        aliases=("pyarrow",),
        requires=Package("pyarrow", "arrow"),
    ),
    Factory(
        "array",
        "arrow-tensor",
        ("pyarrow.lib.Tensor",),
        requires=Package("pyarrow", "arrow"),
        measure=lambda value: value.shape,
    ),
    Factory("array", "dlpack", accepts=lambda value: hasattr(type(value), "__dlpack__")),
    Factory("array", "array-like", ("numpy.generic",), accepts=lambda value: hasattr(type(value), "__array__")),
)
"""The built-in forms; of those that know their objects by a protocol the first counts."""

_TO_NUMPY: dict[str, Callable[[Any], Array]] = {
    "list": _of_list,
    "array": _of_array_array,
    "bytes": lambda value: np.frombuffer(value, np.uint8),
    "buffer": _of_buffer,
    "torch": from_torch,
    "arrow": from_arrow_array,
    "arrow-tensor": from_arrow_tensor,
    "dlpack": _of_dlpack,
    "array-like": _of_interface,
}
_FROM_NUMPY: dict[str, tuple[Callable[[Array], Any], set[str]]] = {
    "list": (lambda array: array.tolist(), {"dtype"}),
    "array": (_to_array_array, {"dtype"}),
    "bytes": (_to_bytes, {"dtype", "byte_order"}),
    "buffer": (_to_buffer, {"dtype", "order", "byte_order"}),
    "torch": (torch_tensor, {"dtype", "order"}),
    "arrow": (arrow_array, {"dtype"}),
    "arrow-tensor": (arrow_tensor, {"dtype", "order"}),
    "dlpack": (_to_dlpack, {"dtype", "order"}),
}
_BEYOND_INT64 = 2.0**63
_TYPECODES = {np.dtype(code): code for code in "bBhHiIqQfd"}
