"""onnxruntime's telemetry is off: with it, importing onnxruntime writes an identifier below HOME, and later sends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "examples" / "cameras" / "faces.onnx"
SUPPRESSING = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "GITHUB_ACTIONS", "TF_BUILD", "XDG_CACHE_HOME")
"""Variables that would keep onnxruntime from collecting whatever streamer does, or move its files."""

FIRST_USES = {
    "a model of a pipeline": f"""
from pathlib import Path
import pipelines
from pipelines.executors.sequence import SequenceExecutor
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.onnx import Onnx
steps = [("onnx", Onnx({str(MODEL)!r}))]
SequenceExecutor(steps, OpenContext(base=Path()), pipelines.default_registry()).close()
""",
    "streamer new --model": f"""
from pathlib import Path
from streamer.definition.modelscaffold import _inputs
_inputs(Path({str(MODEL)!r}))
""",
    "streamer doctor": """
from streamer.cli.doctor.packages import packages
assert any(line.part == "ONNX Runtime" and line.state == "ok" for line in packages())
""",
}


def files_at_home(code: list[str], home: Path) -> list[str]:
    """The files below `home` after Python ran with it as HOME, and with none of the variables of `SUPPRESSING`."""
    environment = {name: value for name, value in os.environ.items() if name not in SUPPRESSING}
    ended = subprocess.run(
        [sys.executable, *code],
        env={**environment, "HOME": str(home), "USERPROFILE": str(home), "PYTHONPATH": str(ROOT)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    return [str(path.relative_to(home)) for path in home.rglob("*") if "Microsoft" in path.parts]


@pytest.mark.slow
@pytest.mark.parametrize("use", FIRST_USES)
def test_onnxruntime_collects_nothing(use: str, tmp_path: Path) -> None:
    code = FIRST_USES[use] + "\nimport sys; assert 'onnxruntime' in sys.modules"
    assert files_at_home(["-c", code], tmp_path) == []


@pytest.mark.slow
def test_onnxruntime_collects_nothing_where_a_function_of_the_user_imports_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import onnxruntime\n\ndef same(data):\n    return data\n")
    (tmp_path / "own.yaml").write_text(
        "source: {type: memory, topic: in}\npipeline: [{'@type': FUNCTION, function: 'own:same'}]\n"
        "sink: {type: memory, topic: out}\n"
    )
    start = "import sys; from streamer.cli import main; sys.argv = ['streamer', 'check', 'own.yaml']\n"
    checked = "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code and 'onnxruntime' in sys.modules"
    assert files_at_home(["-c", start + checked], tmp_path) == []


def test_the_packages_import_onnxruntime_in_one_place_only() -> None:
    importing = re.compile(r"^\s*(?:import onnxruntime|from onnxruntime)|import_module\(.onnxruntime", re.MULTILINE)
    places = [
        str(path.relative_to(ROOT))
        for package in ("connectors", "pipelines", "protos", "streamer")
        for path in sorted((ROOT / package).rglob("*.py"))
        if importing.search(path.read_text(encoding="utf-8"))
    ]
    assert places == ["pipelines/telemetry.py"]


def test_who_wants_the_telemetry_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.telemetry import VARIABLE, disable_telemetry

    for given, kept in (("0", "0"), ("", "1"), ("1", "1")):
        monkeypatch.setenv(VARIABLE, given)
        disable_telemetry()
        assert os.environ[VARIABLE] == kept
