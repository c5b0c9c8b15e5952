"""`streamer run --engine spark`: what it asks for before a session begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SERVICE = """
source: {type: kafka, topics: [a], codec: json}
pipeline: {steps: [{"@type": MAP, select: {y: "x"}}]}
sink: {type: kafka, topic: b, codec: json}
"""


def said(folder: Path, *words: str) -> tuple[int, str]:
    """The exit status and stderr of `streamer run` for one service, with these words behind."""
    (folder / "a.yaml").write_text(SERVICE)
    done = subprocess.run(
        [sys.executable, "-m", "streamer", "run", "a.yaml", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )
    return done.returncode, " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--engine", "spark"], "--engine spark needs --checkpoint DIR"),
        (["--checkpoint", "a"], "--engine streamer has no --checkpoint"),
        (["--engine", "faust", "--checkpoint", "a"], "--engine faust has no --checkpoint"),
        (["--engine", "spark", "--checkpoint", "a", "--workers", "2"], "is not possible with --workers; Spark has"),
        (
            ["--engine", "spark", "--checkpoint", "a", "--from", "earliest"],
            "--from is not possible with --engine spark",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Path, words: list[str], text: str) -> None:
    code, errors = said(tmp_path, *words)
    assert code == 2
    assert text in errors


def test_a_file_with_two_services_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(SERVICE)
    code, errors = said(tmp_path, "b.yaml", "--engine", "spark", "--checkpoint", "a")
    assert code == 2
    assert "--engine spark runs one service in a session, and a.yaml, b.yaml define 2" in errors
