"""A table whose file is replaced, written to, broken or deleted while it is in use."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from waiting import until

import pipelines
from pipelines import Data, Lookup
from pipelines.runners.runner import OpenContext
from pipelines.runners.tables import livetable
from pipelines.runners.tables.livetable import AGAIN, WRITING, LiveTable
from pipelines.runners.tables.lookup import LookupRunner

LOGGER = "pipelines.runners.tables.livetable"


class Watched:
    """A table beside its file; the test looks in place of the thread."""

    def __init__(self, path: Path, spelled: str | None = None) -> None:
        self.path = path
        self.runner = LookupRunner(Lookup(spelled or path, by="id", take="x"), OpenContext(step="lines"))
        assert isinstance(self.runner._live, LiveTable)
        self.live = self.runner._live

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.live.look()

    @property
    def rows(self) -> int:
        return self.live.table.size

    def replace(self, text: str) -> None:
        """A new file under the same name, as it is to be done."""
        new = self.path.with_name("new")
        new.write_text(text)
        new.rename(self.path)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    path = tmp_path / "lines.csv"
    path.write_text("id,x\na,1\n")
    table = Watched(path)
    yield table
    table.runner.close()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, LOGGER)

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    return said


def test_a_file_that_stays_as_it_is_is_not_read_again(watched: Watched) -> None:
    before = watched.live.table
    watched.look(5)
    assert watched.live.table is before
    os.utime(watched.path, ns=(1, watched.path.stat().st_mtime_ns))
    watched.look(3)
    assert watched.live.table is before, "reading it changes no more than the time of reading"


def test_a_replaced_file_is_in_use_once_it_is_the_same_for_two_looks(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    watched.replace("id,x\na,1\nb,2\n")
    watched.look()
    assert (watched.rows, watched.live.outdated) == (1, True)
    watched.look()
    assert (watched.rows, watched.live.outdated) == (2, False)
    assert caplog.messages == ["lines: lines.csv was replaced; it has 2 rows now"]


def test_a_file_that_is_being_written_is_not_read_before_it_is_whole(
    watched: Watched, warnings: Callable[[], list[str]]
) -> None:
    with watched.path.open("w") as file:
        file.write("id,x\n")
        for row in range(WRITING + 5):
            file.write(f"k{row},{row}\n")
            file.flush()
            watched.look()
            assert (watched.rows, watched.live.outdated) == (1, True)
    (said,) = warnings()
    assert "the file is being written to all the time; write a new one and rename it" in said
    assert said.endswith("the table of before, of 1 rows, stays in use")
    watched.look()
    assert (watched.rows, watched.live.outdated) == (WRITING + 5, False)


def test_a_file_that_changes_while_it_is_read_is_read_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    read = watched.live._make
    watched.replace("id,x\na,1\nb,2\n")
    watched.look()

    def slow(before: object) -> object:
        table = read(before)  # type: ignore[arg-type]
        watched.replace("id,x\na,1\nb,2\nc,3\n")
        return table

    monkeypatch.setattr(watched.live, "_make", slow)
    watched.look()
    assert (watched.rows, watched.live.outdated) == (1, True)
    monkeypatch.setattr(watched.live, "_make", read)
    watched.look(2)
    assert (watched.rows, watched.live.outdated) == (3, False)
    assert warnings() == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "lines.csv is empty"),
        ("id,x\na\n", "line 2: the row has 1 fields"),
        ("id,y\na,1\n", 'has no column "x"'),
        ("id,x\na,1\na,2\n", "is there twice"),
        ("id,x\na,one\n", 'line 2: x: "one" is no integer'),
    ],
)
def test_a_broken_file_leaves_the_table_in_use_and_the_log_says_so_once(
    watched: Watched, content: str, text: str, warnings: Callable[[], list[str]]
) -> None:
    watched.replace(content)
    watched.look(AGAIN * 3)
    assert (watched.rows, watched.live.outdated) == (1, True)
    (said,) = warnings()
    assert said.startswith(f"lines: {watched.path}: ")
    assert text in said
    watched.replace("id,x\na,1\nb,2\n")
    watched.look(2)
    assert (watched.rows, watched.live.outdated) == (2, False)


def test_a_broken_file_is_not_read_at_each_look(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[object] = []

    def broken(before: object) -> object:
        reads.append(before)
        raise MemoryError

    monkeypatch.setattr(watched.live, "_make", broken)
    watched.replace("id,x\n")
    watched.look(2)
    assert len(reads) == 1
    watched.look(AGAIN)
    assert len(reads) == 1
    watched.look()
    assert len(reads) == 2, "what held it may have passed"


def test_a_deleted_file_leaves_the_table_in_use_until_there_is_one_again(
    watched: Watched, warnings: Callable[[], list[str]]
) -> None:
    watched.path.rename(watched.path.with_name("away"))
    watched.look(5)
    assert (watched.rows, watched.live.outdated) == (1, True)
    (said,) = warnings()
    assert "the file is not there any more" in said
    before = watched.live.table
    watched.path.with_name("away").rename(watched.path)
    watched.look()
    assert (watched.live.table, watched.live.outdated) == (before, False)
    watched.path.unlink()
    watched.look()
    assert len(warnings()) == 2, "it is another time"
    watched.path.write_text("id,x\na,1\nb,2\nc,3\n")
    watched.look(2)
    assert (watched.rows, watched.live.outdated) == (3, False)


def test_a_link_to_another_file_counts_as_a_new_file(tmp_path: Path) -> None:
    for name, text in (("1", "id,x\na,1\n"), ("2", "id,x\na,1\nb,2\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lines.csv").write_text(text)
    (tmp_path / "now").symlink_to("1")
    watched = Watched(tmp_path / "now" / "lines.csv")
    (tmp_path / "next").symlink_to("2")
    (tmp_path / "next").rename(tmp_path / "now")
    watched.look(2)
    assert watched.rows == 2
    watched.runner.close()


def test_a_column_keeps_its_type_so_that_steps_behind_can_rely_on_it(watched: Watched) -> None:
    watched.replace("id,x\na,\nb,7\n")
    watched.look(2)
    assert watched.rows == 2
    assert watched.live.table.kinds == {"id": "text", "x": "integer"}
    watched.replace("id,x\n7,1\n8,2\n")
    watched.look(2)
    assert watched.rows == 2
    assert watched.live.table.kinds == {"id": "text", "x": "integer"}, "keys that look like integers now"


def test_a_commit_to_an_sqlite_file_counts_as_a_new_one_wherever_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE t (id, x)")
        writer.execute("INSERT INTO t VALUES ('a', 1)")
        writer.commit()
        watched = Watched(path, f"{path}#t")
        before = watched.live.table
        watched.look(3)
        assert watched.live.table is before
        writer.execute("INSERT INTO t VALUES ('b', 2)")
        writer.commit()
        watched.look(2)
        assert watched.rows == 2
        watched.runner.close()


def test_the_thread_that_looks_begins_with_the_first_batch_and_ends_with_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(livetable, "LOOK", 0.01)
    path = tmp_path / "quick.csv"
    path.write_text("id,x\na,1\n")

    def looking() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "table quick.csv"]

    with pipelines.Sequence([Lookup(path, by="id", take="x")]).open() as executor:
        assert not looking()
        assert executor.run({"id": "a"}) == Data({"id": "a", "x": 1})
        assert len(looking()) == 1
        (tmp_path / "new").write_text("id,x\na,2\n")
        (tmp_path / "new").rename(path)
        until(lambda: executor.run({"id": "a"}) == Data({"id": "a", "x": 2}))
        path.write_text("id\n")
        outdated = executor.metrics["0:LOOKUP"]["streamer_lookup_outdated"]
        until(lambda: executor.run({"id": "a"}) and outdated.samples()[0][1])
        assert executor.run({"id": "a"}) == Data({"id": "a", "x": 2})
        assert len(looking()) == 1
    until(lambda: not looking())
