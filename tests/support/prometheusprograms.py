"""Prometheus' programs, as `make prometheus` gets them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_UNPACKED = Path(__file__).parents[2] / ".venv" / "prometheus" / "usr" / "bin"


def prometheus_program(name: str) -> str:
    """The path of `prometheus` or `promtool`. Without it the test is skipped, saying why; in CI it fails."""
    program = shutil.which(name, path=os.pathsep.join([str(_UNPACKED), os.environ.get("PATH", os.defpath)]))
    if program is not None:
        return program
    reason = f"{name} is missing: make prometheus, or put it on the PATH"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
