"""The Rust side of the compiled hot path: formatted, without warnings, its own tests pass, also under a sanitizer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[1] / "native"

pytestmark = [
    pytest.mark.skipif(shutil.which("cargo") is None, reason="no Rust toolchain (cargo) on the PATH"),
    pytest.mark.slow,
]


QUICKLY = {"CARGO_PROFILE_DEV_DEBUG": "line-tables-only", "CARGO_INCREMENTAL": "0"}
"""How to compile: errors name their lines, which is all that is needed here."""


def cargo(folder: Path, *words: str, **surroundings: str) -> None:
    done = subprocess.run(
        ["cargo", *words],
        cwd=folder,
        env={**os.environ, **QUICKLY, **surroundings},
        capture_output=True,
        text=True,
        check=False,
    )
    if "is not installed" in done.stderr:
        pytest.skip(done.stderr.splitlines()[0])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("folder", [NATIVE, NATIVE / "fuzz"], ids=["native", "fuzz"])
def test_rust_files_are_formatted(folder: Path) -> None:
    cargo(folder, "fmt", "--check")


# The first time all that it depends on is compiled.
@pytest.mark.timeout(900)
def test_the_crate_has_no_warnings() -> None:
    cargo(NATIVE, "clippy", "--all-targets", "--no-default-features", "--", "-D", "warnings")


@pytest.mark.timeout(900)
def test_the_crates_tests_pass_under_an_address_sanitizer_where_there_is_one() -> None:
    """It is there with a nightly Rust (rustup toolchain install nightly), on the machines where it was tried."""
    nightly = subprocess.run(["cargo", "+nightly", "--version"], capture_output=True, check=False)
    about = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = re.findall(r"^host: (.+)$", about, re.MULTILINE)[0]
    # All that the crate has is in its library.
    words = ["test", "--no-default-features", "--lib"]
    if nightly.returncode == 0 and re.fullmatch(r"(x86_64|aarch64)-unknown-linux-gnu", host):
        # Named, so that what runs while it is built is built without it.
        cargo(NATIVE, "+nightly", *words, "--target", host, RUSTFLAGS="-Zsanitizer=address")
    else:
        cargo(NATIVE, *words)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_fuzz_targets_pass_for_their_corpus() -> None:
    cargo(NATIVE / "fuzz", "test")
