"""Programs that only tests need: those of the PATH, else got when the first test asks for one, and kept for later.

What is got lies in the user's cache, in `streamer-tests/`. Where a program cannot be had, the test is
skipped and says why; in CI, where the environment variable CI is set, it fails.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn, Protocol

import platformdirs
import pytest

LONGEST: Final = 800.0
"""Seconds that getting a program may take, on a machine that runs other tests meanwhile."""
UNUSED: Final = 30 * 86400.0
"""Seconds after which what no test has asked for is removed: mostly older versions."""
_REQUIREMENTS: Final = Path(__file__).parents[2] / "requirements"


class CannotBeHad(Exception):
    """A program is not there, and what would get it is missing too or has failed; the text says which."""


class Origin(Protocol):
    """Where a program comes from."""

    @property
    def folder(self) -> str:
        """Name of the folder in the cache; another version has another one."""

    @property
    def path(self) -> str:
        """The program's path in this folder."""

    def get(self, folder: Path) -> None:
        """Put the program into the empty `folder`. Raises `CannotBeHad`."""


@dataclass(frozen=True)
class GoProgram:
    """A program that is built from Go's module proxy."""

    package: str
    version: str
    flags: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        return f"{self.package.replace('/', '-')}-{self.version}"

    @property
    def path(self) -> str:
        return self.package.rpartition("/")[2]

    def get(self, folder: Path) -> None:
        """Build it, without C, which not every machine has a compiler for."""
        environment = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
        run("go", "install", *self.flags, f"{self.package}@{self.version}", environment=environment)


@dataclass(frozen=True)
class DebianProgram:
    """A program of a Debian package that is unpacked and not installed, as installing it would start a server."""

    package: str
    path: str

    @property
    def folder(self) -> str:
        return f"debian-{self.package}"

    def get(self, folder: Path) -> None:
        """Download the package by apt-get and unpack it."""
        download = ("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", self.package)
        try:
            run(*download, folder=folder)
        except CannotBeHad:
            # Where lists of packages are old or were never read.
            run("apt-get", "update", "-qq")
            run(*download, folder=folder)
        (archive,) = folder.glob("*.deb")
        run("dpkg-deb", "--extract", str(archive), str(folder))
        archive.unlink()


@dataclass(frozen=True)
class Packages:
    """Packages of Python that are in no environment, as they are large: those of `requirements/NAME.txt`.

    What else these need has to be in the environment of developers.
    """

    name: str
    module: str
    """The main one of their modules."""

    @property
    def folder(self) -> str:
        locked = (_REQUIREMENTS / f"{self.name}.txt").read_bytes()
        return f"{self.name}-{hashlib.sha256(locked + sys.version.encode()).hexdigest()[:12]}"

    @property
    def path(self) -> str:
        return f"{self.module}/__init__.py"

    def get(self, folder: Path) -> None:
        """Install them there."""
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps")
        locked = str(_REQUIREMENTS / f"{self.name}.txt")
        run(*pip, "--require-hashes", "--requirement", locked, "--target", str(folder))
        run(sys.executable, "-m", "compileall", "-q", "-j", "0", str(folder))

    def on_path(self) -> str:
        """The variable PYTHONPATH with which they are imported. Raises `CannotBeHad`."""
        return os.pathsep.join([str(kept(self).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])


PROGRAMS: Final[dict[str, Origin]] = {
    "actionlint": GoProgram("github.com/rhysd/actionlint/cmd/actionlint", "v1.7.12"),
    # The library that `docker compose` reads its files with; its own command prints what it has read.
    "compose-go": GoProgram("github.com/compose-spec/compose-go/v2/cmd", "v2.9.0"),
    # Not optimised, as that would take longer than the tests use it.
    "helm": GoProgram("helm.sh/helm/v3/cmd/helm", "v3.22.0", ("-gcflags=all=-N -l", "-ldflags=-s -w")),
    "prometheus": DebianProgram("prometheus", "usr/bin/prometheus"),
    "promtool": DebianProgram("prometheus", "usr/bin/promtool"),
}


def program(name: str) -> str:
    """The path of a program of `PROGRAMS`, which is got if it is not on the PATH.

    If it cannot be had, the test is skipped, or in CI fails.
    """
    try:
        return shutil.which(name) or str(kept(PROGRAMS[name]))
    except CannotBeHad as error:
        leave_out(f"{name} is not on the PATH, and cannot be had: {error}")


def leave_out(reason: str) -> NoReturn:
    """Skip the test, or in CI let it fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def kept(origin: Origin) -> Path:
    """The program's path in the cache, where one process gets it and others wait. Raises `CannotBeHad`."""
    cache = platformdirs.user_cache_path("streamer-tests")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / origin.folder
    # Tests run in several processes.
    with _locked(cache / f"{origin.folder}.lock"):
        if not (folder / origin.path).exists():
            # It has its name when it is whole: what gets it may be killed, with some files already there.
            part = cache / f"{origin.folder}.part"
            for old in (folder, part):
                shutil.rmtree(old, ignore_errors=True)
            part.mkdir()
            origin.get(part)
            part.rename(folder)
            _remove_unused(cache)
    return folder / origin.path


@contextmanager
def _locked(lock: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Only one process is inside. The file's time says when that was last."""
    with lock.open("a") as file:
        fcntl.flock(file, how)
        yield
        os.utime(lock)


def _remove_unused(cache: Path) -> None:
    for lock in cache.glob("*.lock"):
        if time.time() - lock.stat().st_mtime > UNUSED:
            # Not what another process gets just now.
            with suppress(BlockingIOError), _locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
                for old in (lock.with_suffix(""), lock.with_suffix(".part")):
                    shutil.rmtree(old, ignore_errors=True)


def run(*words: str, folder: Path | None = None, environment: dict[str, str] | None = None) -> None:
    """Run a command to its end. Raises `CannotBeHad` if it is not there, fails, or takes longer than `LONGEST`."""
    try:
        _run(words, folder, environment)
    except FileNotFoundError as error:
        raise CannotBeHad(f"there is no {words[0]} on the PATH") from error
    except subprocess.TimeoutExpired as error:
        raise CannotBeHad(f"{' '.join(words)} took longer than {LONGEST:.0f} s") from error


def _run(words: Sequence[str], folder: Path | None, environment: dict[str, str] | None) -> None:
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False
    )
    if done.returncode != 0:
        raise CannotBeHad(f"{' '.join(words)} failed: {done.stderr.strip()[-500:]}")
