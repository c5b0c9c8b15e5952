"""An ONNX model in an onnxruntime session, with its inputs and outputs described."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from pipelines.errors import StreamerError, nearest
from pipelines.plugins.modelfiles import model_path
from pipelines.runners.models.model import Array, Port
from pipelines.runners.models.onnxsession import OnnxSession, asked
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.onnx import Onnx
from pipelines.telemetry import import_onnxruntime

_ELEMENTS: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(double)": np.dtype(np.float64),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int16)": np.dtype(np.int16),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(uint64)": np.dtype(np.uint64),
    "tensor(uint32)": np.dtype(np.uint32),
    "tensor(uint16)": np.dtype(np.uint16),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(bool)": np.dtype(np.bool_),
    "tensor(string)": np.dtype(np.object_),
}


class OnnxModel:
    """A loaded model.

    Raises, when it opens, `MissingPackageError` without onnxruntime, and `StreamerError` naming file and reason if
    the model cannot be loaded, a provider is not there, or an input or output is not a tensor that a `Data` can hold.
    """

    def __init__(self, step: Onnx, context: OpenContext) -> None:
        self.path = model_path(step.model_uri, context)
        self._session = OnnxSession(self.path, step, context)
        self.session: Any = self._session.opened
        try:
            self._describe(step)
        except BaseException:
            self.close()
            raise
        self._quiet = _quiet_run()

    def _describe(self, step: Onnx) -> None:
        self.providers: list[str] = self.session.get_providers()
        """The execution providers in use: each runs the operators that those before it cannot."""
        self.passed_over = [name for name in asked(step).values() if name not in self.providers]
        """Providers that it was to run on and that are not there, or did not start."""
        optional = {node.name: node for node in self.session.get_overridable_initializers()}
        self.optional = list(optional)
        """Inputs with a value of their own, which is used where they are not fed."""
        named = [*(step.inputs or ()), *(step.input_names if isinstance(step.input_names, dict) else ())]
        fed = [*self.session.get_inputs(), *(node for name, node in optional.items() if name in named)]
        self.inputs = [self._port(node) for node in fed]
        others = (node for name, node in optional.items() if name not in named and node.type in _ELEMENTS)
        self.further = {node.name: self._port(node) for node in others}
        """Optional inputs that the step does not name, by name."""
        nodes = {node.name: node for node in self.session.get_outputs()}
        wanted = nodes if step.output_names is None else dict.fromkeys(step.output_names)
        self.outputs = [self._port(self._named(name, nodes)) for name in wanted]
        self._output_names = [port.name for port in self.outputs]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs for these inputs, in the order of `outputs` and `inputs`. onnxruntime's exceptions go through."""
        feed = {port.name: array for port, array in zip(self.inputs, arrays, strict=True)}
        outputs: list[Array] = self.session.run(self._output_names, feed, self._quiet)
        return outputs

    def with_inputs(self, names: Sequence[str]) -> OnnxModel:
        """The same model, with these of its optional inputs fed, too. Both share the session."""
        model = copy(self)
        model.inputs = [*self.inputs, *(self.further[name] for name in names)]
        return model

    def close(self) -> None:
        """Free the model, unless other executors use it; a second call does nothing."""
        self.session = None
        self._session.close()

    def _named(self, name: str, nodes: dict[str, Any]) -> Any:
        if name not in nodes:
            raise StreamerError(
                f'{self.path}: the model has no output "{name}"{nearest(name, nodes)}; it has {", ".join(nodes)}'
            )
        return nodes[name]

    def _port(self, node: Any) -> Port:
        dtype = _ELEMENTS.get(node.type)
        if dtype is None:
            kind = "of float32, for instance" if node.type.startswith("tensor(") else "as a tensor"
            zipmap = ' (with skl2onnx: options={"zipmap": False})' if node.type.startswith("seq(map") else ""
            others = "" if node in self.session.get_inputs() else ", or name the outputs to fetch in outputNames"
            hint = f"export it {kind}{zipmap}{others}"
            raise StreamerError(
                f'{self.path}: "{node.name}" is a {node.type}, which cannot be put into a record; {hint}'
            )
        # An empty list is a scalar or an unknown rank; which one is not said.
        return Port(node.name, dtype, tuple(node.shape) or None)


def _quiet_run() -> Any:
    options = import_onnxruntime().RunOptions()
    # The error of a record goes where its step's errors go; onnxruntime would also write it to stderr, at each attempt.
    options.log_severity_level = 4
    return options
