"""The interface of a model for its runner, the same for all libraries: named inputs and outputs, and a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model."""

    name: str
    dtype: np.dtype[Any]
    """Of its elements; `object` for strings."""
    shape: tuple[int | str | None, ...] | None
    """A length, or for a dynamic axis its symbol, if it has one. `None` where the rank is not known: onnxruntime
    reports scalars so too."""

    def __str__(self) -> str:
        element = element_named(self.dtype)
        if self.shape is None:
            return f"{element} of any shape"
        return f"{element} [{', '.join('?' if length is None else str(length) for length in self.shape)}]"


def element_named(dtype: np.dtype[Any]) -> str:
    """The name in errors of the element type of a port or of an array given to it."""
    return "string" if dtype.kind == "O" else dtype.name


class Model(Protocol):
    """A loaded model."""

    @property
    def path(self) -> Path:
        """The file, or folder, that it is from."""

    @property
    def inputs(self) -> Sequence[Port]:
        """Its inputs, in the order of `run`."""

    @property
    def outputs(self) -> Sequence[Port]:
        """The outputs to fetch, in the order of `run`."""

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs for these inputs, in the order of `outputs` and `inputs`. The library's exceptions go through."""

    def close(self) -> None:
        """Free the model."""


def described(model: Model) -> str:
    """The model in one line: `digits.onnx: image float32 [N, 64] -> probabilities float32 [N, 10]`."""
    inputs = ", ".join(f"{port.name} {port}" for port in model.inputs)
    outputs = ", ".join(f"{port.name} {port}" for port in model.outputs)
    return f"{model.path.name}: {inputs} -> {outputs}"
