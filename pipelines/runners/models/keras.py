"""Runs KERAS: a Keras model on any of Keras' backends."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipelines.errors import MissingPackageError, StreamerError, nearest
from pipelines.plugins.modelfiles import model_path
from pipelines.runners.models.model import Array, Port
from pipelines.runners.models.modelrunner import ModelRunner
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.tensorflow import Keras

DEFAULT_KEY = "default"
"""Key of a model's only output, if the step names none; Konduit's."""

_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


class KerasRunner(ModelRunner):
    """`ModelRunner` on Keras."""

    def __init__(self, step: Keras, context: OpenContext) -> None:
        model = KerasModel(step, context)
        try:
            keys = _keys(model, model.inputs, step.input_names, "inputNames")
            output_keys = _output_keys(model, step)
        except StreamerError:
            model.close()
            raise
        super().__init__(
            model,
            keys,
            output_keys,
            warm_up=int(step.warm_up),
            max_batch=step.max_batch,
            cast_inputs=step.cast_inputs,
            metrics=context.metrics,
            shapes=context.ran.of(context.step),
        )


class KerasModel:
    """A loaded model: `.keras`, or HDF5 as Keras 2 wrote it.

    Keras loads it, or, an HDF5 file that Keras 3 cannot read any more, tf-keras (Keras 2) if it is installed; not where
    code is not allowed, as its layers may be any operation of TensorFlow, such as those that write files. Python code
    inside a model (a Lambda layer) is not run: such a model is refused. Raises `MissingPackageError` without Keras or
    its backend, and `StreamerError` naming file and reason if the model cannot be loaded.
    """

    def __init__(self, step: Keras, context: OpenContext) -> None:
        self.path = model_path(step.model_uri, context)
        keras = _keras()
        if context.progress is not None:
            context.progress(f"loading {self.path.name}")
        is_hdf5 = _is_hdf5(self.path)
        if is_hdf5:
            # Keras runs it too, before 3.11.3.
            _check_no_code(self.path)
        try:
            self._model: Any = keras.saving.load_model(self.path, compile=False, safe_mode=True)
        except Exception as error:
            if not is_hdf5:
                raise StreamerError(_refusal(self.path, error)) from error
            self._model = _of_keras_2(self.path, error, allowed=context.allow_code)
        if not getattr(self._model, "inputs", None):
            raise StreamerError(
                f"the model {self.path} does not declare its inputs; save one that was built, as keras.Sequential with "
                "an Input or keras.Model(inputs, outputs)"
            )
        structure = getattr(self._model, "input", None)
        self._by_key = isinstance(structure, Mapping)
        names = self._names(structure, self._model.inputs) or [tensor.name for tensor in self._model.inputs]
        self.inputs = [self._port(tensor, name) for tensor, name in zip(self._model.inputs, names, strict=True)]
        names = self._names(getattr(self._model, "output", None), self._model.outputs) or getattr(
            self._model, "output_names", [tensor.name for tensor in self._model.outputs]
        )
        self.outputs = [self._port(tensor, name) for tensor, name in zip(self._model.outputs, names, strict=True)]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs for these inputs, both in the order of `inputs` and `outputs`.

        Raises `StreamerError` with the message of Keras, without its tracebacks and colours.
        """
        given: Any = arrays[0] if len(arrays) == 1 else list(arrays)
        if self._by_key:
            given = {port.name: array for port, array in zip(self.inputs, arrays, strict=True)}
        try:
            outputs = self._model.predict_on_batch(given)
        except Exception as error:
            raise StreamerError(f"{self.path.name}: {_said(error)}") from error
        if isinstance(outputs, Mapping):
            outputs = [outputs[port.name] for port in self.outputs]
        return [np.asarray(output) for output in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]

    def close(self) -> None:
        """Free the model."""
        self._model = None

    def _names(self, structure: Any, tensors: Sequence[Any]) -> list[str] | None:
        """The keys of tensors that a model has in a mapping, in their order; none if it has them otherwise."""
        parts = list(structure.values()) if isinstance(structure, Mapping) else structure
        if isinstance(parts, (list, tuple)) and any(isinstance(part, (list, tuple, Mapping)) for part in parts):
            raise StreamerError(
                f"the model {self.path} has lists or mappings inside those of its inputs or outputs; save one that has "
                "a list or a mapping of them"
            )
        if not isinstance(structure, Mapping):
            return None
        return [next((key for key, value in structure.items() if value is tensor), tensor.name) for tensor in tensors]

    def _port(self, tensor: Any, name: str) -> Port:
        element = getattr(tensor.dtype, "name", tensor.dtype)
        # Keras casts its inputs; numpy has no bfloat16 of its own.
        dtype = np.dtype({"string": "object", "bfloat16": "float32"}.get(element, element))
        return Port(name, dtype, tuple(tensor.shape) or None)


def _refusal(path: Path, error: Exception) -> str:
    return f"the model {path} cannot be loaded: {_text(error)}"


def _of_keras_2(path: Path, error: Exception, *, allowed: bool) -> Any:
    refusal = _refusal(path, error)
    if not allowed:
        raise StreamerError(
            f"{refusal}; tf-keras may read models of Keras 2, but is not used where code is not allowed: convert the "
            "model to ONNX or .keras"
        ) from error
    try:
        import tf_keras
    except ImportError:
        missing = MissingPackageError("tf-keras", "tensorflow", "a model of Keras 2")
        raise StreamerError(f"{refusal}; {missing}") from error
    try:
        return tf_keras.models.load_model(path, compile=False)
    except Exception as older:
        raise StreamerError(f"{refusal}; with tf-keras: {_text(older)}") from older


def _is_hdf5(path: Path) -> bool:
    import h5py

    return bool(h5py.is_hdf5(path))


def _check_no_code(path: Path) -> None:
    import h5py

    try:
        with h5py.File(path) as file:
            config = json.loads(file.attrs.get("model_config", "null"))
    except (OSError, ValueError) as error:
        raise StreamerError(_refusal(path, error)) from error
    if _names_lambda(config):
        raise StreamerError(
            f"the model {path} cannot be loaded: a Lambda layer is its author's Python code, which is not run; save "
            "the model without it, or convert it to ONNX"
        )


def _names_lambda(config: Any) -> bool:
    if isinstance(config, list):
        return any(_names_lambda(item) for item in config)
    if not isinstance(config, dict):
        return False
    is_lambda = str(config.get("class_name", "")).rpartition(">")[2] in ("Lambda", "__lambda__")
    return is_lambda or any(_names_lambda(item) for item in config.values())


def _keras() -> Any:
    try:
        import keras
    except ImportError as error:
        # Keras imports its backend at once.
        raise MissingPackageError(error.name or "keras", "tensorflow", "the step KERAS") from error
    return keras


def _keys(
    model: KerasModel, ports: Sequence[Port], given: Sequence[str] | Mapping[str, str] | None, field: str
) -> list[str]:
    names = [port.name for port in ports]
    if given is None:
        return names
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise StreamerError(
                    f'{model.path}: {field}: the model has no "{name}"{nearest(name, names)}; it has {", ".join(names)}'
                )
        return [given.get(name, name) for name in names]
    if set(given) == set(names):
        # All of the model's own names, in any order: they are matched by name.
        return names
    if len(given) != len(names):
        raise StreamerError(
            f"{model.path}: {field} has {len(given)} names, but the model has {len(names)}: {', '.join(names)}"
        )
    return list(given)


def _output_keys(model: KerasModel, step: Keras) -> list[str]:
    if step.output_names is None and len(model.outputs) == 1:
        return [DEFAULT_KEY]
    return _keys(model, model.outputs, step.output_names, "outputNames")


def _text(error: Exception) -> str:
    return " ".join(str(error).split())[:500] or type(error).__name__


def _said(error: Exception) -> str:
    lines = [line.strip() for line in _COLOUR.sub("", str(error)).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("File ", "Detected at node", "[[{{"))]
    return " ".join(kept)[:500] or type(error).__name__
