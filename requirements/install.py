"""Create .venv and install a locked set of packages there, and this project itself; `make` calls it.

    python3 requirements/install.py demo                    what `make demo` needs: demo.txt
    python3 requirements/install.py dev                     everything that tests and development need: dev.txt
    python3 requirements/install.py dev --native quick      the same, with the hot path compiled if cargo is there

Packages are checked against the hashes of the lock file. They are installed by uv, which is on the PATH or is fetched
by pip; where it cannot be had, by pip, which takes longer. What a call downloaded is kept, so that the next one goes on
from there; a call that has nothing to do ends at once. It needs Python and its standard library only.
"""

# Old versions of Python read this file too, down to the check of the version: nothing here may be newer than 3.8.
from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
COMPILED = VENV / ".native"
"""Holds the profile by which the compiled part in this checkout was built."""
LOCKS = ("demo", "demo-cameras", "dev")
NEEDED = {"demo": 0.9, "demo-cameras": 1.3, "dev": 3.5}
"""GB of disk that installing takes, with the cache of uv or pip."""
AGAIN = "Then call the same command again: what was downloaded is kept."


class Failed(Exception):
    """Installing cannot go on; the text says why, and what to do."""


def main(arguments: list[str] | None = None) -> int:
    """Install what the command line names; the exit status."""
    parser = argparse.ArgumentParser(description="Create .venv and install a locked set of packages there.")
    parser.add_argument("lock", choices=LOCKS, help="which of requirements/*.txt")
    parser.add_argument(
        "--native", choices=("quick", "release"), help="compile the hot path too: quickly, or as for wheels"
    )
    parser.add_argument("--insist", action="store_true", help="fail if the hot path cannot be compiled")
    wanted = parser.parse_args(arguments)
    try:
        if sys.version_info < (3, 11):  # noqa: UP036
            version = ".".join(map(str, sys.version_info[:2]))
            raise Failed(f"streamer needs Python 3.11 or later, and this is {version}: make PYTHON=python3.12 ...")
        install(wanted.lock)
        if wanted.native:
            compile_hot_path(wanted.native, insist=wanted.insist)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\ninterrupted. {AGAIN}", file=sys.stderr)
        return 130
    return 0


def install(lock: str) -> None:
    """Bring .venv to the state of a lock file, if it is not there already.

    Raises:
        Failed: Packages cannot be had, or there is no room for them.
    """
    # What the developers' environment has includes what the demos need, in the same versions.
    if works() and any(
        stamp_of(name).exists() and stamp_of(name).read_text() == state_of(name) for name in {lock, "dev"}
    ):
        return
    room = shutil.disk_usage(ROOT).free / 1e9
    if room < NEEDED[lock]:
        raise Failed(f"{room:.1f} GB of disk are free here, and {NEEDED[lock]} GB are needed. Make room. {AGAIN}")
    begin = time.monotonic()
    create_environment()
    requirements = HERE / f"{lock}.txt"
    count = sum("==" in line for line in requirements.read_text().splitlines())
    say(f"installing up to {count} packages into {VENV.name} ...")
    fetch(["--require-hashes", "--requirement", str(requirements)])
    # The compiled part is built by itself, so that its progress is seen.
    fetch(["--no-deps", "--no-build-isolation", "--editable", str(ROOT)], STREAMER_NATIVE="python")
    stamp_of(lock).write_text(state_of(lock))
    say(f"installed in {time.monotonic() - begin:.0f} s")


def stamp_of(lock: str) -> Path:
    """The file that holds the state in which a lock file was installed last."""
    return VENV / f".installed-{lock}"


def state_of(lock: str) -> str:
    """A checksum of what decides on the contents of .venv."""
    sources = (HERE / f"{lock}.txt", ROOT / "pyproject.toml", ROOT / "setup.py")
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()


def works() -> bool:
    """Whether .venv has a Python that runs, and is where it was created: its programs name that place."""
    described = VENV / "pyvenv.cfg"
    if not (PYTHON.exists() and described.exists()):
        return False
    if subprocess.run([PYTHON, "-c", ""], capture_output=True).returncode != 0:
        return False
    created = [line for line in described.read_text().splitlines() if line.startswith("command = ")]
    return not created or created[0].endswith(str(VENV))


def create_environment() -> None:
    """Create .venv, also instead of one that does not work any more: half made, moved, or of a Python that is gone.

    Raises:
        Failed: It cannot be created.
    """
    if works() and subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return
    say(f"creating {VENV.name} ...")
    if not os.access(ROOT, os.W_OK):
        raise Failed(f"{ROOT} cannot be written to: call this in a checkout of yours")
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], capture_output=True, text=True)
    if made.returncode != 0:
        said = made.stdout + made.stderr
        hint = " On Debian and Ubuntu: sudo apt-get install python3-venv" if "ensurepip" in said else ""
        raise Failed(f".venv cannot be created: {last_line(made)}.{hint}")


def fetch(arguments: list[str], **surroundings: str) -> None:
    """Install packages by uv, or by pip where uv cannot be had or fails.

    Raises:
        Failed: Neither of them could.
    """
    environment = {**os.environ, **surroundings}
    uv = uv_program()
    if uv is not None:
        # A cache on another disk cannot be linked to, which is no reason for a warning.
        environment.setdefault("UV_LINK_MODE", "hardlink" if same_disk() else "copy")
        if subprocess.run([uv, "pip", "install", "--python", PYTHON, *arguments], env=environment).returncode == 0:
            return
        say("uv could not do it (above); trying pip, which takes longer ...")
    pip = [PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--retries", "2", *arguments]
    if subprocess.run(pip, env=environment).returncode == 0:
        return
    if shutil.disk_usage(ROOT).free < 5e8:
        raise Failed(f"the disk is full. Make room, some {NEEDED['dev']} GB for all of it. {AGAIN}")
    raise Failed(
        "packages could not be installed; the lines above say why. Where the index of Python packages is reached by a "
        "proxy or a mirror, HTTPS_PROXY, or UV_DEFAULT_INDEX and PIP_INDEX_URL, name it. " + AGAIN
    )


def uv_program() -> str | None:
    """The path of uv, which is put into .venv where there is none; `None` if it cannot be had."""
    program = shutil.which("uv", path=os.pathsep.join([str(BIN), os.environ.get("PATH", "")]))
    if program is not None and subprocess.run([program, "--version"], capture_output=True).returncode == 0:
        return program
    words = ["install", "--quiet", "--disable-pip-version-check", "--retries", "2", "--require-hashes"]
    pip = [PYTHON, "-m", "pip", *words, "--only-binary", ":all:", "--requirement", HERE / "uv.txt"]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode != 0:
        say(f"uv cannot be had ({last_line(done)}); pip does its work, which takes longer ...")
        return None
    return shutil.which("uv", path=str(BIN))


def same_disk() -> bool:
    """Whether files can be linked from uv's cache to here; unknown places count as the same disk."""
    cache = Path(os.environ.get("UV_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return not cache.exists() or cache.stat().st_dev == VENV.stat().st_dev


def compile_hot_path(profile: str, *, insist: bool) -> None:
    """Compile the hot path into this checkout, by a profile of native/Cargo.toml; cargo compiles only what changed.

    What was built by `release` stays so. Without cargo, or where it fails, streamer runs in plain Python.

    Raises:
        Failed: It cannot be compiled, and `insist` is set.
    """
    way_on = "streamer runs in plain Python here, with the same results and more CPU time"
    if shutil.which(os.environ.get("CARGO", "cargo")) is None:
        if insist:
            raise Failed("there is no cargo on the PATH: https://rustup.rs has it, or a package rust of your system")
        say(f"no Rust toolchain (cargo) on the PATH: {way_on}")
        return
    if COMPILED.exists() and COMPILED.read_text() == "release":
        profile = "release"
    wanted = "a quick build" if profile == "quick" else "an optimised build, a minute or two"
    say(f"compiling native/ where it changed ({wanted}) ...")
    environment = {**os.environ, "STREAMER_NATIVE": "native", "SETUPTOOLS_RUST_CARGO_PROFILE": profile}
    command = [PYTHON, "setup.py", "--quiet", "build_rust", "--inplace"]
    if subprocess.run(command, cwd=ROOT, env=environment).returncode == 0:
        COMPILED.write_text(profile)
    elif insist:
        raise Failed("native/ could not be compiled; the lines above say why")
    else:
        say(f"native/ could not be compiled (above): {way_on}. `make native` tries again")


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """The last line that a program said, which most often is its error."""
    return ([line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["no reason given"])[-1]


def say(text: str) -> None:
    """Print progress at once."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
