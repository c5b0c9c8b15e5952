"""Writes results into pages: the parts between marks, and the line about the machine of the measurement."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

README = Path(__file__).parent / "README.md"
PACKAGES = ("confluent-kafka", "numpy", "onnxruntime", "protobuf")


def put(section: str, body: str, page: Path = README) -> None:
    """Put a text into a page, between the marks of this section."""
    text = page.read_text(encoding="utf-8")
    start, end = f"<!-- {section} -->", f"<!-- end of {section} -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"{page} has no section {section}")
    page.write_text(pattern.sub(lambda _: f"{start}\n{body}\n{end}", text), encoding="utf-8")


def machine(minutes: float, more: str = "", packages: Sequence[str] = PACKAGES) -> str:
    """Time, machine, versions and duration of a measurement, in a line."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return (
        f"{today}, {os.cpu_count()} cores ({_processor()}), {platform.system()}, Python {platform.python_version()}, "
        f"{versions}{more}. {minutes:.1f} minutes."
    )


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found.group(1) if found else platform.machine()
