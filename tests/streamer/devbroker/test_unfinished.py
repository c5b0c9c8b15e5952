"""A download that was cut short is taken up again, rather than half of it used for ever."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from streamer.devbroker.unfinished import finished


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "repository"
    place.mkdir()
    return place


def jar(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.class", b"a" * 1000)
    return path.read_bytes()


def test_after_a_download_that_was_cut_short_only_what_is_whole_is_left(tmp_path: Path, repository: Path) -> None:
    folder = tmp_path / "folder"
    # As an old file of another program, which is none of our business.
    (repository / "old.jar").write_bytes(b"half")
    with pytest.raises(KeyboardInterrupt):
        cut_short(folder, repository)
    with finished(folder, repository):
        assert {file.name for file in repository.iterdir()} == {"old.jar", "whole.jar", "whole.pom"}
        assert not (folder / "half.jar").exists()


def cut_short(folder: Path, repository: Path) -> None:
    with finished(folder, repository):
        content = jar(repository / "whole.jar")
        (repository / "half.jar").write_bytes(content[:-50])
        (repository / "whole.pom").write_text("<project></project>\n")
        (repository / "half.pom").write_text("<project><name>")
        (folder / "half.jar").touch()
        os.utime(repository / "old.jar", (0, 0))
        raise KeyboardInterrupt


def test_after_a_download_that_came_to_its_end_nothing_is_removed(tmp_path: Path, repository: Path) -> None:
    folder = tmp_path / "folder"
    with finished(folder, repository):
        (folder / "a.jar").write_bytes(b"a")
        (repository / "a.jar").write_bytes(b"a")
    with pytest.raises(KeyboardInterrupt), finished(folder, repository):
        raise KeyboardInterrupt
    with finished(folder, repository):
        assert (folder / "a.jar").exists()
        assert (repository / "a.jar").exists()
