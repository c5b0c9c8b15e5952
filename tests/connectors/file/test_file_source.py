"""File sources beyond the contract: damage, growth, checkpoints, folders."""

from __future__ import annotations

import errno
import io
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from google.protobuf.proto import serialize_length_prefixed

from connectors.contract import Reader
from connectors.file import FRAMINGS, FileSinkConfig, FileSource, FileSourceConfig
from connectors.file.framing import Unfinished
from connectors.file.recordbuffer import CHUNK
from connectors.source import CheckpointNote, LaneBegan, SourceEnded
from pipelines import Data
from pipelines.errors import ConnectorError
from protos.data_pb2 import DataMap


def delimited(*payloads: bytes) -> bytes:
    return b"".join(FRAMINGS["protodata"].frame(payload) for payload in payloads)


def values(source: FileSource) -> list[bytes]:
    with Reader(source, 10) as reader:
        return [one.message.value for one in reader.until(_ended)]


def _ended(reader: Reader) -> bool:
    return any(isinstance(event, SourceEnded) for event in reader.seen)


def test_messages_that_protobuf_wrote_are_read(tmp_path: Path) -> None:
    messages = [DataMap.FromString(Data({"x": number, "text": "x" * number}).to_bytes()) for number in (0, 90, 900)]
    stream = io.BytesIO()
    for message in messages:
        serialize_length_prefixed(message, stream)
    (tmp_path / "data").write_bytes(stream.getvalue())
    assert values(FileSource(tmp_path / "data")) == [message.SerializeToString() for message in messages]


def test_records_of_all_lengths_of_a_prefix_are_read(tmp_path: Path) -> None:
    payloads = [bytes([n % 251]) * n for n in (0, 1, 127, 128, 16_383, 16_384, CHUNK - 1, CHUNK, 5_000_000, 3)]
    (tmp_path / "data").write_bytes(delimited(*payloads))
    assert values(FileSource(tmp_path / "data")) == payloads


def test_lines_of_json_that_are_read_as_messages_are_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"a": 1}\n')
    with (
        Reader(FileSource(tmp_path / "data.jsonl")) as reader,
        pytest.raises(ConnectorError, match="if the file holds JSON, a record a line, write format: jsonl"),
    ):
        reader.poll()


def test_a_check_notes_a_path_that_says_another_format(tmp_path: Path) -> None:
    for name, meant in (("a.jsonl", "jsonl"), ("a.NDJSON", "jsonl"), ("a.csv", "lines"), ("a.pb", ""), ("a", "")):
        notes = (f"{name} holds messages with their length before each; for lines write format: {meant}",)
        assert FileSourceConfig(path=tmp_path / name).notes == (notes if meant else ())
        assert FileSinkConfig(path=tmp_path / name).notes == (notes if meant else ())
        assert FileSinkConfig(path=tmp_path / name, format="lines").notes == ()


CUT = {
    "protodata": (delimited(b"one", b"two", bytes(200)), 8),
    "jsonl": (b'{"a": 1}\n{"a": 2}\n{"a": "%s"}\n' % bytes(200), 18),
    "lines": (b"one\ntwo\n%s\n" % bytes(200), 8),
}
"""Three records in each format, and the byte at which the third begins."""


@pytest.mark.parametrize("cut", [1, 2, 100])
@pytest.mark.parametrize("format", CUT)
def test_half_a_record_at_the_end_of_a_file_is_read_by_the_next_run_once_it_is_complete(
    tmp_path: Path, format: str, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    content, start = CUT[format]
    path = tmp_path / "data"
    path.write_bytes(content[: start + cut])

    def run() -> list[int]:
        source = FileSource(path, format, checkpoint=tmp_path / "checkpoint")
        with Reader(source, 10) as reader:
            received = reader.until(_ended)
            reader.acknowledge(received)
        left = f"{path}: its last {cut} bytes, from byte {start} on, are a record without its end"
        assert source.waits == (left if path.stat().st_size < len(content) else None)
        return [one.position for one in received]

    assert run() == [0, 1]
    assert f"its last {cut} bytes, from byte {start} on, are a record without its end" in caplog.text
    assert ("write unfinished: read" in caplog.text) == (format != "protodata")
    assert run() == []
    path.write_bytes(content)
    caplog.clear()
    assert run() == [2]
    assert caplog.text == ""


@pytest.mark.parametrize("format", CUT)
def test_half_a_record_at_the_end_of_a_file_is_an_error_if_that_is_asked_for(tmp_path: Path, format: str) -> None:
    content, start = CUT[format]
    (tmp_path / "data").write_bytes(content[: start + 7])
    with Reader(FileSource(tmp_path / "data", format, unfinished="fail")) as reader:
        assert [one.position for one in reader.take(2)] == [0, 1]
        with pytest.raises(ConnectorError, match=rf"data: record 2 at byte {start}: it ends inside this record"):
            reader.poll()
        assert not _ended(reader)


def test_half_a_record_at_the_end_of_a_file_is_read_as_it_is_if_that_is_asked_for(tmp_path: Path) -> None:
    for form, half in (("jsonl", b'{"a": "'), ("lines", b"half a li")):
        (tmp_path / form).write_bytes(b"[1]\n" + half)
        assert values(FileSource(tmp_path / form, form, unfinished="read")) == [b"[1]", half]
    (tmp_path / "data").write_bytes(delimited(bytes(9))[:7])
    with (
        Reader(FileSource(tmp_path / "data", unfinished="read")) as reader,
        pytest.raises(ConnectorError, match="it ends inside this record"),
    ):
        reader.poll()


@pytest.mark.parametrize("last", [b'{"b": 2}', b"[3]", b'"text"', b'{"b": 2} \r', b"  "])
def test_json_that_lacks_nothing_but_its_line_feed_is_read(
    tmp_path: Path, last: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for unfinished in get_args(Unfinished):
        (tmp_path / "data").write_bytes(b'{"a": 1}\n' + last)
        source = FileSource(tmp_path / "data", "jsonl", unfinished=unfinished)
        assert values(source) == [one for one in (b'{"a": 1}', last.rstrip()) if one]
        assert caplog.text == ""


@pytest.mark.parametrize("last", [b"12", b"nul", b'{"a": [1, 2]', b"[" * 100_000])
def test_json_that_may_have_more_to_come_is_left_to_the_next_run(tmp_path: Path, last: bytes) -> None:
    (tmp_path / "data").write_bytes(b'{"a": 1}\n' + last)
    assert values(FileSource(tmp_path / "data", "jsonl")) == [b'{"a": 1}']


def test_a_followed_file_says_that_it_waits_for_the_rest_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b'1\n{"a"')
    source = FileSource(path, "jsonl", follow=True)
    with Reader(source, 10) as reader:
        reader.take(1)
        reader.until(lambda _: source.waits is not None)
        assert source.waits == f"{path}: its last 4 bytes, from byte 2 on, are a record without its end"
        with path.open("ab") as file:
            file.write(b": 1}\n")
        reader.take(1)
        reader.until(lambda _: source.waits is None)


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff\x7f", b"\xff" * 12])
def test_a_damaged_length_is_an_error_that_names_its_byte(tmp_path: Path, prefix: bytes) -> None:
    (tmp_path / "data").write_bytes(delimited(b"good") + prefix + delimited(b"lost"))
    with Reader(FileSource(tmp_path / "data")) as reader:
        assert [one.message.value for one in reader.take(1)] == [b"good"]
        for _ in range(2):
            with pytest.raises(ConnectorError, match=r"record 1 at byte 5: a length of \d+ bytes") as raised:
                reader.poll()
            assert not raised.value.retriable


def test_a_record_beyond_the_limit_is_an_error_in_every_format(tmp_path: Path) -> None:
    for form, content in (("protodata", delimited(bytes(2000))), ("jsonl", b'"%b"\n' % (b"x" * 2000))):
        (tmp_path / form).write_bytes(content)
        with (
            Reader(FileSource(tmp_path / form, form, max_record=1000)) as reader,
            pytest.raises(ConnectorError, match="max_record"),
        ):
            reader.poll()
    (tmp_path / "frame.png").write_bytes(bytes(2000))
    with (
        Reader(FileSource(tmp_path, "images", max_record=1000)) as reader,
        pytest.raises(ConnectorError, match=r"frame\.png has 2000 bytes"),
    ):
        reader.poll()


def test_lines_are_counted_and_blank_ones_skipped_in_json_lines(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\n  \n{"b": 2}\n[3]')
    with Reader(FileSource(tmp_path / "data.jsonl", "jsonl")) as reader:
        received = reader.take(3)
    assert [(one.position, one.message.value) for one in received] == [(0, b'{"a": 1}'), (3, b'{"b": 2}'), (4, b"[3]")]


def test_plain_lines_may_be_blank_and_without_a_checkpoint_the_last_may_lack_its_end(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"a\r\n\nb")
    assert values(FileSource(tmp_path / "data", "lines")) == [b"a", b"", b"b"]
    assert values(FileSource(tmp_path / "data", "lines", unfinished="wait")) == [b"a", b""]


def test_an_empty_file_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert values(FileSource(tmp_path / "data")) == []


def test_a_followed_file_waits_for_the_rest_of_a_record(tmp_path: Path) -> None:
    content = delimited(b"first", b"second")
    path = tmp_path / "data"
    path.write_bytes(content[:9])
    with Reader(FileSource(path, follow=True)) as reader:
        assert [one.message.value for one in reader.take(1)] == [b"first"]
        assert reader.listen(0.2) == []
        with path.open("ab") as file:
            file.write(content[9:])
        assert [one.message.value for one in reader.take(1)] == [b"second"]


def test_a_followed_line_is_delivered_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b'{"a": ')
    with Reader(FileSource(path, "jsonl", follow=True)) as reader:
        assert reader.listen(0.2) == []
        with path.open("ab") as file:
            file.write(b"1}\n")
        assert [one.message.value for one in reader.take(1)] == [b'{"a": 1}']


def test_a_followed_file_may_come_later_and_new_ones_join(tmp_path: Path) -> None:
    with Reader(FileSource(tmp_path / "*.jsonl", "jsonl", follow=True)) as reader:
        assert reader.listen(0.1) == []
        for name in ("b", "a"):
            (tmp_path / f"{name}.jsonl").write_text("1\n")
            assert [one.lane.partition for one in reader.take(1)] == [f"{name}.jsonl"]


def test_a_followed_folder_has_not_caught_up_with_files_that_it_has_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    with Reader(FileSource(tmp_path / "*.jsonl", "jsonl", follow=True)) as reader:
        reader.take(1)
        (tmp_path / "b.jsonl").write_text("1\n")
        written = time.monotonic()
        assert reader.poll(timeout=0.0) == []
        assert reader.source.caught_up(time.monotonic()) < written
        reader.take(1)
        assert reader.source.caught_up(time.monotonic()) >= written


def test_a_checkpoint_lets_the_next_run_seek_rather_than_read(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    path.write_bytes(delimited(bytes(2000), b"bbbb", b"cccc"))
    with Reader(FileSource(path, checkpoint=checkpoint)) as reader:
        reader.acknowledge(reader.take(3)[:2])
    document = json.loads(checkpoint.read_text())
    stat = path.stat()
    assert document["version"] == 1
    assert document["files"]["data"].items() >= {"records": 2, "offset": 2007}.items()
    assert document["files"]["data"]["file"].items() >= {"device": stat.st_dev, "inode": stat.st_ino}.items()
    with path.open("r+b") as file:
        # Behind the beginning, by which it knows the file.
        file.seek(1500)
        file.write(b"\xff" * 505)
    with Reader(FileSource(path, checkpoint=checkpoint)) as reader:
        assert [(one.position, one.message.value) for one in reader.take(1)] == [(2, b"cccc")]
        assert [event.position for event in reader.events(LaneBegan)] == [2]


def test_the_saved_state_that_positions_are_of_is_kept_with_them(tmp_path: Path) -> None:
    folder, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "a").write_bytes(b"1\n2\n3\n")
    note = CheckpointNote("S1", "here", 3)

    def notes(noted: CheckpointNote | None, *, acknowledge: bool) -> dict[str, CheckpointNote | None]:
        with Reader(FileSource(folder, "jsonl", checkpoint=checkpoint)) as reader:
            reader.source.noted = noted
            received = reader.take(1)
            if acknowledge:
                reader.acknowledge(received)
            reader.poll()
            return {event.topic: event.noted for event in reader.events(LaneBegan)}

    assert notes(note, acknowledge=True) == {"a": None}
    # A file of which nothing was acknowledged is of no state, whatever the others are of.
    (folder / "b").write_bytes(b"1\n")
    assert notes(replace(note, store="S2"), acknowledge=False) == {"a": note, "b": None}
    assert notes(replace(note, store="S2"), acknowledge=True) == {"a": note, "b": None}
    assert notes(None, acknowledge=True) == {"a": replace(note, store="S2"), "b": None}
    assert json.loads(checkpoint.read_text()).keys() == {"version", "files"}
    checkpoint.write_text(json.dumps({"version": 1, "files": {}, "states": {"a": {"store": "S1"}}}))
    with pytest.raises(ConnectorError, match="is not a checkpoint of a file source"):
        FileSource(folder, "jsonl", checkpoint=checkpoint).open()


def test_acknowledging_between_blank_lines_goes_on_at_the_next_record(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"1\n\n\n2\n3\n")
    source = FileSource(path, "jsonl", checkpoint=tmp_path / "checkpoint")
    with Reader(source) as reader:
        first = reader.take(3)[0]
        source.acknowledge({first.lane: 2}, wait=True)
    with Reader(FileSource(path, "jsonl", checkpoint=tmp_path / "checkpoint")) as reader:
        assert [(one.position, one.message.value) for one in reader.take(2)] == [(3, b"2"), (4, b"3")]


def test_a_checkpoint_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Whoever reads it at any moment finds a complete one; a half-written one of a crash is not looked at."""
    path, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    path.write_bytes(delimited(*(b"%d" % n for n in range(300))))
    (tmp_path / ".checkpoint.part").write_text('{"version": 1, "fi')
    torn: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            if checkpoint.exists():
                try:
                    json.loads(checkpoint.read_text())
                except ValueError as error:
                    torn.append(str(error))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        with Reader(FileSource(path, checkpoint=checkpoint)) as reader:
            for _ in range(100):
                reader.acknowledge(reader.take(3))
    finally:
        done.set()
        looker.join()
    assert torn == []
    assert values(FileSource(path, checkpoint=checkpoint)) == []


def test_an_acknowledgement_nobody_waits_for_is_written_while_it_polls_and_when_it_closes(tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "data", tmp_path / "checkpoint"
    path.write_bytes(delimited(b"a", b"b", b"c"))
    with Reader(FileSource(path, checkpoint=checkpoint)) as reader:
        received = reader.take(3)
        reader.acknowledge(received[:1], wait=False)
        reader.acknowledge(received[:2], wait=False)
        deadline = time.monotonic() + 30
        while _acknowledged(checkpoint) < 2 and time.monotonic() < deadline:
            reader.poll()
        assert _acknowledged(checkpoint) == 2
        reader.acknowledge(received, wait=False)
    assert _acknowledged(checkpoint) == 3


def _acknowledged(checkpoint: Path) -> int:
    found: int = json.loads(checkpoint.read_text())["files"]["data"]["records"]
    return found


def test_a_file_that_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(delimited(b"a"))
    for text in ("", "[]", '{"version": 2, "files": {}}', '{"version": 1, "files": {"data": {"bytes": 1}}}'):
        (tmp_path / "checkpoint").write_text(text)
        with pytest.raises(ConnectorError, match="is not a checkpoint of a file source"):
            FileSource(tmp_path / "data", checkpoint=tmp_path / "checkpoint").open()


def test_without_a_checkpoint_every_run_begins_at_the_first_record(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(delimited(b"a", b"b"))
    for _ in range(2):
        with Reader(FileSource(tmp_path / "data")) as reader:
            received = reader.take(2)
            reader.acknowledge(received)
            assert [one.message.value for one in received] == [b"a", b"b"]


def test_files_of_a_folder_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.bin", "a.bin", ".hidden", "c.txt"):
        (tmp_path / name).write_bytes(delimited(name.encode()))
    (tmp_path / "checkpoint").write_text('{"version": 1, "files": {}}')
    folder = FileSource(tmp_path, checkpoint=tmp_path / "checkpoint")
    assert values(folder) == [b"a.bin", b"b.bin", b"c.txt"]
    assert values(FileSource(tmp_path / "*.bin")) == [b"a.bin", b"b.bin"]
    assert values(FileSource(tmp_path, pattern="c.*")) == [b"c.txt"]


def test_images_come_with_their_names_and_times_and_other_files_do_not(tmp_path: Path) -> None:
    for name in ("2/b.PNG", "1/a.jpg", "notes.txt", ".hidden.png", "c.webp", ".cache/d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    with Reader(FileSource(tmp_path, "images")) as reader:
        received = reader.until(_ended)
    assert [one.message.key for one in received] == [b"1/a.jpg", b"2/b.PNG", b"c.webp"]
    assert [one.message.value for one in received] == [b"1/a.jpg", b"2/b.PNG", b"c.webp"]
    assert all(abs((one.message.timestamp or 0) - time.time() * 1000) < 3_600_000 for one in received)
    assert values(FileSource(tmp_path / "*" / "*.jpg", "images")) == [b"1/a.jpg"]
    assert values(FileSource(tmp_path, "images", pattern="*.txt")) == [b"notes.txt"]


def test_images_go_on_after_the_acknowledged_name_when_others_were_removed(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    folder.mkdir()
    for name in "abcd":
        (folder / f"{name}.png").write_text(name)
    with Reader(FileSource(folder, "images", checkpoint=tmp_path / "checkpoint")) as reader:
        reader.acknowledge(reader.take(4)[:2])
    (folder / "a.png").unlink()
    with Reader(FileSource(folder, "images", checkpoint=tmp_path / "checkpoint")) as reader:
        assert [(one.position, one.message.value) for one in reader.take(2)] == [(2, b"c"), (3, b"d")]


def test_a_large_file_is_not_held_in_memory(tmp_path: Path) -> None:
    with (tmp_path / "data").open("wb") as file:
        for _ in range(200):
            file.write(delimited(bytes(100_000)))
    source = FileSource(tmp_path / "data")
    with Reader(source) as reader:
        for _ in range(20):
            reader.take(10)
            assert source.held_bytes <= 2 * CHUNK


def test_a_missing_file_an_unknown_format_and_an_unopened_source_are_errors(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path, tmp_path / "*.bin"):
        with pytest.raises(ConnectorError, match="there is no file"):
            FileSource(path).open()
    with pytest.raises(ConnectorError, match='no file format "json"; did you mean "jsonl"'):
        FileSource(tmp_path, "json")
    with pytest.raises(ConnectorError, match="not open"):
        FileSource(tmp_path).poll(1, 1, 0)


def test_a_service_file_names_a_path_relative_to_itself(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("1\n")
    config = FileSourceConfig.model_validate(
        {"type": "file", "path": "data.jsonl", "format": "jsonl", "max_record": "1MiB", "checkpoint": "state/at"},
        context={"base": tmp_path},
    )
    assert (config.codec, config.max_record) == ("json", 2**20)
    assert FileSourceConfig(path=Path("x")).codec == "protodata"
    assert FileSourceConfig(path=Path("x"), format="jsonl", codec="raw").codec == "raw"
    with Reader(config.build()) as reader:
        reader.acknowledge(reader.take(1))
    assert (tmp_path / "state" / "at").exists()


@pytest.mark.parametrize(("format", "name"), [("images", "a.png"), ("lines", "a.txt")])
def test_a_link_to_nothing_is_an_error_that_names_it_after_all_that_can_be_read(
    tmp_path: Path, format: str, name: str
) -> None:
    (tmp_path / name).write_bytes(b"one")
    (tmp_path / f"b{Path(name).suffix}").symlink_to(tmp_path / "nowhere")
    (tmp_path / f".c{Path(name).suffix}").symlink_to(tmp_path / "nowhere")
    with Reader(FileSource(tmp_path, format), 10) as reader:
        assert [one.message.value for one in reader.take(1)] == [b"one"]
        with pytest.raises(ConnectorError, match=r"1 file or folder could not be read: .*b\.\w+ \(a link to nothing"):
            reader.until(lambda _: False)


def test_a_folder_that_may_not_be_listed_is_an_error_that_names_it_after_all_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_bytes(b"one")
    locked = tmp_path / "locked"
    locked.mkdir()
    scandir = os.scandir

    def refused(path: Any = ".") -> Any:
        if Path(path) == locked:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    # Rights would not keep a root user out.
    monkeypatch.setattr(os, "scandir", refused)
    with Reader(FileSource(tmp_path, "images"), 10) as reader:
        assert [one.message.value for one in reader.take(1)] == [b"one"]
        with pytest.raises(ConnectorError, match=r"1 file or folder could not be read: .*locked \(Permission denied\)"):
            reader.until(lambda _: False)
