"""An ONNX model in an onnxruntime session, with its inputs and outputs described."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from pipelines.errors import MissingPackageError, StreamerError, nearest
from pipelines.plugins.modelfiles import is_remote, model_path, shortened
from pipelines.runners.models.model import Array, Port
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.onnx import Onnx, SessionOptions
from pipelines.telemetry import import_onnxruntime

Provider: TypeAlias = tuple[str, dict[str, Any]]

SHORT_NAMES = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
}
"""Short names of providers for the field `providers`, and onnxruntime's names."""

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

_OTHER_FORMS: Final = (
    (b"version https://git-lfs", "it is Git LFS's pointer to the model, not the model: fetch that with `git lfs pull`"),
    (b"<", "it is a web page or XML: is its address that of the file itself?"),
    (b"PK\x03\x04", "it is a ZIP archive, as models of PyTorch and Keras are: export it as ONNX"),
    (b"\x80", "it is a Python pickle, as models of scikit-learn and PyTorch are: export it as ONNX"),
    (b"\x89HDF", "it is HDF5, as models of Keras are: use the step KERAS, or export it as ONNX"),
)
"""First bytes of files that are often named `.onnx` by mistake, and what they are."""
_CODE: Final = re.compile(r"^\d+ : [A-Z_]+ : (?:Load model from .*? failed: ?)?")
"""Matches the error code that onnxruntime's errors begin with."""
_PLACE: Final = re.compile(r"\S+\.(?:cc|h):\d+ .*?\) (?=[A-Z])")
"""Matches a location in onnxruntime's source code in its errors, with the function signature."""
_NO_MODEL: Final = re.compile("INVALID_PROTOBUF|No graph was found")
"""Matches onnxruntime's errors about bytes that are not a model."""

_log = logging.getLogger(__name__)


class OnnxModel:
    """A loaded model.

    Raises, when it opens, `MissingPackageError` without onnxruntime, and `StreamerError` naming file and reason if
    the model cannot be loaded, a provider is not there, or an input or output is not a tensor that a `Data` can hold.
    """

    def __init__(self, step: Onnx, context: OpenContext) -> None:
        self.path = model_path(step.model_uri, context)
        if context.progress is not None:
            context.progress(f"loading {self.path.name}")
        self.session: Any = _session(self.path, step)
        self.providers: list[str] = self.session.get_providers()
        """The execution providers in use: each runs the operators that those before it cannot."""
        self.passed_over = [name for name in _asked(step).values() if name not in self.providers]
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
        self._quiet = _quiet_run()

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
        """Free the model."""
        self.session = None

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


def why_not_loaded(error: Exception, path: Path) -> str:
    """The reason for this error of onnxruntime in loading the model, or what the file is instead of one."""
    # onnxruntime begins with its own name, a number and the number's name.
    message = " ".join(str(error).rpartition("[ONNXRuntimeError] : ")[2].split())
    reason = _PLACE.sub("", _CODE.sub("", message)).rstrip(".") or type(error).__name__
    if not _NO_MODEL.search(message):
        return reason
    with path.open("rb") as file:
        begin = file.read(32)
    if not begin:
        return "it is an empty file"
    for magic, form in _OTHER_FORMS:
        if begin.startswith(magic):
            return form
    return (
        f"it is not an ONNX model, or not all of one ({path.stat().st_size} bytes): was it copied to its end? {reason}"
    )


def _session(path: Path, step: Onnx) -> Any:
    try:
        onnxruntime = import_onnxruntime()
    except ImportError as error:
        raise MissingPackageError("onnxruntime", "onnx", "the step ONNX") from error
    providers = _providers(step.providers, onnxruntime, path)
    if any(name in ("CUDAExecutionProvider", "TensorrtExecutionProvider") for name, _ in providers):
        # Finds the CUDA libraries that come as Python packages.
        getattr(onnxruntime, "preload_dlls", lambda: None)()
    try:
        session = onnxruntime.InferenceSession(path, _options(step.session_options, onnxruntime), providers=providers)
    except Exception as error:
        raise StreamerError(
            f"the model {path} cannot be loaded: {why_not_loaded(error, path)}{_origin(step)}"
        ) from error
    _check_started([name for name, _ in providers], session.get_providers(), path)
    return session


def _quiet_run() -> Any:
    options = import_onnxruntime().RunOptions()
    # The error of a record goes where its step's errors go; onnxruntime would also write it to stderr, at each attempt.
    options.log_severity_level = 4
    return options


def _options(chosen: SessionOptions, onnxruntime: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = chosen.intra_op_threads
    options.inter_op_num_threads = chosen.inter_op_threads
    if chosen.inter_op_threads != 1:
        options.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    options.graph_optimization_level = {
        "disable": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
        "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
        "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    }[chosen.graph_optimization]
    # Errors only: its warnings go to stderr, past every logger.
    options.log_severity_level = 3
    spinning = "1" if chosen.spinning else "0"
    entries = {"session.intra_op.allow_spinning": spinning, "session.inter_op.allow_spinning": spinning}
    for key, value in {**entries, **chosen.config}.items():
        options.add_session_config_entry(key, value)
    return options


def _providers(
    wanted: Sequence[str | dict[str, dict[str, Any]]] | None, onnxruntime: Any, path: Path
) -> list[Provider]:
    available = onnxruntime.get_available_providers()
    providers: list[Provider] = []
    absent: list[str] = []
    guess = ""
    for entry in wanted or ("cpu",):
        for given, options in ({entry: {}} if isinstance(entry, str) else entry).items():
            name = SHORT_NAMES.get(given.lower(), given)
            if name not in available:
                absent.append(name)
                if name == given and name not in SHORT_NAMES.values():
                    guess = guess or nearest(given.lower(), SHORT_NAMES) or nearest(given, available)
            elif name not in [provider for provider, _ in providers]:
                # The same one may be named twice, where a variable names the last one: `["${PROVIDER:-cpu}", cpu]`.
                providers.append((name, options))
    if not providers:
        raise StreamerError(
            f"the model {path} asks for {', '.join(absent)}{guess}; this onnxruntime has "
            f'{", ".join(available)} (CUDA comes with onnxruntime-gpu); change "providers"'
        )
    if absent:
        _log.warning("%s: %s not available, using %s%s", path, ", ".join(absent), providers[0][0], guess)
    return providers


def _asked(step: Onnx) -> dict[str, str]:
    """The providers that the step names: name in the step to onnxruntime's name."""
    entries = step.providers or ()
    names = [name for entry in entries for name in ([entry] if isinstance(entry, str) else entry)]
    return {name: SHORT_NAMES.get(name.lower(), name) for name in names}


def _check_started(asked: list[str], started: list[str], path: Path) -> None:
    # A provider that fails to start is left out silently; the CPU provider is always there.
    failed = [name for name in asked if name not in started]
    if not failed:
        return
    if len(failed) == len(asked):
        raise StreamerError(
            f"the model {path} asks for {', '.join(failed)}, which did not start; are its libraries installed? "
            'Add "cpu" to "providers" to go on without it'
        )
    _log.warning("%s: %s did not start, using %s", path, ", ".join(failed), ", ".join(started))


def _origin(step: Onnx) -> str:
    if not is_remote(step.model_uri or ""):
        return ""
    return f"; it was fetched from {shortened(step.model_uri or '')}, and will be again once this file is deleted"
