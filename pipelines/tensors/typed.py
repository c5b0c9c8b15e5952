"""Typed access: `view.as_float32()` is the same view, known to hold float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from pipelines.tensors.view import TensorView


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
