"""The Rust side of the compiled hot path: formatted, without warnings, and its own tests pass."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[1] / "native"

pytestmark = pytest.mark.skipif(shutil.which("cargo") is None, reason="no Rust toolchain (cargo) on the PATH")


def cargo(folder: Path, *words: str) -> None:
    done = subprocess.run(["cargo", *words], cwd=folder, capture_output=True, text=True, check=False)
    if "is not installed" in done.stderr:
        pytest.skip(done.stderr.splitlines()[0])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("folder", [NATIVE, NATIVE / "fuzz"], ids=["native", "fuzz"])
def test_rust_files_are_formatted(folder: Path) -> None:
    cargo(folder, "fmt", "--check")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_crate_has_no_warnings_and_its_tests_pass() -> None:
    cargo(NATIVE, "clippy", "--", "-D", "warnings")
    cargo(NATIVE, "test", "--no-default-features")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_what_is_fuzzed_holds_for_the_corpus() -> None:
    cargo(NATIVE / "fuzz", "test")
