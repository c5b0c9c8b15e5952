"""The shared file: notes, the board, acknowledged positions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.records import Lane
from examples import examples
from pipelines.errors import StreamerError
from streamer.workers import layout
from streamer.workers.board import Board, Entry
from streamer.workers.filing import PagesFile
from streamer.workers.notes import Note, Span, SpanEncoder, decode_spans
from streamer.workers.pages import WorkerPage
from streamer.workers.published import HEADER_SIZE, Published

BATCH = [Span("digits", "kafka", "images/3", 100, 611)]

POSITIONS = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text(st.characters(exclude_characters="\0"), max_size=8)
SPANS = st.lists(st.builds(Span, NAMES, NAMES, NAMES, POSITIONS, POSITIONS, st.booleans()), max_size=5)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[PagesFile]:
    file = PagesFile(tmp_path / "pages", workers=2)
    yield file
    file.close()


@pytest.fixture
def page(file: PagesFile) -> Iterator[WorkerPage]:
    page = WorkerPage(file.path, 1)
    yield page
    page.close()


def test_a_batch_that_runs_is_seen_though_the_slot_before_has_run_nothing(file: PagesFile, page: WorkerPage) -> None:
    page.slot()
    second = page.slot()
    page.note(second, BATCH, 3.0)
    assert [(running.slot, running.since) for running in file.running(1)] == [(second, 3.0)]


def test_a_note_says_which_records_run_until_it_is_cleared(file: PagesFile, page: WorkerPage) -> None:
    slot = page.slot()
    assert not file.has_run(1)
    page.note(slot, BATCH, 12.5)
    assert file.notes(1) == [Note(12.5, tuple(BATCH), True)]
    assert [(running.slot, running.since) for running in file.running(1)] == [(slot, 12.5)]
    assert file.service_of(1, slot) == "digits"
    assert file.notes(0) == []
    page.clear(slot)
    assert file.notes(1) == []
    assert file.running(1) == []
    assert file.has_run(1)
    file.clear(1)
    assert not file.has_run(1)


def test_each_thread_has_a_note_of_its_own(file: PagesFile, page: WorkerPage) -> None:
    for slot in (page.slot(), page.slot()):
        page.note(slot, [Span("digits", "kafka", "images/0", slot, slot)], 1.0)
    assert [note.spans[0].first for note in file.notes(1)] == [0, 1]


def test_a_page_says_when_it_has_no_place_for_another_thread(page: WorkerPage) -> None:
    for _ in range(layout.SLOTS):
        page.slot()
    with pytest.raises(StreamerError, match=r"limits\.parallel"):
        page.slot()


def test_a_note_with_more_spans_than_fit_says_so(file: PagesFile, page: WorkerPage) -> None:
    slot = page.slot()
    spans = [Span("digits", "mqtt", "0", number, number, True) for number in range(5000)]
    page.note(slot, spans, 1.0)
    (note,) = file.notes(1)
    assert not note.whole
    assert note.spans == tuple(spans[: len(note.spans)])
    assert len(note.spans) > 500


@settings(max_examples=examples(100), deadline=None)
@given(SPANS)
def test_spans_are_read_as_they_were_written(spans: list[Span]) -> None:
    content, whole = SpanEncoder().encode(spans, 10_000)
    assert whole
    assert decode_spans(content) == tuple(spans)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.dictionaries(
        st.tuples(NAMES, NAMES, NAMES),
        st.lists(st.builds(Entry, POSITIONS, POSITIONS, NAMES, st.booleans()), min_size=1),
    )
)
def test_a_board_is_read_as_it_was_written(places: dict[tuple[str, str, str], list[Entry]]) -> None:
    board = Board.from_bytes(3, Board(3, places.items()).to_bytes())
    assert board.version == 3
    assert board.places == {place: tuple(entries) for place, entries in places.items()}


def test_a_worker_sees_a_new_board_by_its_version(file: PagesFile, page: WorkerPage) -> None:
    assert not page.board()
    before = page.version
    entries = [Entry(10, 19), Entry(20, 20, "signal 11"), Entry(30, 39)]
    file.publish(Board(0, [(("digits", "kafka", "images/3"), entries)]))
    assert page.version != before
    board = page.board()
    assert board.version == page.version
    assert board.within("digits", "kafka", "images/3", 15, 30) == tuple(entries)
    assert board.within("digits", "kafka", "images/3", 21, 29) == ()
    assert board.within("digits", "kafka", "images/4", 15, 30) == ()
    convicted, suspect = board.at("digits", "kafka", "images/3", 20), board.at("digits", "kafka", "images/3", 39)
    assert convicted is not None
    assert convicted.convicted
    assert suspect is not None
    assert not suspect.convicted
    assert board.at("digits", "kafka", "images/3", 40) is None


def test_acknowledged_positions_are_told_for_partitions_on_the_board_only(file: PagesFile, page: WorkerPage) -> None:
    page.acknowledged("digits", {Lane("kafka", "images/3", 0): 15, Lane("kafka", "images/4", 0): 7})
    assert file.marks(1) == {}
    file.publish(Board(0, [(("digits", "kafka", "images/3"), [Entry(10, 19)])]))
    page.board()
    assert file.marks(1) == {("digits", "kafka", "images/3"): 15}
    page.acknowledged("digits", {Lane("kafka", "images/3", 0): 20})
    assert file.marks(1) == {("digits", "kafka", "images/3"): 20}
    file.clear(1)
    assert file.marks(1) == {}


def test_a_reader_never_sees_half_a_block() -> None:
    memory = bytearray(HEADER_SIZE + 4096)
    writer, reader = Published(memoryview(memory)), Published(memoryview(memory))
    ended = threading.Event()

    def write() -> None:
        for number in range(3000):
            writer.write(bytes([number % 251]) * (number % 4096))
        ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not ended.is_set():
        read = reader.read()
        if read is not None:
            version, content = read
            assert content == bytes([(version - 1) % 251]) * ((version - 1) % 4096)
    thread.join()


def test_a_block_whose_writer_died_in_the_middle_is_not_read() -> None:
    memory = bytearray(HEADER_SIZE + 64)
    block = Published(memoryview(memory))
    block.write(b"whole")
    memory[HEADER_SIZE] ^= 1
    assert block.read() is None


WRITES = """
import sys
from pathlib import Path
from streamer.workers.pages import Span, WorkerPage

page = WorkerPage(Path(sys.argv[1]), 0)
slot = page.slot()
print("ready", flush=True)
number = 0
while True:
    number += 1
    page.note(slot, [Span("digits", "kafka", str(number % 7), number, 2 * number)] * (number % 50), float(number))
    if number % 3 == 0:
        page.clear(slot)
"""


def test_a_killed_process_leaves_a_whole_note_or_none(tmp_path: Path) -> None:
    seen = set()
    for attempt in range(4):
        file = PagesFile(tmp_path / f"pages{attempt}", workers=1)
        with subprocess.Popen([sys.executable, "-c", WRITES, str(file.path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.01 * attempt)
            os.kill(process.pid, signal.SIGKILL)
        notes = file.notes(0)
        seen.add(len(notes))
        for note in notes:
            number = int(note.since)
            span = Span("digits", "kafka", str(number % 7), number, 2 * number)
            assert note.spans == (span,) * (number % 50)
            assert note.whole
        file.close()
    assert seen <= {0, 1}


def test_a_process_is_a_worker_only_if_its_parent_says_so(file: PagesFile) -> None:
    assert WorkerPage.of_environment({}) is None
    assert WorkerPage.of_environment({"STREAMER_WORKER": "0"}) is None
    page = WorkerPage.of_environment({"STREAMER_WORKER": "0", "STREAMER_PAGES": str(file.path)})
    assert page is not None
    assert page.worker == 0
    page.close()


@pytest.mark.parametrize("worker", ["2", "x"])
def test_a_worker_without_a_page_says_who_sets_it(file: PagesFile, worker: str) -> None:
    with pytest.raises(StreamerError, match="STREAMER_WORKER"):
        WorkerPage.of_environment({"STREAMER_WORKER": worker, "STREAMER_PAGES": str(file.path)})


def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 100)
    for name in ("other", "missing"):
        with pytest.raises(StreamerError, match="STREAMER_PAGES"):
            WorkerPage(tmp_path / name, 0)
