"""A file source reads a file that is rotated, replaced or cut short without loss, and never from the middle."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors.contract import Reader
from connectors.contract.reader import Received
from connectors.file import FRAMINGS, FileSource
from connectors.file.rotation import following
from connectors.source import SourceEnded
from pipelines.errors import ConnectorError

FORMATS = ["jsonl", "lines", "protodata"]


def add(path: Path, numbers: range, format: str = "jsonl") -> None:
    """Append these numbers to the file, as records."""
    with path.open("ab") as file:
        for number in numbers:
            file.write(FRAMINGS[format].frame(b'{"n": %d}' % number))


def renamed(path: Path, ending: str = ".1") -> None:
    path.rename(f"{path}{ending}")


def renamed_with_a_date(path: Path) -> None:
    renamed(path, "-20261127")


def renamed_with_a_date_before_the_ending(path: Path) -> None:
    path.rename(path.with_name(f"{path.stem}-2026-11-27{path.suffix}"))


def copied_and_cut(path: Path) -> None:
    shutil.copy(path, f"{path}.1")
    os.truncate(path, 0)


ROTATIONS = [renamed, renamed_with_a_date, renamed_with_a_date_before_the_ending, copied_and_cut]


class Source:
    """A file source with a checkpoint, to be started again and again."""

    def __init__(self, path: Path, format: str = "jsonl") -> None:
        self.path = path
        self.format = format
        self.checkpoint = path.parent.parent / "checkpoint"

    def reader(self, *, follow: bool = False) -> Reader:
        return Reader(FileSource(self.path, self.format, checkpoint=self.checkpoint, follow=follow), 10)

    def run(self) -> list[int]:
        """The numbers that are read to the end; all of them are acknowledged."""
        with self.reader() as reader:
            received = reader.until(lambda one: any(isinstance(event, SourceEnded) for event in one.seen))
            reader.acknowledge(received)
        return numbers(received)


def numbers(received: list[Received]) -> list[int]:
    return [json.loads(one.message.value or b"null")["n"] for one in received]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "app.jsonl"


@pytest.fixture(autouse=True)
def all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("rotated", ROTATIONS)
@pytest.mark.parametrize("more", [5, 500])
def test_a_file_that_is_rotated_while_nobody_reads_it_is_read_whole_and_then_the_new_one(
    path: Path, format: str, rotated: Callable[[Path], None], more: int
) -> None:
    source = Source(path, format)
    add(path, range(100), format)
    assert source.run() == list(range(100))
    add(path, range(100, 110), format)
    rotated(path)
    add(path, range(110, 110 + more), format)
    assert source.run() == list(range(100, 110 + more))
    add(path, range(1000, 1003), format)
    assert source.run() == [1000, 1001, 1002]


@pytest.mark.parametrize("rotated", ROTATIONS)
@pytest.mark.parametrize("more", [5, 500])
def test_a_file_that_is_rotated_while_it_is_followed_is_read_whole_and_then_the_new_one(
    path: Path, rotated: Callable[[Path], None], more: int
) -> None:
    add(path, range(100))
    with Source(path).reader(follow=True) as reader:
        received = reader.take(100)
        add(path, range(100, 110))
        rotated(path)
        add(path, range(110, 110 + more))
        received += reader.take(10 + more)
        add(path, range(1000, 1003))
        received += reader.take(3)
        assert numbers(received) == [*range(110 + more), 1000, 1001, 1002]
        # All came in one lane, in which positions go on growing.
        assert [one.position for one in received] == list(range(113 + more))
        assert len({one.lane for one in received}) == 1


def test_a_file_that_was_rotated_twice_is_read_in_the_order_in_which_it_was_written(path: Path) -> None:
    source = Source(path)
    add(path, range(10))
    source.run()
    add(path, range(10, 20))
    renamed(path, ".10")
    for number, name in enumerate(("app.jsonl.9", "app.jsonl.8", "app.jsonl")):
        add(path.with_name(name), range(20 + 10 * number, 30 + 10 * number))
    # Neither older files nor those of other names belong to it.
    for name in ("app.jsonl.11", "app.jsonl.bak", "app.jsonl-20261127", "app2.jsonl.9", "other.jsonl.9"):
        add(path.with_name(name), range(1000, 1001))
    assert source.run() == list(range(10, 50))


def test_files_rotated_by_their_dates_are_read_in_the_order_of_days(path: Path) -> None:
    source = Source(path)
    add(path, range(10))
    source.run()
    path.rename(path.with_name("app-2026-09-30.jsonl"))
    for number, name in enumerate(("app-2026-10-01.jsonl", "app-2026-10-02.jsonl", "app.jsonl")):
        add(path.with_name(name), range(10 + 10 * number, 20 + 10 * number))
    add(path.with_name("app-2026-09-29.jsonl"), range(1000, 1001))
    assert source.run() == list(range(10, 40))


@pytest.mark.parametrize("follow", [False, True])
def test_a_new_file_in_place_of_one_that_is_gone_is_read_from_its_start_and_the_log_says_what_is_missing(
    path: Path, follow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(path)
    add(path, range(10))
    source.run()
    path.rename(path.with_name("elsewhere"))
    add(path, range(100, 300))
    with source.reader(follow=follow) as reader:
        assert numbers(reader.take(200)) == list(range(100, 300))
    assert "app.jsonl is another file now" in caplog.text
    assert "app.jsonl is read next, from its beginning" in caplog.text
    assert "was read up to byte 90" in caplog.text
    assert "delaycompress" in caplog.text


def test_files_that_were_rotated_after_one_that_is_compressed_now_are_read_and_older_ones_are_not(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(path)
    older = path.with_name("app.jsonl.1")
    add(older, range(1000, 1010))
    add(path, range(10))
    # Time passes between two rotations.
    os.utime(older, (1, 1))
    os.utime(path, (2, 2))
    source.run()
    older.rename(path.with_name("app.jsonl.4"))
    path.rename(path.with_name("app.jsonl.3.gz"))
    for number, name in enumerate(("app.jsonl.2", "app.jsonl.1", "app.jsonl")):
        add(path.with_name(name), range(10 + 10 * number, 20 + 10 * number))
        os.utime(path.with_name(name), (3 + number, 3 + number))
    path.with_name("app.jsonl.3.gz").write_bytes(b"compressed")
    os.utime(path.with_name("app.jsonl.3.gz"), (2.5, 2.5))
    assert source.run() == list(range(10, 40))
    assert "app.jsonl.2 is read next, from its beginning" in caplog.text


def test_a_file_that_is_written_anew_and_longer_between_two_looks_is_read_from_its_start(path: Path) -> None:
    add(path, range(100))
    with Source(path).reader(follow=True) as reader:
        reader.take(100)
        path.write_bytes(b"")
        add(path, range(1000, 1250))
        assert numbers(reader.take(250)) == list(range(1000, 1250))
        add(path, range(3))
        assert numbers(reader.take(3)) == [0, 1, 2]


def test_a_file_that_is_cut_short_and_appended_to_is_read_from_its_start(path: Path) -> None:
    add(path, range(100))
    with Source(path).reader(follow=True) as reader:
        reader.take(100)
        os.truncate(path, 0)
        assert reader.listen(0.2) == []
        add(path, range(1000, 1003))
        assert numbers(reader.take(3)) == [1000, 1001, 1002]


def test_a_file_that_is_deleted_while_it_is_followed_is_read_to_its_end_and_so_is_a_new_one(path: Path) -> None:
    add(path, range(10))
    with Source(path).reader(follow=True) as reader:
        reader.take(5)
        path.unlink()
        assert numbers(reader.take(5)) == [5, 6, 7, 8, 9]
        assert reader.listen(0.2) == []
        add(path, range(100, 103))
        assert numbers(reader.take(3)) == [100, 101, 102]


def test_what_a_writer_appends_in_the_moment_in_which_the_new_file_is_found_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*arguments: Any) -> Path | None:
        after = following(*arguments)
        if after is not None:
            add(path.with_name("app.jsonl.1"), range(5, 6))
            monkeypatch.undo()
        return after

    monkeypatch.setattr("connectors.file.recordfile.following", found)
    add(path, range(5))
    with Source(path).reader(follow=True) as reader:
        reader.take(5)
        renamed(path)
        add(path, range(6, 8))
        assert numbers(reader.take(3)) == [5, 6, 7]


@pytest.mark.parametrize("created", [False, True])
def test_what_a_writer_appends_to_the_renamed_file_before_it_goes_on_to_the_new_one_is_read(
    path: Path, created: bool
) -> None:
    add(path, range(5))
    with Source(path).reader(follow=True) as reader, path.open("ab", buffering=0) as writer:
        reader.take(5)
        renamed(path)
        if created:
            path.touch()
        assert reader.listen(0.2) == []
        writer.write(b'{"n": 5}\n{"n": 6')
        assert numbers(reader.take(1)) == [5]
        writer.write(b'}\n{"n": 7}\n')
        add(path, range(8, 10))
        assert numbers(reader.take(4)) == [6, 7, 8, 9]


def test_the_rest_of_a_rotated_file_is_read_though_no_new_one_is_there_yet_and_is_not_read_again(path: Path) -> None:
    source = Source(path)
    add(path, range(10))
    source.run()
    add(path, range(10, 20))
    renamed(path)
    path.touch()
    assert source.run() == list(range(10, 20))
    assert source.run() == []
    add(path, range(20, 30))
    assert source.run() == list(range(20, 30))


def test_half_a_line_at_the_end_of_a_rotated_file_is_a_record_as_nobody_writes_its_rest(path: Path) -> None:
    path.write_bytes(b'{"n": 1}\n{"n": 2')
    with Source(path).reader(follow=True) as reader:
        assert numbers(reader.take(1)) == [1]
        renamed(path)
        path.write_bytes(b'{"n": 3}\n')
        assert [one.message.value for one in reader.take(2)] == [b'{"n": 2', b'{"n": 3}']


def test_half_a_message_at_the_end_of_a_rotated_file_is_named_in_the_log(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(path, "protodata")
    add(path, range(1, 3), "protodata")
    os.truncate(path, path.stat().st_size - 2)
    with source.reader(follow=True) as reader:
        assert numbers(reader.take(1)) == [1]
        renamed(path)
        add(path, range(3, 4), "protodata")
        assert numbers(reader.take(1)) == [3]
    assert "its last 7 bytes, from byte 9 on, are a record without its end, which will not come any more" in caplog.text


@pytest.mark.parametrize("format", FORMATS)
def test_half_a_record_at_the_end_of_a_rotated_file_is_an_error_if_that_is_asked_for(path: Path, format: str) -> None:
    add(path, range(1, 3), format)
    os.truncate(path, path.stat().st_size - 3)
    with Reader(FileSource(path, format, follow=True, unfinished="fail"), 10) as reader:
        assert numbers(reader.take(1)) == [1]
        renamed(path)
        add(path, range(3, 4), format)
        with pytest.raises(ConnectorError, match="it ends inside this record"):
            reader.listen(10)


@pytest.mark.parametrize("rotated", ROTATIONS)
def test_records_of_the_former_file_that_are_acknowledged_late_are_not_taken_for_those_of_the_new_one(
    path: Path, rotated: Callable[[Path], None]
) -> None:
    source = Source(path)
    add(path, range(10))
    with source.reader(follow=True) as reader:
        former = reader.take(10)
        rotated(path)
        add(path, range(100, 150))
        new = reader.take(50)
        reader.acknowledge(former[:4])
    with source.reader(follow=True) as reader:
        again = reader.take(56)
        assert numbers(again) == [*range(4, 10), *range(100, 150)]
        assert [one.position for one in again] == [one.position for one in [*former[4:], *new]]
        reader.acknowledge(again[:6])
    with source.reader(follow=True) as reader:
        again = reader.take(50)
        assert numbers(again) == list(range(100, 150))
        reader.acknowledge(again[:1])
    assert source.run() == list(range(101, 150))


@pytest.mark.parametrize("rotated", ROTATIONS)
def test_a_rewind_goes_back_into_the_former_file(path: Path, rotated: Callable[[Path], None]) -> None:
    add(path, range(10))
    with Source(path).reader(follow=True) as reader:
        received = reader.take(10)
        rotated(path)
        add(path, range(10, 20))
        received += reader.take(10)
        reader.acknowledge(received[:3])
        reader.source.rewind([received[0].lane])
        again = reader.take(17)
        assert numbers(again) == list(range(3, 20))
        reader.acknowledge(again)
        add(path, range(20, 22))
        assert numbers(reader.take(2)) == [20, 21]


def test_the_former_file_is_not_looked_for_once_all_of_it_is_acknowledged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(path)
    add(path, range(10))
    with source.reader(follow=True) as reader:
        reader.acknowledge(reader.take(10))
        renamed(path)
        add(path, range(10, 11))
        reader.take(1)
    path.with_name("app.jsonl.1").unlink()
    assert source.run() == [10]
    assert "another file" not in caplog.text


def test_a_file_that_was_rotated_before_any_record_was_acknowledged_is_read_whole(path: Path) -> None:
    source = Source(path)
    add(path, range(10))
    with source.reader(follow=True) as reader:
        reader.take(10)
    renamed(path)
    add(path, range(10, 20))
    assert source.run() == list(range(20))


def test_a_link_that_leads_to_another_file_each_day_is_read_without_a_gap(path: Path) -> None:
    source = Source(path)
    days = [path.with_name(f"app-2026-11-{day}.jsonl") for day in (26, 27)]
    add(days[0], range(10))
    path.symlink_to(days[0])
    assert source.run() == list(range(10))
    add(days[0], range(10, 12))
    add(days[1], range(12, 50))
    path.unlink()
    path.symlink_to(days[1])
    assert source.run() == list(range(10, 50))


def test_a_file_behind_a_link_may_be_rotated_in_its_own_folder(path: Path, tmp_path: Path) -> None:
    source = Source(path)
    target = tmp_path / "0.log"
    add(target, range(10))
    path.symlink_to(target)
    assert source.run() == list(range(10))
    add(target, range(10, 12))
    renamed(target)
    add(target, range(12, 50))
    assert source.run() == list(range(10, 50))


def test_a_checkpoint_of_a_version_that_did_not_know_files_is_read_and_a_shorter_file_is_another_one(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(path)
    add(path, range(10))
    old = {"version": 1, "files": {"app.jsonl": {"records": 8, "offset": 72, "name": ""}}}
    source.checkpoint.write_text(json.dumps(old))
    assert source.run() == [8, 9]
    assert "another file" not in caplog.text
    renamed(path)
    add(path, range(100, 200))
    assert source.run() == list(range(100, 200)), "it knows the file from now on"
    source.checkpoint.write_text(json.dumps(old))
    path.write_bytes(b'{"n": 1}\n')
    assert source.run() == [1]
    assert "another file" in caplog.text


def test_a_file_system_that_is_mounted_again_under_another_number_has_the_same_files(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(path)
    add(path, range(200))
    source.run()
    document = json.loads(source.checkpoint.read_text())
    document["files"]["app.jsonl"]["file"]["device"] += 1
    source.checkpoint.write_text(json.dumps(document))
    add(path, range(200, 210))
    assert source.run() == list(range(200, 210))
    document["files"]["app.jsonl"]["file"]["device"] += 1
    source.checkpoint.write_text(json.dumps(document))
    renamed(path)
    add(path, range(210, 500))
    assert source.run() == list(range(200, 500))
    assert "is not found beside it" not in caplog.text


@pytest.mark.parametrize("read", ["data", "data/*.jsonl*", "link"])
def test_a_file_that_is_renamed_within_a_folder_that_is_read_is_not_read_again(path: Path, read: str) -> None:
    source = Source(path)
    source.path = path.parent.parent / read
    (path.parent.parent / "link").symlink_to(path.parent)
    add(path, range(200))
    assert source.run() == list(range(200))
    for turn in range(3):
        for number in (3, 2, 1):
            if (older := path.with_name(f"app.jsonl.{number}")).exists():
                older.rename(path.with_name(f"app.jsonl.{number + 1}"))
        add(path, range(turn, turn + 2))
        renamed(path)
        add(path, range(1000 * turn, 1000 * turn + 500))
        assert sorted(source.run()) == sorted([turn, turn + 1, *range(1000 * turn, 1000 * turn + 500)])
    assert source.run() == []


def test_a_file_that_is_renamed_within_a_folder_that_is_followed_is_not_read_again(path: Path) -> None:
    source = Source(path)
    source.path = path.parent
    add(path, range(10))
    with source.reader(follow=True) as reader:
        received = reader.take(10)
        for turn in (1, 2):
            add(path, range(10 * turn, 10 * turn + 5))
            if turn == 2:
                path.with_name("app.jsonl.1").rename(path.with_name("app.jsonl.2"))
            renamed(path)
            add(path, range(10 * turn + 5, 10 * turn + 10))
            received += reader.take(10) + reader.listen(0.2)
            assert numbers(received) == list(range(10 * turn + 10))
            if turn == 1:
                reader.acknowledge(received)
                received += reader.listen(0.2)
        reader.acknowledge(received)
        assert reader.listen(0.2) == []
    assert source.run() == []


def test_a_folder_whose_rotated_files_are_read_too_gives_each_record_once_when_all_of_them_move_on(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source(path)
    source.path = path.parent
    for number, name in enumerate(("app.jsonl.2", "app.jsonl.1", "app.jsonl")):
        add(path.with_name(name), range(100 * number, 100 * number + 100))
    received: list[Received] = []
    written = 300
    with source.reader(follow=True) as reader:
        received += reader.take(300)
        for _ in range(3):
            add(path, range(written, written + 5))
            for number in range(5, 0, -1):
                if (older := path.with_name(f"app.jsonl.{number}")).exists():
                    older.rename(path.with_name(f"app.jsonl.{number + 1}"))
            renamed(path)
            add(path, range(written + 5, written + 10))
            received += reader.take(10)
            written += 10
            assert reader.listen(0.3) == []
            reader.acknowledge(received)
            assert reader.listen(0.3) == []
        # Half of it is not acknowledged when everything moves on once more, while nobody reads.
        add(path, range(written, written + 10))
        reader.acknowledge(reader.take(10)[:5])
    for number in range(6, 0, -1):
        if (older := path.with_name(f"app.jsonl.{number}")).exists():
            older.rename(path.with_name(f"app.jsonl.{number + 1}"))
    renamed(path)
    add(path, range(written + 10, written + 20))
    assert sorted(numbers(received)) == list(range(written))
    assert sorted(source.run()) == list(range(written + 5, written + 20))
    assert source.run() == []
    assert "is not found beside it" not in caplog.text


def test_a_file_whose_first_record_is_all_that_two_files_share_is_read_from_there(path: Path) -> None:
    """Up to 1024 bytes are compared: if all that was read stands in the new file too, nothing is missed."""
    source = Source(path)
    add(path, range(1))
    source.run()
    path.write_bytes(b"")
    add(path, range(10))
    assert source.run() == list(range(1, 10))


@pytest.mark.parametrize(("name", "is_its_own"), [("app.jsonl.old", True), ("app-old.jsonl", True), ("apple", False)])
def test_a_file_is_looked_for_only_under_names_made_from_its_own(path: Path, name: str, is_its_own: bool) -> None:
    source = Source(path)
    add(path, range(10))
    with source.reader() as reader:
        reader.take(1)
    path.rename(path.with_name(name))
    add(path, range(100, 110))
    assert source.run() == [*(range(10) if is_its_own else ()), *range(100, 110)]


def test_a_damaged_identity_in_a_checkpoint_is_an_error_that_names_it(path: Path) -> None:
    source = Source(path)
    add(path, range(1))
    source.checkpoint.write_text(
        '{"version": 1, "files": {"app.jsonl": {"records": 1, "offset": 9, "file": {"a": 1}}}}'
    )
    with pytest.raises(Exception, match="is not a checkpoint of a file source"):
        source.run()
