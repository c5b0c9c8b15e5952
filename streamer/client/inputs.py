"""`Inputs`: the values of a record as the tensors that a model takes, and its outputs as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines import Data
from pipelines.errors import DataError, nearest
from pipelines.executors.ports import Ports
from pipelines.runners.models.modelinput import ModelInput

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Tensors:
    """The tensors of a request."""

    arrays: Mapping[str, Array]
    """By name; the first axis is that of samples, where it is known what the model takes."""
    single: bool
    """Whether the record is one sample, and none of its values had the axis of samples."""


class Inputs:
    """Checks and converts records for a service with these ports, as a pipeline does (docs/execution.md).

    So errors come before anything is sent.
    """

    def __init__(self, service: str, ports: Ports) -> None:
        """`service` is its name in errors."""
        self._service = service
        self._known = None
        self._optional = frozenset(port.name for port in ports.optional)
        if ports.inputs is not None:
            self._known = {port.name: ModelInput(port, port.name) for port in (*ports.inputs, *ports.optional)}
        # A server that does not know the rank of an input says [-1], too.
        self._unclear = {
            name: ModelInput(replace(given.port, shape=None), name)
            for name, given in (self._known or {}).items()
            if given.port.shape == (None,)
        }
        self._ranks = {port.name: len(port.shape) for port in ports.outputs or () if port.shape is not None}

    def tensors(self, record: Data) -> Tensors:
        """The tensors of this record. Raises `DataError`, naming what the service takes."""
        if self._known is None:
            return Tensors({name: _array(name, record[name]) for name in record}, single=False)
        self._check_names(record, self._known)
        samples = {name: self._input(name, self._known, record[name]).of_value(record[name]) for name in record}
        single = bool(samples) and not any(value.lead for value in samples.values())
        return Tensors({name: value.array for name, value in samples.items()}, single)

    def result(self, outputs: Mapping[str, Array], single: bool) -> Data:
        """The outputs of an answer as values, of a `single` sample without the axis of samples."""
        values: dict[str, Any] = {}
        for name, array in outputs.items():
            if single and array.ndim and len(array) == 1 and self._ranks.get(name, array.ndim) == array.ndim:
                array = array.reshape(array.shape[1:])
            # Texts are lists, and one alone is a text.
            values[name] = array.tolist() if array.dtype.kind == "O" else array
        return Data(values)

    def _input(self, name: str, known: Mapping[str, ModelInput], value: Any) -> ModelInput:
        has_more_axes = isinstance(value, np.ndarray) and value.ndim > 1
        return self._unclear.get(name, known[name]) if has_more_axes else known[name]

    def _check_names(self, record: Data, known: Mapping[str, ModelInput]) -> None:
        takes = ", ".join(f'"{name}" {given.port}' for name, given in known.items()) or "nothing"
        for name in record:
            if name not in known:
                raise DataError(f'{self._service} has no input "{name}"; it takes {takes}{nearest(name, known)}')
        for name in known:
            if name not in record and name not in self._optional:
                given = ", ".join(f'"{key}"' for key in record) or "nothing"
                raise DataError(f'{self._service} needs the input "{name}", and {given} was given; it takes {takes}')


def _array(name: str, value: Any) -> Array:
    """A value as a tensor for a server that does not tell what it takes. A number or text is a tensor of one."""
    if isinstance(value, (str, bytes)):
        return _objects([value])
    if isinstance(value, list) and value and isinstance(value[0], (str, bytes)):
        return _objects(value)
    if isinstance(value, (np.ndarray, list, bool, int, float)):
        array = np.atleast_1d(np.asarray(value))
        if array.dtype.kind in "biufV":
            return array
        if all(isinstance(element, (str, bytes)) for element in array.flat):
            return np.asarray(value, object)
    raise DataError(
        f'key "{name}" holds {type(value).__name__}; over HTTP arrays, numbers, texts and lists of equal lengths can '
        "be sent"
    )


def _objects(values: list[Any]) -> Array:
    # Not by numpy.array: it cuts bytes at their last zeros.
    array = np.empty(len(values), object)
    array[:] = values
    return array
