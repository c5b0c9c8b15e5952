"""Runs TENSORFLOW and ND4JTENSORFLOW: a frozen graph or a SavedModel in a TensorFlow session."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.errors import DataError, MissingPackageError, StreamerError, nearest
from pipelines.plugins.modelfiles import model_path
from pipelines.runners.models.model import Array, Port
from pipelines.runners.models.modelrunner import ModelRunner
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.tensorflow import TensorFlow

_SAVED_MODEL = "saved_model.pb"
_TAGS = ["serve"]
_SIGNATURE = "serving_default"


class TensorFlowRunner(ModelRunner):
    """`ModelRunner` on a TensorFlow session."""

    def __init__(self, step: TensorFlow, context: OpenContext) -> None:
        model = TensorFlowModel(step, context)
        super().__init__(
            model,
            _keys(step.input_names, model.inputs),
            _keys(step.output_names, model.outputs),
            warm_up=int(step.warm_up),
            max_batch=step.max_batch,
            cast_inputs=step.cast_inputs,
            metrics=context.metrics,
            shapes=context.ran.of(context.step),
        )


class TensorFlowModel:
    """A loaded model.

    A SavedModel is a folder, or its `saved_model.pb`; its tag is `serve`. Names are looked up in the signature
    `serving_default`, or the only one, then in the graph, where no number means output 0 of the operation.

    Raises `MissingPackageError` without tensorflow, and `StreamerError` naming file and reason if the model cannot be
    loaded, has no such input or output, or one that no `Data` can hold.
    """

    def __init__(self, step: TensorFlow, context: OpenContext) -> None:
        self.path = model_path(step.model_uri, context, folder=True)
        tensorflow = _tensorflow(step.type_name)
        if context.progress is not None:
            context.progress(f"loading {self.path.name}")
        self._graph = tensorflow.Graph()
        self._session: Any = tensorflow.compat.v1.Session(graph=self._graph)
        try:
            inputs, outputs = self._loaded(tensorflow)
        except StreamerError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise StreamerError(f"the model {self.path} cannot be loaded: {_first_line(error)}") from error
        feeds = self._tensors(step.input_names, inputs or self._placeholders(), "input")
        fetches = self._tensors(step.output_names, outputs or self._ends(), "output")
        self.inputs = [self._port(name, tensor) for name, tensor in feeds.items()]
        self.outputs = [self._port(name, tensor) for name, tensor in fetches.items()]
        self._call: Any = self._session.make_callable(list(fetches.values()), feed_list=list(feeds.values()))

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs for these inputs, in the order of `outputs` and `inputs`. TensorFlow's exceptions go through."""
        return [_native(output) for output in self._call(*arrays)]

    def close(self) -> None:
        """Free the model."""
        self._call = None
        self._session.close()

    def _loaded(self, tensorflow: Any) -> tuple[dict[str, str], dict[str, str]]:
        """Names of tensors by their names in the signature, for inputs and outputs; empty for a frozen graph."""
        if self.path.is_dir():
            return self._load_folder(tensorflow, self.path)
        content = self.path.read_bytes()
        # A SavedModel's first field is a number, a graph's first a node.
        if content[:1] == b"\x08":
            return self._load_alone(tensorflow)
        graph = tensorflow.compat.v1.GraphDef.FromString(content)
        if not graph.node:
            raise StreamerError(f"the model {self.path} is neither a frozen graph nor a SavedModel of TensorFlow")
        with self._graph.as_default():
            tensorflow.import_graph_def(graph, name="")
        return {}, {}

    def _load_alone(self, tensorflow: Any) -> tuple[dict[str, str], dict[str, str]]:
        if self.path.name == _SAVED_MODEL and (self.path.parent / "variables").is_dir():
            return self._load_folder(tensorflow, self.path.parent)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copyfile(self.path, Path(folder) / _SAVED_MODEL)
            try:
                return self._load_folder(tensorflow, Path(folder))
            except Exception as error:
                raise StreamerError(
                    f"the model {self.path} cannot be loaded by itself: it is a SavedModel's, whose variables are in "
                    'the folder around it; set "modelUri" to that folder'
                ) from error

    def _load_folder(self, tensorflow: Any, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
        with self._graph.as_default():
            model = tensorflow.compat.v1.saved_model.load(self._session, _TAGS, str(folder))
        signatures = {
            name: signature for name, signature in model.signature_def.items() if signature.inputs and signature.outputs
        }
        if _SIGNATURE not in signatures and len(signatures) != 1:
            return {}, {}
        chosen = signatures.get(_SIGNATURE) or next(iter(signatures.values()))
        # The format does not keep their order.
        return (
            {name: chosen.inputs[name].name for name in sorted(chosen.inputs)},
            {name: chosen.outputs[name].name for name in sorted(chosen.outputs)},
        )

    def _placeholders(self) -> dict[str, str]:
        return {op.name: f"{op.name}:0" for op in self._graph.get_operations() if op.type == "Placeholder"}

    def _ends(self) -> dict[str, str]:
        ends = {}
        for op in self._graph.get_operations():
            if op.type in ("Placeholder", "Const") or any(tensor.consumers() for tensor in op.outputs):
                continue
            for index in range(len(op.outputs)):
                ends[op.name if not index else f"{op.name}:{index}"] = f"{op.name}:{index}"
        return ends

    def _tensors(
        self, wanted: Sequence[str] | Mapping[str, str] | None, known: Mapping[str, str], what: str
    ) -> dict[str, Any]:
        names = list(known if wanted is None else wanted)
        if not names:
            raise StreamerError(f'{self.path}: the model names no {what}s; set "{what}Names"')
        return {name: self._tensor(name, known, what) for name in names}

    def _tensor(self, name: str, known: Mapping[str, str], what: str) -> Any:
        tensor = known.get(name) or (name if ":" in name else f"{name}:0")
        try:
            return self._graph.get_tensor_by_name(tensor)
        except (KeyError, ValueError):
            there = ", ".join(known) or "none by itself"
            raise StreamerError(
                f'{self.path}: the model has no {what} "{name}"{nearest(name, known)}; it has {there}, and the other '
                "tensors of its graph"
            ) from None

    def _port(self, name: str, tensor: Any) -> Port:
        element = tensor.dtype.name
        if element in ("resource", "variant") or element.startswith("q"):
            raise StreamerError(f'{self.path}: "{name}" is a {element}, which cannot be put into a record')
        dtype = np.dtype(np.object_ if element == "string" else tensor.dtype.as_numpy_dtype)
        # Neither a scalar nor a tensor of unknown rank has a batch axis.
        return Port(name, dtype, tuple(tensor.shape.as_list()) if tensor.shape.rank else None)


def _tensorflow(step_type: str) -> Any:
    try:
        import tensorflow
    except ImportError as error:
        raise MissingPackageError("tensorflow", "tensorflow", f"the step {step_type}") from error
    return tensorflow


def _keys(names: Sequence[str] | Mapping[str, str] | None, ports: Sequence[Port]) -> list[str]:
    return list(names.values()) if isinstance(names, Mapping) else [port.name for port in ports]


def _native(output: Any) -> Array:
    array = np.asarray(output)
    if array.dtype == object:
        texts = np.empty(array.size, object)
        try:
            texts[:] = [text.decode() for text in array.flat]
        except UnicodeDecodeError as error:
            raise DataError(
                f"an output holds bytes that are not valid UTF-8 text ({error}); encode them in the graph"
            ) from None
        return texts.reshape(array.shape)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
