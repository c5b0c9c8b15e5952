"""docs/architecture.md names the rooms that there are, and all of them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`((?:protos|native|pipelines|connectors|streamer)/[\w./]*)`", TEXT))


def test_every_room_and_file_that_is_named_exists() -> None:
    assert len(NAMED) > 40
    assert [name for name in sorted(NAMED) if not (ROOT / name).exists()] == []


def test_the_architecture_page_names_every_folder() -> None:
    rooms = {
        f"{folder.relative_to(ROOT)}/"
        for package in ("pipelines", "connectors", "streamer")
        for folder in (ROOT / package).iterdir()
        if (folder / "__init__.py").exists()
    }
    assert rooms - NAMED == set()


def test_no_folder_has_more_than_twenty_files() -> None:
    """A folder with more files than one takes in at a glance wants rooms of its own."""
    many = {
        str(folder.relative_to(ROOT)): len(list(folder.glob("*.py")))
        for package in ("pipelines", "connectors", "streamer")
        for folder in (ROOT / package).rglob("*")
        if folder.is_dir() and len(list(folder.glob("*.py"))) > 20
    }
    assert many == {}
