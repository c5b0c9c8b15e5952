"""The choice of the hot path: the compiled one (`native`), or plain Python. Both do the same.

`auto` takes the compiled one where it was built, `native` insists on it, `python` does without. The environment
variable STREAMER_NATIVE (one of these words) overrides the configuration.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final, Literal, NamedTuple, cast, get_args
from zlib import crc32

from pipelines.errors import StreamerError, nearest

HotPath = Literal["auto", "python", "native"]
_CHOICES: Final = get_args(HotPath)
VARIABLE: Final = "STREAMER_NATIVE"
EXPECTED: Final = "0.1.0"
"""Version of the extension that belongs to this code."""


class HotPathError(StreamerError):
    """The compiled hot path is required and cannot be used, or STREAMER_NATIVE holds an unknown word."""


def chosen(configured: HotPath = "auto") -> HotPath:
    """The choice of STREAMER_NATIVE if it is set, else `configured`. Raises `HotPathError` for any other word there."""
    wish = os.environ.get(VARIABLE, "").strip().lower()
    if not wish:
        return configured
    if wish not in _CHOICES:
        raise HotPathError(f"{VARIABLE}={wish}: must be auto, python or native{nearest(wish, _CHOICES)}")
    return cast(HotPath, wish)


def compiled(configured: HotPath = "auto") -> ModuleType | None:
    """The extension, if it is to be used and can be.

    Raises `HotPathError` if `native` is chosen and it is not there.
    """
    wish = chosen(configured)
    if wish == "python":
        return None
    found = _extension()
    if isinstance(found, ModuleType):
        return found
    if wish == "native":
        raise HotPathError(f"the compiled hot path cannot be used: {found}")
    return None


class HotPathReport(NamedTuple):
    """Which hot path a connector or a codec takes, for the log, the metrics and `streamer check`."""

    path: Literal["python", "native"]
    """The one it takes."""
    reason: str = ""
    """Why it is plain Python; empty for the compiled one."""


NO_COMPILED_FORM: Final = HotPathReport("python", "it has no compiled form")
"""The report of a connector or codec that exists in plain Python only."""


def taken(configured: HotPath = "auto") -> HotPathReport:
    """The hot path of a connector or codec with a compiled form, by its configuration. Raises as `compiled` does."""
    if compiled(configured) is not None:
        return HotPathReport("native")
    if chosen(configured) != "python":
        return HotPathReport("python", f"{why_not()}")
    return HotPathReport("python", f"{VARIABLE}=python" if os.environ.get(VARIABLE, "").strip() else "hot_path: python")


def why_not() -> str | None:
    """Why the extension cannot be used at all; `None` if it can."""
    found = _extension()
    return found if isinstance(found, str) else None


@cache
def _extension() -> ModuleType | str:
    try:
        found = importlib.import_module("streamer_native._native")
    except ImportError as error:
        return f"it was not built ({error}); install again where a Rust toolchain (cargo) is on the PATH"
    version = getattr(found, "VERSION", "?")
    if version != EXPECTED:
        return f"it is of version {version}, this code needs {EXPECTED}: build it again"
    # Beside the package in a source tree. Where it is installed, another distribution's package `native` may be there.
    crate = Path(str(found.__file__)).parents[1] / "native"
    sources = crate / "src"
    if (crate / "build.rs").is_file() and _sum(sources) != getattr(found, "SOURCES", "?"):
        return f"it was built of other sources than those in {sources}: build it again (make native)"
    return found


def _sum(sources: Path) -> str:
    """As `native/build.rs` makes it. An extension that is installed without its sources came with the code it fits."""
    paths = {path.relative_to(sources.parent).as_posix(): path for path in sources.rglob("*.rs")}
    total = 0
    for name in sorted(paths):
        total = crc32(paths[name].read_bytes(), crc32(name.encode(), total))
    return f"{total:08x}"
