"""The choice of the hot path, and that the compiled one was built where it can be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import hotpath
from pipelines.hotpath import HotPathError


# The variable names another program than cargo where streamer is tested as if there were none.
@pytest.mark.skipif(shutil.which(os.environ.get("CARGO", "cargo")) is None, reason="no Rust toolchain (cargo)")
def test_the_compiled_hot_path_was_built_where_a_toolchain_is() -> None:
    assert hotpath.why_not() is None


def test_plain_python_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)
    with hotpath.choosing("python"):
        assert hotpath.choose() == (None, ("python", "hot_path: python"), False)
    assert hotpath.choose() == hotpath.choosing("auto")(hotpath.choose)()


def test_the_environment_goes_before_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hotpath.VARIABLE, "Python")
    with hotpath.choosing("native"):
        assert hotpath.choose() == (None, ("python", "STREAMER_NATIVE=python"), False)


def test_an_unknown_hot_path_is_an_error_that_names_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hotpath.VARIABLE, "natve")
    with pytest.raises(HotPathError, match='did you mean "native"'):
        hotpath.choose()


def test_an_extension_that_was_not_built_is_an_error_only_where_native_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)
    monkeypatch.setattr(hotpath, "_extension", lambda: "it was not built")
    assert hotpath.choose() == (None, ("python", "it was not built"), False)
    assert (hotpath.why_not() or "").startswith("it was not built, as streamer was installed as pure Python: ")
    with (
        hotpath.choosing("native"),
        pytest.raises(HotPathError, match=r"was not built.*or with STREAMER_NATIVE=python"),
    ):
        hotpath.choose()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "it was not built, as "), (b"no library", "it cannot be loaded (")],
    ids=["pure Python", "of another machine"],
)
def test_an_extension_that_is_not_there_and_one_that_does_not_load_are_told_apart(
    content: bytes | None, reason: str, tmp_path: Path
) -> None:
    root = Path(hotpath.__file__).parent.parent
    (tmp_path / "streamer_native").mkdir()
    shutil.copy(root / "streamer_native" / "__init__.py", tmp_path / "streamer_native")
    if content is not None:
        (tmp_path / "streamer_native" / "_native.abi3.so").write_bytes(content)
    # Without the finder of an editable installation, which knows where this checkout's extension is.
    editable = "import sys; sys.meta_path = [finder for finder in sys.meta_path if '__editable__' not in str(finder)]"
    command = [sys.executable, "-c", f"{editable}; from pipelines.hotpath import why_not; print(why_not())"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(root)))}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(reason), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("change", ["nothing", "a line", "a file", "no sources", "sources of a stranger"])
def test_an_extension_that_was_built_of_other_sources_is_not_used(change: str, tmp_path: Path) -> None:
    if reason := hotpath.why_not():
        pytest.skip(f"the compiled hot path: {reason}")
    root = Path(hotpath.__file__).parent.parent
    shutil.copytree(root / "streamer_native", tmp_path / "streamer_native")
    shutil.copytree(root / "native", tmp_path / "native", ignore=shutil.ignore_patterns("target", "fuzz"))
    sources = tmp_path / "native" / "src"
    if change == "a line":
        with (sources / "lib.rs").open("a", encoding="utf-8") as file:
            file.write("// one more\n")
    elif change == "a file":
        (sources / "more.rs").touch()
    elif change == "no sources":
        # As in an installed package.
        shutil.rmtree(tmp_path / "native")
    elif change == "sources of a stranger":
        # Anybody may install a package `native` beside ours.
        shutil.rmtree(tmp_path / "native")
        sources.mkdir(parents=True)
        (sources / "lib.rs").touch()
    script = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}, {str(root)!r}]
from pipelines.hotpath import why_not
print(why_not())
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    if change in ("nothing", "no sources", "sources of a stranger"):
        assert answer.strip() == "None"
    else:
        assert "built of other sources" in answer
