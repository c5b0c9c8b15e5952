"""NumPy's own file format as a form of arrays: `NDArray.create(array).get_as("npy")`.

The format is that of `numpy.save` (NEP 1): a magic string, a header with dtype and shape, the elements.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from pipelines import SerializedNDArray
from pipelines.errors import DataError
from pipelines.values import Converter, Factory


@dataclass(frozen=True, slots=True)
class Npy:
    """The content of a `.npy` file."""

    content: bytes

    @classmethod
    def of(cls, array: np.ndarray[Any, Any]) -> Npy:
        """The file that `numpy.save` would write."""
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        return cls(file.getvalue())

    def array(self) -> np.ndarray[Any, Any]:
        """The array, read-only over the file's own memory. `DataError` if it is damaged, or holds Python objects."""
        file = io.BytesIO(self.content)
        try:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran, dtype = read(file)
        except KeyError as error:
            raise DataError(f"a .npy file of version {error}; 1.0 and 2.0 are known") from None
        except ValueError as error:
            raise DataError(f"no .npy file: {error}") from None
        if dtype.hasobject:
            raise DataError("the .npy file holds Python objects, which are never loaded")
        count, start = math.prod(shape), file.tell()
        # Before memory is taken for what the header claims.
        if len(self.content) - start != count * dtype.itemsize:
            raise DataError(f"the .npy file has {len(self.content) - start} bytes for {dtype} {list(shape)}")
        return np.frombuffer(self.content, dtype, count, start).reshape(shape, order="F" if fortran else "C")


def _read(npy: Npy, wanted: object) -> SerializedNDArray:
    return SerializedNDArray.of(npy.array())


def _write(serialized: SerializedNDArray, wanted: object) -> Npy:
    return Npy.of(serialized.numpy())


FORM = Factory("array", "npy", classes=("example_plugin.npy.Npy",))
"""The form: its name, and how its objects are known."""
CONVERTERS = (Converter("array", "npy", "serialized", _read), Converter("array", "serialized", "npy", _write))
"""To and from the form that all others convert through: with these two it becomes and is made of any of them."""
