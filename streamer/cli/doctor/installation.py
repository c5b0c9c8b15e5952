"""Which streamer and which Python run here, and whether the compiled hot path does."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import streamer
from pipelines.errors import DISTRIBUTION
from pipelines.hotpath import HotPathError, choose, why_not
from streamer.cli.doctor.line import Line


def installation() -> list[Line]:
    """Version and place of streamer, Python, the platform, the hot path."""
    return [_version(), _python(), Line("platform", "ok", platform.platform()), _hot_path()]


def _version() -> Line:
    place = Path(streamer.__file__).parent
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        text = f"not installed; the code in {place} runs, without entry points and version"
        return Line("streamer", "wrong", text, "pip install . in the folder of the repository")
    return Line("streamer", "ok", f"{installed.version}, {_origin(installed)}; the code is in {place}")


def _origin(installed: Distribution) -> str:
    """How it was installed: pip and uv write where it came from into `direct_url.json` (PEP 610)."""
    by = (installed.read_text("INSTALLER") or "").strip()
    written = installed.read_text("direct_url.json")
    if written is None:
        return f"from a package index, by {by}" if by else "it is not known how it was installed"
    source = json.loads(written)
    url = str(source.get("url", ""))
    if "dir_info" in source:
        kind = "editable" if source["dir_info"].get("editable") else "from a folder"
    elif "vcs_info" in source:
        kind = "from a repository"
    else:
        kind = "from a file"
    return f"{kind} ({url.removeprefix('file://')}), by {by}" if by else f"{kind} ({url.removeprefix('file://')})"


def _python() -> Line:
    kind = "in a virtual environment" if sys.prefix != sys.base_prefix else "not in a virtual environment"
    text = f"{platform.python_implementation()} {platform.python_version()}, {kind}, {sys.executable}"
    return Line("Python", "ok", text)


def _hot_path() -> Line:
    try:
        report = choose().report
    except HotPathError as error:
        return Line("hot path", "wrong", str(error), "correct or unset STREAMER_NATIVE")
    if report.path == "native":
        return Line("hot path", "ok", "compiled")
    why = why_not()
    if why is None:
        # Somebody decided so.
        return Line("hot path", "ok", f"plain Python: {report.reason}")
    return Line("hot path", "warning", f"plain Python, which takes more CPU time: {why}")
