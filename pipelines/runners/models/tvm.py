"""Runs TVM: a model compiled by Apache TVM's Relax, in its virtual machine."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from pipelines.data.data import Data
from pipelines.errors import DataError, MissingPackageError, StreamerError
from pipelines.plugins.modelfiles import model_path
from pipelines.runners.models.arrays import only_array_of
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.models.tvm import Tvm

DEFAULT_KEY = "default"
"""Key of a model's only output, if the step names none; the one that DL4J's models have in Konduit."""


class TvmRunner(RowRunner):
    """Calls the model's function with the arrays of each record; the result holds the function's outputs only.

    A compiled model does not declare the shapes and types of its arrays, so records run one by one, with those that
    they have; TVM refuses arrays that do not fit. A model with one parameter also takes the only array of a record that
    lacks its key.

    Raises `MissingPackageError` without TVM, and `StreamerError` if the model cannot be loaded; with `lazyInit` the
    first record fails with it.
    """

    writes: ClassVar[bool] = False
    opens_images: ClassVar[bool] = False

    def __init__(self, step: Tvm, context: OpenContext) -> None:
        self._step = step
        self._context = context
        self._machine: _Machine | None = None if step.lazy_init else _Machine(step, context)

    def run(self, data: Data) -> Data:
        if self._machine is None:
            self._machine = _Machine(self._step, self._context)
        machine = self._machine
        outputs = machine.call([_array(data, key, only=len(machine.keys) == 1) for key in machine.keys])
        keys = self._step.output_names or ((DEFAULT_KEY,) if len(outputs) == 1 else ())
        if len(keys) != len(outputs):
            raise StreamerError(
                f'the model gave {len(outputs)} outputs, but "outputNames" has {len(keys)}; name them all'
            )
        data.clear()
        data.update(zip(keys, outputs, strict=True))
        return data

    def close(self) -> None:
        self._machine = None


class _Machine:
    def __init__(self, step: Tvm, context: OpenContext) -> None:
        path = model_path(step.model_uri, context)
        try:
            import tvm
            from tvm import relax
        except ImportError as error:
            raise MissingPackageError("tvm", "tvm", "the step TVM") from error
        name, _, index = step.device.partition(":")
        try:
            self._device = tvm.device(name, int(index or 0))
            machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), self._device)
            self._function: Any = machine[step.function]
            count = machine.module["get_function_arity"](step.function)
            names = [machine.module["get_function_param_name"](step.function, place) for place in range(count)]
        except Exception as error:
            reason = " ".join(str(error).split())[:500]
            raise StreamerError(
                f"the model {path} cannot be loaded: {reason}; it must be a library that Relax was compiled to, with "
                f'a function "{step.function}" (docs/models.md)'
            ) from error
        if step.input_names is not None and len(step.input_names) != count:
            raise StreamerError(
                f"the model {path} takes {count} arrays ({', '.join(names)}), but inputNames has "
                f"{len(step.input_names)} names"
            )
        self.keys = list(step.input_names or names)
        self._tensor = tvm.runtime.tensor

    def call(self, arrays: list[Any]) -> list[Any]:
        outputs = self._function(*(self._tensor(np.ascontiguousarray(array), self._device) for array in arrays))
        listed = [outputs] if hasattr(outputs, "numpy") else list(outputs)
        return [output.numpy() for output in listed]


def _array(data: Data, key: str, *, only: bool) -> Any:
    value = data[key] if key in data or not only else only_array_of(dict(data))
    if not isinstance(value, np.ndarray):
        raise DataError(f'the model takes an array, but key "{key}" holds {type(value).__name__}')
    return value
