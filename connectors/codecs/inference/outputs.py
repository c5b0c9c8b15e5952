"""`Output`: a column of results as an output of answers: its head, and its data as bytes or as JSON, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from connectors.codecs.inference.datatypes import BYTES, datatype_of
from connectors.codecs.inference.elements import as_bytes, packed
from connectors.codecs.inference.grpcmessage import head
from connectors.codecs.inference.wire import listed
from pipelines.data.columns import Column, DenseColumn
from pipelines.errors import DataError, WireError
from pipelines.values import ByteBuffer, ValueType, list_to_array, type_of
from pipelines.values.lists import element_type
from pipelines.values.ndarray import to_buffer
from pipelines.wire.shortest import shortest

Array: TypeAlias = npt.NDArray[Any]

_COMPILED: Final = {
    np.dtype(name): name
    for name in ("float64", "float32", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool")
}
"""The dtypes of arrays that the compiled extension writes, and its names for them: to ask numpy takes 10 us."""

_encode: Final = msgspec.json.Encoder().encode
_MOST_KNOWN: Final = 256


class Output:
    """The values of one key as an output of each row's answer. Methods raise `WireError` if a row's value has no form
    in the protocol."""

    def __init__(self, name: str, column: Column, failed: dict[int, Exception], native: ModuleType | None) -> None:
        """The errors of rows that cannot be decoded are put into `failed`; `native` is the compiled extension."""
        self._native = native
        self.name = name
        self._named = f'output "{name}"'
        self._column = column
        self._whole = _whole_array(column)
        self._cells: dict[int, Any] = {} if self._whole is not None else dict(column.cells(failed))

    @property
    def is_whole(self) -> bool:
        """Whether the values of all rows are one array."""
        return self._whole is not None

    def has(self, row: int) -> bool:
        """Whether the row has a value."""
        return self._whole is not None or row in self._cells

    def head(self, row: int) -> bytes:
        """The message of gRPC that describes it."""
        if self._whole is not None:
            return self._whole_head
        array, datatype = self._array(row)
        return head(self.name, datatype, array.shape)

    def data(self, row: int) -> bytes | memoryview:
        """The elements as a binary part has them."""
        if self._whole is not None:
            size = self._row_size
            return self._bytes[row * size : (row + 1) * size]
        array, datatype = self._array(row)
        if datatype == BYTES:
            return packed(as_bytes(array.reshape(-1).tolist(), self._named))
        return to_buffer(array)

    def entry(self, row: int) -> bytes:
        """The entry in the JSON of an answer up to where its data or their size follow."""
        if self._whole is not None:
            return self._whole_entry
        array, datatype = self._array(row)
        return _entry_of(self.name, datatype, array.shape)

    def listed(self, row: int) -> bytes:
        """The entry in the JSON of an answer, with its data."""
        if self._whole is None:
            array, datatype = self._array(row)
            return b'%b"data":%b}' % (self.entry(row), _encode(listed(array, datatype, self._named)))
        entry = self._entries[row]
        if entry is None:
            # Raises the error that says why.
            listed(self._whole[row, ...], self._datatype, self._named)
            raise WireError(f"{self._named} cannot be written")
        return entry

    @property
    def _datatype(self) -> str:
        assert self._whole is not None
        return datatype_of(self._whole.dtype)

    @cached_property
    def _bytes(self) -> memoryview:
        assert self._whole is not None
        return memoryview(to_buffer(self._whole))

    @cached_property
    def _row_size(self) -> int:
        return len(self._bytes) // len(self._column)

    @cached_property
    def _whole_head(self) -> bytes:
        assert self._whole is not None
        return _head_of(self.name, self._datatype, self._whole.shape[1:])

    @cached_property
    def _whole_entry(self) -> bytes:
        assert self._whole is not None
        return _entry_of(self.name, self._datatype, self._whole.shape[1:])

    @cached_property
    def _entries(self) -> Sequence[bytes | None]:
        """The entry of each row in JSON; `None` where numbers are not finite."""
        whole, digits = self._whole, self._column.digits
        assert whole is not None
        head = self._whole_entry + b'"data":'
        name = _COMPILED.get(whole.dtype)
        if self._native is not None and digits is None and name is not None:
            entries: list[bytes | None] = self._native.inference_entries(
                len(whole), head, name, np.ascontiguousarray(whole)
            )
            return entries
        flat = self._flat if digits is None else self._flat.astype(digits)
        finite: list[bool] = np.asarray(np.isfinite(flat).all(axis=1)).tolist()
        if flat.dtype.kind == "f" and flat.dtype.itemsize < 8:
            flat = shortest(np.where(np.isfinite(flat), flat, 0).astype(flat.dtype))
        return [
            b"%b%b}" % (head, _encode(row)) if is_finite else None
            for row, is_finite in zip(flat.tolist(), finite, strict=True)
        ]

    @cached_property
    def _flat(self) -> Array:
        assert self._whole is not None
        array = self._whole.astype(np.float32) if self._datatype == "BF16" else self._whole
        size = array[0].size if len(array) else 0
        return array.reshape(len(array), size)

    def _array(self, row: int) -> tuple[Array, str]:
        try:
            array = _as_array(self._cells[row])
        except DataError as error:
            raise WireError(f"{self._named}: {error}") from None
        if array is None:
            kind = type_of(self._cells[row]).name
            raise WireError(
                f"{self._named} is of type {kind}, which is no tensor; leave it out (keys or drop of the sink), or "
                "make an array of it in a step"
            )
        return array, datatype_of(array.dtype)


# Batch after batch has the same outputs.
@lru_cache(_MOST_KNOWN)
def _head_of(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    """The message of gRPC that describes an output."""
    return head(name, datatype, shape)


@lru_cache(_MOST_KNOWN)
def _entry_of(name: str, datatype: str, shape: tuple[int, ...]) -> bytes:
    """The entry of an output in JSON up to where its data or their size follow."""
    return b'{"name":%b,"shape":%b,"datatype":"%b",' % (_encode(name), _encode(shape), datatype.encode())


def _whole_array(column: Column) -> Array | None:
    """The values of all rows as one array, one of a length of 1 for numbers, if they are one."""
    if not isinstance(column, DenseColumn) or column.mask is not None or not len(column):
        return None
    return column.storage if column.type is ValueType.NDARRAY else column.storage.reshape(-1, 1)


def _as_array(value: Any) -> Array | None:
    """A value as a tensor: numbers, booleans, texts and bytes have one axis of length 1. `None`: it is none."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (bool, int, float)):
        return np.array([value])
    if isinstance(value, (str, bytes, ByteBuffer)):
        return _objects([value], (1,))
    if not isinstance(value, list):
        return None
    shape, flat = _opened(value)
    if flat:
        kinds = set(map(type, flat))
        if kinds <= {str, bytes}:
            return _objects(flat, shape)
        if kinds == {bool}:
            return np.array(flat, np.bool_).reshape(shape)
        return list_to_array(value, "", exact=True) if kinds <= {int, float} else None
    return _objects([], shape) if _innermost(value) is ValueType.STRING else np.zeros(shape)


def _opened(value: list[Any]) -> tuple[tuple[int, ...], list[Any]]:
    """The shape of nested lists, and their elements. Raises `DataError` if they are of different lengths."""
    shape, level = [len(value)], value
    while level and all(isinstance(item, list) for item in level):
        lengths = set(map(len, level))
        if len(lengths) > 1:
            raise DataError("its lists are of different lengths and make no tensor")
        shape += lengths
        level = [element for item in level for element in item]
    return tuple(shape), level


def _innermost(value: list[Any]) -> ValueType:
    while value and isinstance(value[0], list):
        value = value[0]
    return element_type(value)


def _objects(elements: Sequence[Any], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(elements), object)
    array[:] = elements
    return array.reshape(shape)
