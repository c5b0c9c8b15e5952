"""The packages of the wheel and its compiled part; pyproject.toml has the rest.

The environment variable STREAMER_NATIVE says whether the hot path is compiled (docs/native.md), in the words that it
has when a service runs: `native` insists on it, `python` does without, and by `auto`, the default, it is compiled if
that works.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel

OURS = ("connectors", "pipelines", "protos", "streamer", "streamer_native")
EXAMPLES = ("cameras", "digits", "objects", "sensors")
WAYS = ("auto", "python", "native")

way = os.environ.get("STREAMER_NATIVE", "").strip().lower() or "auto"
if way not in WAYS:
    sys.exit(f"STREAMER_NATIVE={way}: must be {', '.join(WAYS[:-1])} or {WAYS[-1]}")
if way == "auto" and shutil.which(os.environ.get("CARGO", "cargo")) is None:
    print(
        "no Rust toolchain (cargo) on the PATH: the hot path is not compiled, all runs in plain Python", file=sys.stderr
    )
    way = "python"


def compiled_part() -> list[object]:
    """The Rust extension, as setuptools-rust wants it; nothing where it is not compiled."""
    if way == "python":
        return []
    from setuptools_rust import Binding, RustExtension

    extension = RustExtension(
        "streamer_native._native",
        path="native/Cargo.toml",
        binding=Binding.PyO3,
        debug=False,
        optional=way == "auto",
        py_limited_api="auto",
    )
    return [extension]


class HonestWheel(bdist_wheel):
    """A wheel whose name promises a compiled part only if it is inside, also where compiling failed."""

    def get_tag(self) -> tuple[str, str, str]:
        """`cp311-abi3-PLATFORM`, or `py3-none-any` for a wheel of plain Python."""
        if not {path.suffix for path in Path(self.bdist_dir).glob("streamer_native/_native.*")} & {".so", ".pyd"}:
            self.root_is_pure = True
        return super().get_tag()


setup(
    packages=[
        *find_packages(include=[pattern for name in OURS for pattern in (name, f"{name}.*")]),
        *(f"streamer.demo.{name}" for name in EXAMPLES),
    ],
    rust_extensions=compiled_part(),
    # The oldest Python whose stable interface the compiled part keeps to, as native/Cargo.toml says.
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    cmdclass={"bdist_wheel": HonestWheel},
)
