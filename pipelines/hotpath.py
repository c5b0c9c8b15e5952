"""The choice of the hot path: the compiled one (`native`), or plain Python. Both do the same.

`auto` takes the compiled one where it was built, `native` insists on it, `python` does without. A service says it by
its field `hot_path`, which is in force while its parts are made (`choosing`); the environment variable STREAMER_NATIVE
overrides it. Each part that has both asks `choose` once, when it is made.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final, Literal, NamedTuple, get_args
from zlib import crc32

from pipelines.errors import StreamerError, nearest

HotPath = Literal["auto", "python", "native"]
_CHOICES: Final = get_args(HotPath)
VARIABLE: Final = "STREAMER_NATIVE"
EXPECTED: Final = "0.1.0"
"""Version of the extension that belongs to this code."""
_setting: Final[ContextVar[HotPath]] = ContextVar("hot_path", default="auto")


class HotPathError(StreamerError):
    """The compiled hot path is required and cannot be used, or STREAMER_NATIVE holds an unknown word."""


class HotPathReport(NamedTuple):
    """Which hot path a connector or a codec takes, for the log, the metrics and `streamer check`."""

    path: Literal["python", "native"]
    """The one it takes."""
    reason: str = ""
    """Why it is plain Python; empty for the compiled one."""


NO_COMPILED_FORM: Final = HotPathReport("python", "it has no compiled form")
"""The report of a connector or codec that exists in plain Python only."""


NOT_BUILT: Final = "it was not built"
"""The reason where there is no extension, in few words, as it is shown for each part of a service."""
_WHY_NOT_BUILT: Final = (
    f"{NOT_BUILT}, as streamer was installed as pure Python: without a Rust toolchain (cargo) on the PATH, or with "
    f"{VARIABLE}=python; to have it, install streamer again with cargo and without that variable"
)


class Choice(NamedTuple):
    """The hot path of a part."""

    native: ModuleType | None
    """The extension; `None` for plain Python."""
    report: HotPathReport
    required: bool = False
    """Whether `native` was asked for, so that going on in plain Python is an error."""


@contextmanager
def choosing(hot_path: HotPath) -> Iterator[None]:
    """Connectors and codecs that are made inside take this hot path: that of their service."""
    token = _setting.set(hot_path)
    try:
        yield
    finally:
        _setting.reset(token)


def choose() -> Choice:
    """The hot path of a part that is being made, by STREAMER_NATIVE, or else by `choosing`.

    Raises:
        HotPathError: `native` is chosen and the extension cannot be used, or STREAMER_NATIVE holds an unknown word.
    """
    variable = os.environ.get(VARIABLE, "").strip().lower()
    wish = variable or _setting.get()
    if wish not in _CHOICES:
        raise HotPathError(f"{VARIABLE}={wish}: must be auto, python or native{nearest(wish, _CHOICES)}")
    if wish == "python":
        return Choice(None, HotPathReport("python", f"{VARIABLE}=python" if variable else "hot_path: python"))
    extension = _extension()
    if isinstance(extension, ModuleType):
        return Choice(extension, HotPathReport("native"), wish == "native")
    if wish == "native":
        raise HotPathError(f"the compiled hot path cannot be used: {explained(extension)}")
    return Choice(None, HotPathReport("python", extension))


def why_not() -> str | None:
    """Why the extension cannot be used at all, and what to do about that; `None` if it can."""
    extension = _extension()
    return explained(extension) if isinstance(extension, str) else None


def explained(reason: str) -> str:
    """The reason of a `HotPathReport`; `NOT_BUILT` with its causes, and what to do about them."""
    return _WHY_NOT_BUILT if reason == NOT_BUILT else reason


@cache
def _extension() -> ModuleType | str:
    try:
        extension = importlib.import_module("streamer_native._native")
    except ModuleNotFoundError:
        return NOT_BUILT
    except ImportError as error:
        return f"it cannot be loaded ({error}): install streamer again on this machine"
    version = getattr(extension, "VERSION", "?")
    if version != EXPECTED:
        return f"it is of version {version}, this code needs {EXPECTED}: build it again"
    # Beside the package in a source tree. Where it is installed, another distribution's package `native` may be there.
    crate = Path(str(extension.__file__)).parents[1] / "native"
    sources = crate / "src"
    if (crate / "build.rs").is_file() and _sum(sources) != getattr(extension, "SOURCES", "?"):
        return f"it was built of other sources than those in {sources}: build it again (make native)"
    return extension


def _sum(sources: Path) -> str:
    """The checksum of the Rust sources, computed as in `native/build.rs`, which stores it in the extension."""
    paths = {path.relative_to(sources.parent).as_posix(): path for path in sources.rglob("*.rs")}
    total = 0
    for name in sorted(paths):
        total = crc32(paths[name].read_bytes(), crc32(name.encode(), total))
    return f"{total:08x}"
