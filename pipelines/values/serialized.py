"""`SerializedNDArray`: an array as an element type, a shape and bytes; the form that all others convert through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.values.ndarray import Array, NDArrayType, array_type, from_buffer, in_order


@dataclass(frozen=True, slots=True)
class SerializedNDArray:
    """An array ready for the wire, as the class of this name in Konduit Serving.

    Equal arrays have equal serialised forms; strides and byte order make no difference.
    """

    type: NDArrayType
    shape: tuple[int, ...]
    buffer: memoryview
    """Read-only, flat: the elements little-endian, in C order, without padding."""

    @classmethod
    def of(cls, array: Array) -> SerializedNDArray:
        """`array` itself where its memory is little-endian and in C order, else a copy that is.

        `WrongTypeError` for an element type that no message carries.
        """
        element = array_type(array.dtype)
        flat = in_order(array, "little").reshape(-1)
        return cls(element, array.shape, flat.view(np.uint8).data.toreadonly())

    def numpy(self) -> Array:
        """A read-only array over the same memory (BOOL and other than native byte order: a copy).

        `WireError` if the buffer is too short for the shape.
        """
        return from_buffer(self.buffer, self.shape, self.type)
