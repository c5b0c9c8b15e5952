"""How tensors travel in a `Data`, and so in protobuf and JSON.

Dense tensors of numbers are NDARRAY values. All others are nested `Data` with the key `tensor`, of values that every
reader of the format knows (docs/tensors.md).

- `"string"`: `shape` LIST of INT64, `values` LIST of STRING (BYTES if some are not UTF-8) in row-major order; of padded
  ones `length` and `padding` INT64.
- `"sparse"`: `shape`, `indices` NDARRAY int64 `(n, rank)`, `values` NDARRAY `(n,)` or a string tensor.
- `"ragged"`: `shape` with -1 for ragged axes, `splits_1` (of axis 1, ...) NDARRAY int64, `values` as for sparse ones.

An empty list is left out, as some readers refuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.data.data import Data
from pipelines.errors import DataError, WrongTypeError
from pipelines.tensors.access import KIND, Tensor
from pipelines.tensors.create import view
from pipelines.tensors.dense import DenseView
from pipelines.tensors.ragged import RAGGED, RaggedTensor
from pipelines.tensors.sparse import MOST_DENSE, SparseTensor
from pipelines.tensors.strings import StringView, dense_string, packed, strings
from pipelines.values import ValueType, element_type


def from_value(value: Any) -> Tensor[Any]:
    """The tensor that a value of a `Data` is: an array, a list of strings, or a `Data` with the key `tensor`.

    Nothing of an array is copied. Raises `DataError` for a tensor whose parts do not go together, `WrongTypeError` for
    a value that is not a tensor.
    """
    if isinstance(value, np.ndarray):
        return view(value)
    if isinstance(value, list):
        return strings(value)
    if not is_tensor(value):
        raise WrongTypeError(f"a {type(value).__name__} without the key {KIND!r} is not a tensor")
    read = _READERS.get(value.get_string(KIND))
    if read is None:
        raise WrongTypeError(f"{value[KIND]!r} is not a kind of tensor; there are {', '.join(_READERS)}")
    return read(value)


def is_tensor(value: Any) -> bool:
    """Whether a value is a nested `Data` that says which tensor it is."""
    return isinstance(value, Data) and isinstance(value.get(KIND), str)


def _string(data: Data) -> StringView:
    shape = _shape(data)
    listed = data.get_list("values") if "values" in data else []
    if element_type(listed) not in (ValueType.STRING, ValueType.BYTES, ValueType.NONE):
        raise WrongTypeError(f"the values of a string tensor are strings, not {element_type(listed).name}")
    count = int(np.prod(shape, dtype=object))
    if len(listed) != count:
        raise DataError(f"{len(listed)} strings are not a tensor of the shape {list(shape)}")
    if "length" in data:
        length, padding = data.get_int64("length"), data.get_int64("padding") if "padding" in data else 0
        _check_fixed(count, length)
        return dense_string(shape, lambda target: target.copy_from(iter(listed)), length=length, padding=padding)
    return packed([text.encode() if isinstance(text, str) else text for text in listed], shape)


def _sparse(data: Data) -> SparseTensor[Any]:
    return SparseTensor.of(_int64(data, "indices"), _row(data), _shape(data))


def _ragged(data: Data) -> RaggedTensor[Any]:
    shape = _shape(data)
    splits = [_int64(data, f"splits_{axis}") for axis, length in enumerate(shape) if length == RAGGED]
    return RaggedTensor.of(_row(data), shape, splits)


def _shape(data: Data) -> tuple[int, ...]:
    shape = data.get_list("shape", ValueType.INT64) if "shape" in data else []
    if any(length < RAGGED for length in shape):
        raise DataError(f"no tensor has the shape {shape}")
    return tuple(shape)


def _int64(data: Data, key: str) -> Any:
    array = data.get_ndarray(key)
    if array.dtype != np.int64:
        raise WrongTypeError(f'"{key}" of a tensor is an array of int64, not {array.dtype}')
    return array


def _row(data: Data) -> DenseView[Any]:
    values = from_value(data["values"])
    if not isinstance(values, DenseView):
        raise WrongTypeError('"values" of a tensor are an array or a string tensor')
    return values


def _check_fixed(count: int, length: int) -> None:
    # Before memory is made: a few bytes can claim strings of any length.
    if length < 1 or count * length > MOST_DENSE:
        raise DataError(f"{count} strings of {length} bytes each; at least one, and at most {MOST_DENSE} for all")


_READERS: dict[str, Callable[[Data], Tensor[Any]]] = {"string": _string, "sparse": _sparse, "ragged": _ragged}
