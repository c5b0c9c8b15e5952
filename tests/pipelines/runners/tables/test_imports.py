"""What LOOKUP imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import pipelines
with pipelines.loads('steps: [{"@type": LOOKUP, path: a.csv, by: a, take: b}]').open() as executor:
    assert executor.run({"a": "x"})["b"] == 1
print("polars" in sys.modules)
"""


@pytest.mark.slow
def test_a_table_in_csv_imports_no_polars(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\nx,1\n")
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.stdout == "False\n", done.stderr
