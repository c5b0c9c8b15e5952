"""Arrays as PyTorch tensors and back. PyTorch is imported when a tensor is asked for."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from pipelines.errors import DataError, MissingPackageError
from pipelines.values.ndarray import Array, bfloat16


def torch_shape(tensor: Any) -> tuple[int, ...]:
    """The shape of a tensor."""
    return tuple(tensor.shape)


def from_torch(tensor: Any) -> Array:
    """An array over the tensor's memory; of a tensor on another device a copy. Gradients are left behind.

    `DataError` for a tensor that is not a plain array (sparse, quantized).
    """
    torch = sys.modules["torch"]
    try:
        plain = tensor.detach().cpu()
        if plain.dtype == torch.bfloat16:
            return bfloat16(plain.view(torch.int16).numpy().view(np.uint16))
        array: Array = plain.numpy()
        if tensor.device.type != "cpu":
            # Writing to this copy would not reach the tensor.
            array.flags.writeable = False
    except (RuntimeError, TypeError) as error:
        raise DataError(f"the tensor cannot be read as an array: {error}; make it a dense one") from None
    return array


def torch_tensor(array: Array) -> Any:
    """A tensor over the array's memory, or a copy if PyTorch cannot hold such an array.

    Copied are read-only arrays (a tensor cannot be read-only), negative strides and another byte order.
    """
    try:
        import torch
    except ImportError:
        raise MissingPackageError("torch", "torch", "an array as a tensor") from None
    if not (array.flags.writeable and array.dtype.isnative and all(stride >= 0 for stride in array.strides)):
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
