"""The wire form under the oldest protobuf runtime that we say we run on; the suite itself runs on the newest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
OLDEST = "6.33.0"


@pytest.mark.timeout(600)
def test_the_wire_form_is_the_same_under_the_oldest_protobuf(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    installed = subprocess.run([*pip, f"protobuf=={OLDEST}"], capture_output=True, text=True, check=False)
    if installed.returncode != 0:
        if os.environ.get("CI"):
            pytest.fail(installed.stderr)
        pytest.skip(f"protobuf {OLDEST} could not be installed: {installed.stderr.strip()[-200:]}")
    program = (
        "import google.protobuf, pytest, sys; "
        f"assert google.protobuf.__version__ == '{OLDEST}', google.protobuf.__version__; "
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests/conformance/test_data_vectors.py', "
        "'tests/pipelines/wire/test_wire_protobuf.py']))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
