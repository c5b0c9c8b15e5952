"""The command line as a whole: help, errors, exit codes, the reference page, what it imports."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from pipelines import hotpath
from streamer.cli.app import COMMANDS
from streamer.cli.reference import reference

ROOT = Path(__file__).parents[3]


def test_every_command_has_help_with_its_example(cli: Any) -> None:
    for function, example in COMMANDS.items():
        ended = cli(function.__name__, "--help")
        assert ended.code == 0
        assert example in " ".join(ended.out.split())


def test_the_help_lists_every_command(cli: Any) -> None:
    ended = cli("--help")
    assert ended.code == 0
    for function in COMMANDS:
        assert f" {function.__name__} " in ended.out


@pytest.mark.slow
def test_help_is_printed_without_loading_anything_heavy() -> None:
    code = (
        "import sys; from streamer.cli.app import invoke; invoke(['--help'])\n"
        "heavy = {'numpy', 'pydantic', 'pipelines', 'connectors', 'confluent_kafka', 'onnxruntime', 'structlog'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_the_reference_page_says_what_the_commands_say() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == reference(), "python -m streamer.cli.reference > docs/cli.md"


def test_the_version_is_that_of_the_distribution(cli: Any) -> None:
    ended = cli("--version")
    assert ended.code == 0
    assert ended.out.splitlines()[0] == f"streamer-inference {version('streamer-inference')}"


def test_the_version_says_which_hot_path_is_taken_and_why(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "compiled" if hotpath.why_not() is None else f"plain Python, {hotpath.why_not()}"
    monkeypatch.delenv("STREAMER_NATIVE", raising=False)
    assert cli("--version").out.splitlines()[1] == f"hot path: {expected}"
    monkeypatch.setenv("STREAMER_NATIVE", "python")
    assert cli("--version").out.splitlines()[1] == "hot path: plain Python, STREAMER_NATIVE=python"


def test_a_mistyped_command_is_wrong_use_with_the_nearest_name(cli: Any) -> None:
    ended = cli("rnu")
    assert ended.code == 2
    assert "rnu" in ended.err
    assert "run" in ended.err.replace("rnu", "")


@pytest.mark.parametrize("arguments", [["run"], ["run", "--nope", "x"], ["broker", "--nodes", "0"], ["tap"]])
def test_wrong_use_ends_with_2_and_says_where_help_is(cli: Any, arguments: list[str]) -> None:
    ended = cli(*arguments)
    assert ended.code == 2
    assert f"Try: streamer {arguments[0]} --help" in ended.err
    assert len(ended.err.splitlines()) <= 3


def test_nothing_at_all_is_answered_with_the_help(cli: Any) -> None:
    ended = cli()
    assert ended.code == 2
    assert "Commands" in ended.out


def test_a_wrong_file_is_told_by_line_without_a_traceback(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text("source:\n  type: file\n  pth: in.jsonl\npipeline: []\nsink: {type: file, path: out.jsonl}\n")
    for command in ("run", "check"):
        ended = cli(command, file)
        assert ended.code == 2
        assert f"{file}:3: source.pth" in ended.err
        assert 'did you mean "path"?' in ended.err
        assert "Traceback" not in ended.err
        assert len(ended.err.splitlines()) <= 3


def test_debug_shows_the_traceback_wherever_it_stands(cli: Any, tmp_path: Path) -> None:
    for arguments in (["--debug", "run", "no.yaml"], ["run", "no.yaml", "--debug"]):
        ended = cli(*arguments)
        assert ended.code == 2
        assert "Traceback" in ended.err
        assert "DefinitionError" in ended.err


@pytest.mark.slow
def test_a_folder_of_the_users_never_hides_our_packages_and_may_be_imported_from(start: Any, tmp_path: Path) -> None:
    for package in ("connectors", "pipelines", "protos"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('this is the wrong package')\n")
    (tmp_path / "my_steps.py").write_text("def as_it_is(data):\n    return data\n")
    (tmp_path / "in.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "mine.yaml").write_text(
        "source: {type: file, path: in.jsonl, format: jsonl}\n"
        "pipeline: [{'@type': FUNCTION, function: 'my_steps:as_it_is'}]\n"
        "sink: {type: file, path: out.jsonl, format: jsonl}\n"
    )
    # As an installed script is run: its own folder, not the working directory, is on the path.
    script = tmp_path / "bin" / "launcher.py"
    script.parent.mkdir()
    script.write_text(f"import sys; sys.path.append({str(ROOT)!r})\nfrom streamer.cli import main; main()\n")
    done = subprocess.run([sys.executable, script, "run", "mine.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.jsonl").read_text().strip()
