"""Versions of the libraries that matter, extras, and plug-ins."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Final

from pipelines.errors import DISTRIBUTION
from pipelines.telemetry import import_onnxruntime
from streamer.cli.doctor.extras import Extra, extras, version_of
from streamer.cli.doctor.line import Line
from streamer.definition.plugins import listed, problems

_CORE: Final = ("numpy", "protobuf", "pydantic", "msgspec", "httpx2")
_ONNX: Final = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino")
"""Distributions that all install the module `onnxruntime`, one over the other."""
_OPENCV: Final = (
    *("opencv-python-headless", "opencv-python"),
    *("opencv-contrib-python-headless", "opencv-contrib-python"),
)
"""Distributions that all install the module `cv2`."""


_FEW: Final = 2
"""The most missing packages of an extra that are named."""


def packages() -> list[Line]:
    """Libraries with their versions, extras and plug-ins."""
    return [*_core(), *_kafka(), *_onnx(), *_opencv(), *_av(), *_extras(), _plugins()]


def _core() -> list[Line]:
    lines = [Line("core", "ok", ", ".join(f"{name} {version_of(name) or 'missing'}" for name in _CORE))]
    core = extras().get("")
    if core is not None and (lacking := core.missing):
        advice = f"pip install {DISTRIBUTION}, in the way that it was installed, brings them"
        lines.append(Line("core", "wrong", f"not installed: {', '.join(lacking)}", advice))
    return lines


def _kafka() -> Iterator[Line]:
    if (client := version_of("confluent-kafka")) is None:
        return
    module = _imported("confluent_kafka")
    if isinstance(module, Line):
        yield module
    else:
        yield Line("Kafka", "ok", f"confluent-kafka {client}, librdkafka {module.libversion()[0]}")


def _onnx() -> Iterator[Line]:
    installed = [name for name in _ONNX if version_of(name)]
    if not installed:
        return
    if len(installed) > 1:
        yield _hide_each_other(installed)
    module = _imported("onnxruntime", import_onnxruntime)
    if isinstance(module, Line):
        yield module
    else:
        providers = ", ".join(name.removesuffix("ExecutionProvider") for name in module.get_available_providers())
        yield Line("ONNX Runtime", "ok", f"{module.__version__} ({installed[0]}), providers: {providers}")


def _opencv() -> Iterator[Line]:
    installed = [name for name in _OPENCV if version_of(name)]
    if not installed:
        return
    if len(installed) > 1:
        yield _hide_each_other(installed)
    module = _imported("cv2")
    yield module if isinstance(module, Line) else Line("OpenCV", "ok", f"{module.__version__} ({installed[0]})")


def _av() -> Iterator[Line]:
    if version_of("av") is None:
        return
    module = _imported("av")
    if isinstance(module, Line):
        yield module
        return
    parts = ".".join(map(str, module.library_versions.get("libavcodec", ())))
    yield Line("PyAV", "ok", f"{module.__version__}, libavcodec {parts}")


def _hide_each_other(installed: list[str]) -> Line:
    text = f"{' and '.join(installed)} are both installed, and overwrite each other's files"
    return Line("packages", "warning", text, f"pip uninstall {' '.join(installed)}, then install the one that you need")


def _extras() -> Iterator[Line]:
    named = {name: extra for name, extra in sorted(extras().items()) if name}
    yield Line("extras", "ok", ", ".join(name for name in named if not named[name].missing) or "none is installed")
    rest = [name + _lacks(named[name]) for name in named if named[name].missing]
    if rest:
        yield Line("not installed", "ok", ", ".join(rest))


def _lacks(extra: Extra) -> str:
    """Which packages are missing, where an extra is almost there: otherwise its name says enough."""
    few = extra.installed and len(extra.missing) <= _FEW
    return f" (all but {' and '.join(extra.missing)})" if few else ""


def _plugins() -> Line:
    plugins = listed()
    with warnings.catch_warnings():
        # The problems contain what plug-ins warn of.
        warnings.simplefilter("ignore", RuntimeWarning)
        wrong = problems()
    if wrong:
        return Line(
            "plug-ins", "wrong", "; ".join(wrong), "streamer plugins lists them; update or uninstall that package"
        )
    names = sorted({f"{plugin.distribution} {plugin.version}" for plugin in plugins})
    return Line("plug-ins", "ok", ", ".join(names) or "none are installed")


def _imported(name: str, import_it: Callable[[], ModuleType] | None = None) -> ModuleType | Line:
    try:
        return import_module(name) if import_it is None else import_it()
    except Exception as error:  # noqa: BLE001 - a library that is broken may raise anything
        text = f"{name} is installed and cannot be imported: {type(error).__name__}: {error}"
        return Line(name, "wrong", text, "install it again; a lacking library of the system is named in the error")
