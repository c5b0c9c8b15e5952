"""Numbers in cells: the codec of numeric tensors. Values must fit the element type; integers never lose digits."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, Generic, TypeVar

import numpy as np

from pipelines.errors import DataError, WrongTypeError
from pipelines.tensors.cells import Array
from pipelines.values.conversion.arrayconverters import array_conversions, as_dtype
from pipelines.values.conversion.formats import ArrayFormat

S = TypeVar("S", bound=np.generic)


class Numbers(Generic[S]):
    """Cells are elements of a numpy dtype."""

    def __init__(self, dtype: np.dtype[S]) -> None:
        self.dtype = dtype
        integers: Any = np.iinfo(dtype.name) if dtype.kind in "iu" else None
        self._least, self._most = (int(integers.min), int(integers.max)) if integers else (-(2**53), 2**53)
        self._largest = float(np.finfo(dtype.name).max) if dtype.kind == "f" else 0.0

    def element(self, cell: Any) -> S:
        element: S = cell
        return element

    def many(self, cells: Array) -> Iterator[S]:
        return iter(cells)

    def cell(self, value: Any) -> Any:
        kind = self.dtype.kind
        if type(value) is int and kind in "iuf" and self._least <= value <= self._most and self.dtype.itemsize > 2:
            return value
        if type(value) is float and kind == "f" and (-self._largest <= value <= self._largest or not isfinite(value)):
            return value
        cells = self.cells(value, 1)
        if cells.ndim:
            raise WrongTypeError(
                f"{cells.size} values are not a single one; put them with fewer indices, or where they begin"
            )
        return cells[()]

    def cells(self, values: Any, count: int) -> Array:
        array = self._array(values, count)
        if array.size == 0:
            return array.astype(self.dtype)
        return as_dtype(array, self.dtype)

    def release(self) -> None:
        """There is no memory besides the cells."""

    def _array(self, values: Any, count: int) -> Array:
        if isinstance(values, np.ndarray):
            return values
        method = getattr(type(values), "__array__", None)
        if method is not None:
            return np.asarray(values)
        if isinstance(values, (bytes, bytearray, memoryview)) and memoryview(values).format in ("B", "b", "c"):
            return self._of_bytes(memoryview(values))
        conversions = array_conversions()
        factory = conversions.factories.of(values)
        if factory is None and isinstance(values, Iterable) and not isinstance(values, (str, Mapping)):
            values = list(itertools.islice(values, count))
            factory = conversions.factories.of(values)
        if factory is None:
            raise WrongTypeError(
                f"a tensor of {self.dtype} takes numbers, arrays and buffers, not {type(values).__name__}"
            )
        array: Array = conversions.convert(values, factory.form, ArrayFormat())
        return array

    def _of_bytes(self, memory: memoryview) -> Array:
        width = self.dtype.itemsize
        if memory.nbytes % width:
            raise DataError(
                f"{memory.nbytes} bytes are not a whole number of {self.dtype} elements ({width} bytes each)"
            )
        return np.frombuffer(memory.cast("B"), self.dtype) if memory.nbytes else np.zeros(0, self.dtype)
