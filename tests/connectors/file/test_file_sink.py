"""File sinks beyond the contract: crashes, full disks, hostile names."""

from __future__ import annotations

import io
import resource
import time
from pathlib import Path

import pytest
from google.protobuf.proto import parse_length_prefixed

from connectors.contract import Reader
from connectors.file import FileSink, FileSinkConfig, FileSource, ImageSink
from connectors.message import Message, block_of
from connectors.sink import Refused, Sink
from pipelines import Data
from pipelines.errors import ConnectorError
from protos.data_pb2 import DataMap


def write(sink: Sink, *messages: Message | bytes) -> Refused:
    block = block_of([message if isinstance(message, Message) else Message(message) for message in messages])
    sink.open()
    try:
        refused = sink.send(block, time.monotonic() + 30)
        assert sink.barrier(time.monotonic() + 30) == {}
    finally:
        sink.close()
    return refused


def read(path: Path, format: str, count: int) -> list[bytes]:
    with Reader(FileSource(path, format)) as reader:
        return [one.message.value for one in reader.take(count) + reader.listen(0.05)]


def test_protobuf_reads_what_was_written(tmp_path: Path) -> None:
    payloads = [Data({"x": number, "text": "x" * number}).to_bytes() for number in (0, 90, 900)]
    write(FileSink(tmp_path / "out"), *payloads)
    stream = io.BytesIO((tmp_path / "out").read_bytes())
    parsed = [parse_length_prefixed(DataMap, stream) for _ in payloads]
    assert [None if one is None else Data.from_bytes(one.SerializeToString()) for one in parsed] == [
        Data.from_bytes(payload) for payload in payloads
    ]


@pytest.mark.parametrize("cut", [1, 2, 3, 150, 301])
def test_a_message_that_a_crash_left_half_written_is_cut_off_and_kept_beside(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "out"
    write(FileSink(path), b"one", b"two", bytes(300))
    path.write_bytes(path.read_bytes()[:-cut])
    write(FileSink(path), b"three")
    assert read(path, "protodata", 3) == [b"one", b"two", b"three"]
    torn = tmp_path / ".out.torn"
    assert len(torn.read_bytes()) == 302 - cut if cut < 302 else not torn.exists()


def test_a_torn_message_in_a_large_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "out"
    payloads = [bytes(3_000_000), bytes(5_000_000), b"x", bytes(6_000_000)]
    write(FileSink(path), *payloads)
    path.write_bytes(path.read_bytes()[:-1])
    write(FileSink(path), b"after")
    assert read(path, "protodata", 4) == [*payloads[:3], b"after"]


def test_a_json_line_that_a_crash_left_half_written_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b'{"a": 1}\n{"b": [1, 2')
    write(FileSink(path, "jsonl"), b'{"c": 3}')
    assert path.read_bytes() == b'{"a": 1}\n{"c": 3}\n'
    assert (tmp_path / ".out.torn").read_bytes() == b'{"b": [1, 2'


def test_a_complete_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    for form, content in (("jsonl", b'{"a": 1}'), ("lines", b"half a li")):
        path = tmp_path / form
        path.write_bytes(b"[0]\n" + content)
        write(FileSink(path, form), b"[2]")
        assert path.read_bytes() == b"[0]\n" + content + b"\n[2]\n"


def test_a_file_of_another_kind_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "out"
    content = b"\x89PNG\r\n\x1a\n" + b"\xff" * 500
    path.write_bytes(content)
    with pytest.raises(ConnectorError, match="cannot be appended to: from byte 0 on, a length"):
        FileSink(path, max_record=100).open()
    with pytest.raises(ConnectorError, match="from byte 8 on, 500 bytes without an end"):
        FileSink(path, "jsonl", max_record=100).open()
    assert path.read_bytes() == content


def test_two_sinks_cannot_write_one_file(tmp_path: Path) -> None:
    first = FileSink(tmp_path / "out")
    first.open()
    with pytest.raises(ConnectorError, match="is being written by another sink"):
        FileSink(tmp_path / "out").open()
    first.close()
    write(FileSink(tmp_path / "out"), b"now")


def test_a_block_that_finds_no_room_is_refused_to_be_tried_again_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    sink = FileSink(path)
    sink.open()
    assert sink.send(block_of([Message(b"before")]), 0) == {}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        refused = sink.send(block_of([Message(b"small"), Message(bytes(200_000))], 1), 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(refused) == [0, 1]
    assert all(error.retriable and "no room" in str(error) for error in refused.values())
    assert sink.send(block_of([Message(b"after")], 3), 0) == {}
    assert sink.barrier(0) == {}
    assert [rows.tolist() for rows in sink.confirmed()] == [[0], [3]]
    sink.close()
    assert read(path, "protodata", 2) == [b"before", b"after"]


def test_a_message_that_the_file_cannot_hold_is_refused_alone(tmp_path: Path) -> None:
    refused = write(FileSink(tmp_path / "a", max_record=10), b"good", Message(None), bytes(11), b"also good")
    assert {index: error.retriable for index, error in refused.items()} == {1: False, 2: False}
    refused = write(FileSink(tmp_path / "b", "jsonl"), b"[1]", b"", b"[1,\n2]", b"[2]")
    assert sorted(refused) == [1, 2]
    assert "line feeds" in str(refused[2])
    assert (tmp_path / "b").read_bytes() == b"[1]\n[2]\n"


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for sink in (FileSink(tmp_path / "file" / "out"), FileSink(tmp_path), ImageSink(tmp_path / "file")):
        with pytest.raises(ConnectorError, match="cannot be written"):
            sink.open()
    with pytest.raises(ConnectorError, match="no file format"):
        FileSink(tmp_path / "out", "csv")
    for sink in (FileSink(tmp_path / "out"), ImageSink(tmp_path)):
        with pytest.raises(ConnectorError, match="not open"):
            sink.send(block_of([Message(b"a", b"a")]), 0)


HOSTILE = (
    b"../outside",
    b"/etc/passwd",
    b"a/../../outside",
    b".",
    b"x/..",
    b"a//b",
    b"b/",
    b"/",
    b"a\\..\\b",
    b"C:\\temp",
    b"nul\x00byte",
    b"%2e%2e/outside",
    b"~/home",
    b".hidden",
    b"new\nline",
    b"\xff\xfe",
)


def test_no_key_leads_out_of_the_folder_and_each_has_a_file_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    refused = write(ImageSink(folder), *(Message(b"content of " + key, key) for key in HOSTILE))
    assert refused == {}
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(folder) for path in written)
    assert sorted(path.read_bytes() for path in written) == sorted(b"content of " + key for key in HOSTILE)
    assert not [path for path in written if path.name.startswith(".")]


def test_plain_names_stay_as_they_are_and_images_get_their_suffix(tmp_path: Path) -> None:
    write(
        ImageSink(tmp_path),
        Message(b"x", b"cam-1/2024_01 (2).jpg"),
        Message(b"\xff\xd8\xff...", b"jpeg"),
        Message(b"\x89PNG\r\n\x1a\n...", b"png"),
        Message(b"text", b"other"),
    )
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert found == ["cam-1/2024_01 (2).jpg", "jpeg.jpg", "other", "png.png"]


def test_images_appear_complete_with_the_barrier(tmp_path: Path) -> None:
    sink = ImageSink(tmp_path)
    sink.open()
    sink.send(block_of([Message(b"x", b"a.png")]), 0)
    assert not (tmp_path / "a.png").exists()
    assert FileSource(tmp_path, "images").replays
    assert sink.barrier(0) == {}
    assert (tmp_path / "a.png").read_bytes() == b"x"
    sink.send(block_of([Message(b"y", b"b.png")]), 0)
    sink.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_an_image_without_a_key_or_with_the_name_of_a_folder_is_refused_alone(tmp_path: Path) -> None:
    refused = write(
        ImageSink(tmp_path),
        Message(b"x", b"folder/a.png"),
        Message(b"y"),
        Message(b"z", b"folder"),
        Message(None, b"none"),
        Message(b"x", b"folder/a.png/b.png"),
    )
    assert sorted(refused) == [1, 2, 3, 4]
    assert "key to name its file" in str(refused[1])
    assert "both a file and a folder" in str(refused[2])


def test_a_service_file_chooses_the_sink_by_its_format(tmp_path: Path) -> None:
    lines = FileSinkConfig.model_validate(
        {"type": "file", "path": "out.jsonl", "format": "jsonl", "drop": ["image"]}, context={"base": tmp_path}
    )
    assert (lines.codec, lines.drop) == ("json", ("image",))
    write(lines.build(), b"[1]")
    assert (tmp_path / "out.jsonl").read_bytes() == b"[1]\n"
    assert isinstance(FileSinkConfig(path=tmp_path, format="images").build(), ImageSink)
