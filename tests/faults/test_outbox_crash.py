"""A process that is killed while its outbox fills and empties loses nothing that was confirmed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.contract import Reader
from connectors.file import FileSink, FileSource
from connectors.outbox import OutboxConfig
from connectors.outbox.sink import OutboxSink

pytestmark = pytest.mark.slow

WRITER = """
import sys, time
from connectors.file import FileSink
from connectors.message import Message, block_of
from connectors.outbox import OutboxConfig
from connectors.outbox.sink import OutboxSink
sink = OutboxSink(FileSink(sys.argv[2]), OutboxConfig(path=sys.argv[1]))
sink.open()
number = int(sys.argv[3])
while True:
    block = [Message(b"%08d" % (number + n) + b"." * 3000) for n in range(20)]
    assert not sink.send(block_of(block, number), time.monotonic() + 60)
    sink.barrier(time.monotonic() + 60)
    for rows in sink.confirmed():
        number = int(rows[-1]) + 1
    print(number, flush=True)
"""


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are killed at the end."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        process.kill()
        process.communicate()


def test_a_killed_process_loses_nothing_that_was_in_its_outbox(
    tmp_path: Path, running: list[subprocess.Popen[str]]
) -> None:
    outbox, out = tmp_path / "out.outbox", tmp_path / "out"
    draw = random.Random(7)
    confirmed = 0
    kills = 6
    for _ in range(kills):
        command = [sys.executable, "-c", WRITER, str(outbox), str(out), str(confirmed)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(writer)
        assert writer.stdout is not None
        assert writer.stdout.readline(), "it did not start"
        time.sleep(draw.uniform(0.05, 0.5))
        writer.kill()
        # The last line may be cut short.
        told = [int(line) for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        writer.wait()
        confirmed = max([confirmed + 20, *told])
    sink = OutboxSink(FileSink(out), OutboxConfig(path=outbox))
    sink.open()
    deadline = time.monotonic() + 60
    while sink.messages_held and time.monotonic() < deadline:
        time.sleep(0.01)
    sink.close()
    with Reader(FileSource(out, follow=True)) as reader:
        found: list[int] = []
        while block := reader.listen(0.3):
            found += [int(one.message.value[:8]) for one in block]
    first = list(dict.fromkeys(found))
    assert set(range(confirmed)) <= set(found), "nothing is lost"
    assert first == sorted(first), "the first of each come in order"
