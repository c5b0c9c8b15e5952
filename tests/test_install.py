"""Installing as `make` does it: from lock files, by uv or pip, and what it says where something is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
LOCKS = ("demo", "demo-cameras", "dev", "ray", "server", "spark", "uv")
SOURCES = ("requirements", "pyproject.toml", "setup.py", "README.md", "LICENSE", "native/Cargo.toml")


@pytest.fixture
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", REQUIREMENTS / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pins(name: str) -> dict[str, set[str]]:
    """The versions that a lock file may install, by package; several where they depend on Python or the system."""
    versions: dict[str, set[str]] = {}
    for package, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", (REQUIREMENTS / name).read_text(), re.MULTILINE):
        versions.setdefault(package, set()).add(version)
    return versions


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_a_lock_file_has_hashes_and_no_place(lock: str) -> None:
    text = (REQUIREMENTS / f"{lock}.txt").read_text()
    packages = [block for block in re.split(r"^(?=\w)", text, flags=re.MULTILINE) if block.strip()]
    assert packages
    assert [block for block in packages if "--hash=sha256:" not in block] == []
    assert "://" not in text


@pytest.mark.parametrize("lock", ["demo", "demo-cameras", "server"])
def test_what_is_shipped_has_the_versions_that_are_tested(lock: str) -> None:
    tested = pins("dev.txt")
    shipped = pins(f"{lock}.txt")
    assert {name: versions for name, versions in shipped.items() if not versions <= tested[name]} == {}


def test_constraints_are_the_versions_of_the_lock_file() -> None:
    constraints = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert {(name, version) for name, version in constraints} == {
        (name, version) for name, versions in pins("dev.txt").items() for version in versions
    }


def test_the_lock_file_has_what_the_project_asks_for() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    locked = pins("dev.txt")

    def asked(words: list[str]) -> Iterator[Requirement]:
        for requirement in map(Requirement, words):
            if requirement.name == project["name"]:
                for extra in requirement.extras:
                    yield from asked(extras[extra])
            else:
                yield requirement

    for requirement in [*asked(project["dependencies"]), *asked(extras["dev"])]:
        versions = locked[canonicalize_name(requirement.name)]
        assert any(requirement.specifier.contains(version) for version in versions), str(requirement)


def checkout(folder: Path) -> Path:
    """What installing reads, in a folder of its own."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *SOURCES]
    packages = ["protos", "pipelines", "connectors", "streamer", "streamer_native", "examples"]
    names = subprocess.run([*listed, *packages], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def run(folder: Path, *words: str, **surroundings: str) -> subprocess.CompletedProcess[str]:
    # Not the environment of the tests, but the Python that it was made of: what a user has.
    python = getattr(sys, "_base_executable", sys.executable)
    command = [python, str(folder / "requirements" / "install.py"), *words]
    environment = {**os.environ, **surroundings}
    environment.pop("VIRTUAL_ENV", None)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)


def look_at(install: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the module look at the environment of another checkout."""
    monkeypatch.setattr(install, "VENV", folder / ".venv")
    monkeypatch.setattr(install, "PYTHON", folder / ".venv" / "bin" / "python")


@pytest.mark.slow
def test_the_demo_installs_after_a_try_without_network_and_then_has_nothing_left_to_do(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = checkout(tmp_path / "checkout")
    nowhere = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    away = run(
        folder,
        "demo",
        **nowhere,
        UV_HTTP_RETRIES="0",
        UV_NO_CACHE="1",
        PIP_RETRIES="0",
        PIP_NO_CACHE_DIR="1",
        PATH="/usr/bin:/bin",
    )
    assert away.returncode == 1
    assert "uv cannot be had" in away.stderr
    assert "packages could not be installed" in away.stderr
    assert away.stderr.rstrip().endswith("Then call the same command again: what was downloaded is kept.")
    assert "Traceback" not in away.stderr

    done = run(folder, "demo")
    assert done.returncode == 0, done.stderr
    said = subprocess.run(
        [folder / ".venv" / "bin" / "streamer", "--version"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version in said
    packages = {path.name for path in folder.glob(".venv/lib/python*/site-packages/*")}
    assert {"onnxruntime", "confluent_kafka"} <= packages
    assert not {"cv2", "av", "pyarrow", "mypy", "pytest", "scipy"} & packages
    assert not list(folder.glob("streamer_native/*.so"))

    again = run(folder, "demo")
    assert (again.returncode, again.stderr) == (0, "")

    # What is done about an environment that does not work is the same whatever the reason, and takes long.
    look_at(install, folder, monkeypatch)
    assert install.works()
    # As after an update of the system's Python.
    gone = {python: python.readlink() for python in (folder / ".venv" / "bin").glob("python*") if python.is_symlink()}
    for python in gone:
        python.unlink()
    assert not install.works()
    for python, target in gone.items():
        python.symlink_to(target)
    assert install.works()
    # As where the folder got another name.
    moved = folder.rename(folder.with_name("moved"))
    look_at(install, moved, monkeypatch)
    assert not install.works()
    assert run(moved, "demo").returncode == 0
    assert (
        version
        in subprocess.run(
            [moved / ".venv" / "bin" / "streamer", "--version"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


def test_without_a_toolchain_it_says_how_it_goes_on(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CARGO", raising=False)
    install.compile_hot_path("quick", insist=False)
    assert "no Rust toolchain (cargo) on the PATH: streamer runs in plain Python here" in capsys.readouterr().err
    with pytest.raises(install.Failed, match=r"https://rustup\.rs"):
        install.compile_hot_path("quick", insist=True)


def test_a_cargo_that_fails_is_no_reason_to_stop(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CARGO", shutil.which("false") or "false")
    install.compile_hot_path("quick", insist=False)
    assert "native/ could not be compiled (above): streamer runs in plain Python here" in capfd.readouterr().err
    with pytest.raises(install.Failed, match="could not be compiled"):
        install.compile_hot_path("quick", insist=True)


def test_where_there_is_no_room_nothing_is_begun(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "VENV", tmp_path / ".venv")
    monkeypatch.setitem(install.NEEDED, "demo", 10.0**9)
    assert install.main(["demo"]) == 1
    assert "GB of disk are free here, and 1000000000.0 GB are needed" in capsys.readouterr().err
    assert not (tmp_path / ".venv").exists()


def test_a_folder_that_cannot_be_written_to_is_named(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Root may write everywhere.
    look_at(install, tmp_path, monkeypatch)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert install.main(["demo"]) == 1
    assert f"{ROOT} cannot be written to" in capsys.readouterr().err


def test_an_old_python_gets_a_sentence(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    assert install.main(["demo"]) == 1
    assert "streamer needs Python 3.11 or later, and this is 3.9" in capsys.readouterr().err
