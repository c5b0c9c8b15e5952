"""The example notebook runs from its first cell to its last, and shows what it is stored with."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "examples" / "notebook" / "digits.ipynb"


def _shown(notebook: Any) -> list[tuple[int, str]]:
    """What each cell printed or shows as a table, with its number; fractions and times are left out, as they vary."""
    shown: list[tuple[int, str]] = []
    for number, cell in enumerate(notebook.cells):
        printed = ""
        for output in cell.get("outputs", []):
            if output.get("name") == "stdout":
                # What a busy machine prints at once may come in pieces.
                printed += output["text"]
                continue
            data = output.get("data", {})
            text = data.get("text/html", data.get("text/plain"))
            if text is not None:
                shown.append((number, text))
        if printed:
            shown.append((number, printed))
    return [(number, re.sub(r"\d+(\.\d+)? (us|ms|s)\b|\d+\.\d+", "#", text)) for number, text in shown]


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_is_stored_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notebook").mkdir()
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "digits")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    # The kernel finds the packages of the checkout, whether they are installed or not.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    stored = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    run = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    for cell in run.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell["outputs"] = []
    NotebookClient(
        run, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path / "notebook")}}
    ).execute()
    assert _shown(run) == _shown(stored), "jupyter execute --inplace examples/notebook/digits.ipynb stores new outputs"
    assert len(_shown(stored)) > 10


def test_the_notebook_is_stored_as_it_was_run_from_top_to_bottom() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
