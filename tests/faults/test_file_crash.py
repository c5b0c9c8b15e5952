"""A process that is killed while it writes files, or reads them, loses and damages nothing that was confirmed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connectors.contract import Reader
from connectors.file import FileSink, FileSource
from connectors.message import Message, block_of

pytestmark = pytest.mark.slow

WRITER = """
import sys, time
from connectors.file import FileSink
from connectors.message import Message, block_of
sink = FileSink(sys.argv[1], sys.argv[2])
sink.open()
number = 0
while True:
    block = [Message(b'{"n": "%08d", "pad": "%b"}' % (number + n, b"." * 5000)) for n in range(50)]
    assert not sink.send(block_of(block), time.monotonic() + 60)
    number += 50
    if number % 250 == 0:
        sink.barrier(time.monotonic() + 60)
        print(number, flush=True)
"""

READER = """
import sys
from connectors.contract import Reader
from connectors.file import FileSource
with Reader(FileSource(sys.argv[1], checkpoint=sys.argv[2])) as reader:
    while True:
        for one in (block := reader.take(20)):
            print(one.message.value.decode(), flush=True)
        reader.acknowledge(block)
"""

FOLLOWER = """
import sys
from connectors.contract import Reader
from connectors.file import FileSource
with Reader(FileSource(sys.argv[1], "lines", checkpoint=sys.argv[2], follow=True)) as reader:
    while True:
        for one in (block := reader.poll(20)):
            print(one.position, one.message.value.decode(), flush=True)
        reader.acknowledge(block[:-3])
"""

Started = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def started() -> Iterator[Started]:
    """`started(script, *arguments)` starts Python on a script; processes that still run at the end are killed."""
    running: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, *arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("form", ["protodata", "jsonl"])
def test_a_killed_writer_leaves_a_file_that_goes_on(tmp_path: Path, form: str, started: Started) -> None:
    path = tmp_path / "out"
    writer = started(WRITER, str(path), form)
    assert writer.stdout is not None
    for _ in range(3):
        confirmed = int(writer.stdout.readline())
    writer.kill()
    confirmed = max([confirmed, *(int(line) for line in writer.stdout.read().split())])
    writer.wait()

    sink = FileSink(path, form)
    sink.open()
    assert sink.send(block_of([Message(b'{"n": "after"}')]), time.monotonic() + 60) == {}
    assert sink.barrier(time.monotonic() + 60) == {}
    sink.close()

    with Reader(FileSource(path, form)) as reader:
        values = [one.message.value for one in reader.take(confirmed + 1) + reader.listen(0.2)]
    assert values[-1] == b'{"n": "after"}'
    assert [value[7:15] for value in values[:-1]] == [b"%08d" % number for number in range(len(values) - 1)]


def test_a_killed_reader_gets_what_it_had_not_acknowledged_again_and_nothing_is_skipped(
    tmp_path: Path, started: Started
) -> None:
    path, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    sink = FileSink(path)
    sink.open()
    sink.send(block_of([Message(b"%06d" % number) for number in range(20_000)]), time.monotonic() + 60)
    sink.close()
    seen: list[list[int]] = []
    for _ in range(2):
        reader = started(READER, str(path), str(checkpoint))
        assert reader.stdout is not None
        lines = [reader.stdout.readline() for _ in range(150)]
        reader.kill()
        lines += reader.stdout.read().splitlines()
        reader.wait()
        # The last line may be cut short itself.
        seen.append([int(line) for line in lines if len(line.strip()) == 6])
    first, second = seen
    assert first == list(range(len(first)))
    assert second == list(range(second[0], second[0] + len(second)))
    assert 0 < second[0] <= len(first), "it goes on where it had acknowledged: nothing is skipped"
    assert second[0] >= len(first) - 40, "acknowledged records came again"


def _renamed(path: Path) -> None:
    path.rename(f"{path}.1")


def _copied_and_cut(path: Path) -> None:
    shutil.copy(path, f"{path}.1")
    os.truncate(path, 0)


@pytest.mark.parametrize("rotated", [_renamed, _copied_and_cut])
def test_a_reader_that_is_killed_while_its_file_is_rotated_gets_every_record_at_its_position(
    tmp_path: Path, started: Started, rotated: Callable[[Path], None]
) -> None:
    path = tmp_path / "data" / "log"
    path.parent.mkdir()
    written = 0

    def write(count: int) -> None:
        nonlocal written
        with path.open("a") as file:
            file.writelines(f"{number:06d}\n" for number in range(written, written + count))
        written += count

    def rotate() -> None:
        for number in range(len(list(path.parent.iterdir())) - 1, 0, -1):
            path.with_name(f"log.{number}").rename(path.with_name(f"log.{number + 1}"))
        rotated(path)

    lines: list[str] = []
    write(50)
    for turn in range(5):
        reader = started(FOLLOWER, str(path), str(tmp_path / "checkpoint"))
        assert reader.stdout is not None
        lines.append(reader.stdout.readline())
        write(100)
        rotate()
        write(10)
        # It is killed after a few records, or at the end of what there is.
        while turn % 2 == 0 and not lines[-1].endswith(f" {written - 1:06d}\n"):
            lines.append(reader.stdout.readline())
            assert lines[-1], "it has ended by itself"
        reader.kill()
        lines += reader.stdout.readlines()
        reader.wait()
        if turn < 4:
            rotate()
            write(70)
            rotate()
            write(200)
    # The last line of a killed process may be cut short.
    seen = [tuple(map(int, line.split())) for line in lines if re.fullmatch(r"\d+ \d{6}\n", line)]
    assert {number for _, number in seen} == set(range(written))
    assert all(position == number for position, number in seen)
