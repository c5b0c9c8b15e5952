"""A session of onnxruntime: opened as a step says, and shared by the executors of a pipeline."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from pipelines.errors import MissingPackageError, StreamerError, nearest
from pipelines.plugins.modelfiles import is_remote, shortened
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

_UNSHARED: Final = ("DmlExecutionProvider",)
"""Providers of which one session must not run in several threads at a time, by their documentation."""
_CAPTURES: Final = ("enable_cuda_graph", "trt_cuda_graph_enable", "enable_hip_graph")
"""Options of providers that record a run and repeat it: such a session must not run in several threads either."""

_log = logging.getLogger(__name__)


class OnnxSession:
    """An open session of onnxruntime.

    Models that are opened in one `Shared` from the same unchanged file, with the same providers and options, have one
    session: its `run` may be called by several threads at a time. DirectML and captured graphs do not allow that: with
    these each model has a session of its own.

    Raises, when it opens, `MissingPackageError` without onnxruntime, and `StreamerError` naming file and reason if the
    model cannot be loaded or none of the providers is there.
    """

    def __init__(self, path: Path, step: Onnx, context: OpenContext) -> None:
        self._shared = context.shared
        self._key: Hashable = _key(path, step)
        self._open = True

        def load() -> Any:
            if context.progress is not None:
                context.progress(f"loading {path.name}")
            return _loaded(path, step)

        self.opened: Any = self._shared.get(self._key, load, _drop)
        """onnxruntime's `InferenceSession`, until it is closed."""

    def close(self) -> None:
        """Free the model, unless others use it; a second call does nothing."""
        if self._open:
            self._open = False
            self.opened = None
            self._shared.release(self._key)


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


def asked(step: Onnx) -> dict[str, str]:
    """The providers that the step names: name in the step to onnxruntime's name."""
    entries = step.providers or ()
    names = [name for entry in entries for name in ([entry] if isinstance(entry, str) else entry)]
    return {name: SHORT_NAMES.get(name.lower(), name) for name in names}


def _key(path: Path, step: Onnx) -> Hashable:
    """Equal for sessions that are the same; one that must not be shared equals no other."""
    options = step.session_options
    names = set(asked(step).values())
    if names.intersection(_UNSHARED) or any(_captures(entry) for entry in step.providers or ()):
        return object()
    file = path.stat()
    providers = json.dumps(step.providers or ("cpu",), default=str)
    # A file that was replaced since the other executors were opened is another model.
    return ("onnxruntime", path.resolve(), file.st_size, file.st_mtime_ns, providers, options.model_dump_json())


def _captures(entry: str | Mapping[str, Mapping[str, Any]]) -> bool:
    given = () if isinstance(entry, str) else entry.values()
    return any(str(options.get(name, "0")).lower() in ("1", "true") for options in given for name in _CAPTURES)


def _drop(_: Any) -> None:
    """A session is freed with its last reference: it has nothing to close."""


def _loaded(path: Path, step: Onnx) -> Any:
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
