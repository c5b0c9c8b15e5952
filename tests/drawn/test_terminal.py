"""Pictures of terminals show what the commands print, letter for letter."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from drawn.recording import recorded, screens
from drawn.terminal import HIGH, WIDE, plain, svg

SVG = "{http://www.w3.org/2000/svg}"


def test_a_line_that_is_erased_and_written_again_is_seen_in_its_last_form() -> None:
    seen = screens("one\r\n\x1b[2K1 of 2\r\x1b[2K2 of 2\r\n\x1b[1A\x1b[2K\x1b[1mdone\x1b[0m\r\n")
    assert [plain(screen) for screen in seen] == [
        ["one", ""],
        ["one", "1 of 2"],
        ["one", "2 of 2", ""],
        ["one", "done", ""],
    ]


def test_a_program_is_recorded_as_on_a_terminal_of_that_width(tmp_path: Path) -> None:
    program = "import os, sys; print(os.get_terminal_size().columns, sys.stdout.isatty(), os.environ['NAME'])"
    written = recorded([sys.executable, "-c", program], 51, folder=tmp_path, environment={"NAME": "fans"})
    assert plain(screens(written)[-1]) == ["51 True fans", ""]


def test_a_program_that_fails_or_does_not_end_gives_no_picture(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exit code 3\nno broker"):
        recorded([sys.executable, "-c", "print('no broker'); exit(3)"], 50, folder=tmp_path, environment={})
    with pytest.raises(TimeoutError):
        recorded(
            [sys.executable, "-c", "import time; time.sleep(60)"], 50, folder=tmp_path, environment={}, seconds=0.5
        )


def test_every_word_stands_in_its_column_with_its_colour() -> None:
    drawn = ElementTree.fromstring(svg(["a \x1b[1;32mok <b>\x1b[0m", "│▀ x"], 20, "two lines"))
    words = {text.text: text for text in drawn.iter(f"{SVG}text")}
    assert list(words) == ["a", "ok <b>", "x"]
    left = float(words["a"].get("x", ""))
    assert float(words["ok <b>"].get("x", "")) == pytest.approx(left + 2 * WIDE, abs=0.1)
    assert float(words["x"].get("x", "")) == pytest.approx(left + 3 * WIDE, abs=0.1)
    assert float(words["x"].get("y", "")) == pytest.approx(float(words["a"].get("y", "")) + HIGH, abs=0.1)
    assert words["ok <b>"].get("class") == "b"
    assert words["ok <b>"].get("fill") != words["a"].get("fill")
    assert len(list(drawn.iter(f"{SVG}path"))) == 1
    assert drawn.get("aria-label") == "two lines"
