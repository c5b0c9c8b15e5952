"""What a user types to call this program again is what their shell finds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streamer.cli.invocation import program, python


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program of a virtual environment in the working folder, which is not activated."""
    made = executable(tmp_path / ".venv" / "bin" / "streamer")
    monkeypatch.setattr(sys, "argv", [str(made), "demo"])
    monkeypatch.setattr(sys, "executable", str(executable(made.with_name("python"))))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    return made


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_program_that_is_not_on_the_path_is_named_by_its_place(script: Path) -> None:
    assert program() == ".venv/bin/streamer"
    assert python() == ".venv/bin/python"


def test_a_program_on_the_path_is_named_by_its_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "streamer"
    assert python() == "python"


def test_a_link_to_it_on_the_path_is_it(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "streamer").symlink_to(script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert program() == "streamer"


def test_another_program_of_that_name_on_the_path_is_not_taken_for_it(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "other" / "streamer")
    executable(tmp_path / "other" / "python")
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert program() == ".venv/bin/streamer"
    assert python() == ".venv/bin/python"


def test_a_place_elsewhere_is_named_whole_and_quoted_for_the_shell(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = executable(tmp_path / "my tools" / "streamer")
    monkeypatch.setattr(sys, "argv", [str(made)])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert program() == f"'{made}'"


def test_in_its_own_folder_it_is_named_as_a_path(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(script.parent)
    assert program() == "./streamer"


def test_where_there_is_no_program_its_module_is_named(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "empty"))
    assert program() == ".venv/bin/python -m streamer"
