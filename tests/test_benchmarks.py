"""The benchmarks that need no broker run, and say what they measured."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["steps", "--seconds", "0.01", "--case", "OUTPUT"], r"^REGRESSION_OUTPUT 3 columns +[\d.]+ +[\d.]+ +[\d.]+$"),
        (["steps", "--seconds", "0.01", "--case", "BBOX"], r"^YOLO_BBOX the same with nms +[\d.]+ +[\d.]+ +[\d.]+$"),
        (["forms", "--seconds", "0.01"], r"^\| protobuf \| 1\.00 \| [\d.]+ \| [\d.]+ \| 1 \|$"),
    ],
)
def test_a_benchmark_prints_a_line_for_each_case(command: list[str], line: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{command[0]}", *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(line, done.stdout, re.MULTILINE), done.stdout
