"""A worker of `streamer run --workers` notes what it runs, runs suspects alone, and fails the convicted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from addingmodels import adding

import pipelines
from connectors.memory import MemorySession, MemorySessionSource, MemorySource
from connectors.message import Message, records_of
from pipelines import Batch, Data
from pipelines.data.columns import Column
from streamer.agent.runs.recordnames import digest
from streamer.workers.board import Board, Entry
from streamer.workers.filing import PagesFile
from streamer.workers.pages import WorkerPage


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PagesFile]:
    """The parent's end of the shared file of one worker, which is this process."""
    parent = PagesFile(tmp_path / "pages", 1)
    page = WorkerPage(parent.path, 0)
    monkeypatch.setattr("streamer.agent.runloop.worker_page", lambda: page)
    yield parent
    page.close()
    parent.close()


class Seen:
    """A step that keeps what it got in each call, and what its process's page said at that time."""

    def __init__(self, file: PagesFile) -> None:
        self.calls: list[list[int]] = []
        self.notes: list[list[tuple[int, int]]] = []

        @pipelines.batched
        def double(batch: Batch) -> Batch:
            numbers = [int(number) for number in batch["x"].values()]
            self.calls.append(numbers)
            spans = [span for note in file.notes(0) for span in note.spans]
            self.notes.append([(span.first, span.last) for span in spans])
            return batch.with_columns({"y": Column.of([2 * number for number in numbers])})

        self.step = double


def fed(*numbers: int) -> MemorySource:
    source = MemorySource(name="memory")
    source.feed(*[Message(Data({"x": number}).to_bytes()) for number in numbers])
    return source


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_worker_notes_the_records_of_each_call_until_it_returns(
    file: PagesFile, define: Any, serve: Any, eventually: Any, parallel: int
) -> None:
    seen = Seen(file)
    serving = serve(define(seen.step, limits={"parallel": parallel}), {"memory": fed(*range(30))})
    eventually(lambda: len(serving.results()) == 30)
    assert [(numbers[0], numbers[-1]) for numbers in seen.calls] == [notes[0] for notes in seen.notes]
    assert file.notes(0) == []


def test_versions_that_take_over_need_no_further_places_for_notes(
    file: PagesFile, define: Any, serve: Any, eventually: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.workers.layout.SLOTS", 3)
    adding(tmp_path / "models" / "1" / "model.onnx", 10)
    limits = {"parallel": 2}
    models = {"follow": 0.02}
    serving = serve(define(pipelines.Onnx(model_uri=tmp_path / "models"), limits=limits, models=models))
    adding(tmp_path / "models" / "2" / "model.onnx", 20)
    eventually(lambda: serving.agent.version.label == "2")
    serving.feed(1)
    eventually(lambda: serving.results() == [21])


@pytest.mark.parametrize("parallel", [1, 2])
def test_suspects_are_run_alone_and_their_neighbours_together(
    file: PagesFile, define: Any, serve: Any, eventually: Any, parallel: int
) -> None:
    file.publish(Board(0, [(("test", "memory", "0"), [Entry(10, 11), Entry(15, 15)])]))
    seen = Seen(file)
    serving = serve(define(seen.step, limits={"parallel": parallel}), {"memory": fed(*range(30))})
    eventually(lambda: len(serving.results()) == 30)
    assert [10] in seen.calls
    assert [11] in seen.calls
    assert [15] in seen.calls
    assert [12, 13, 14] in seen.calls
    assert serving.results() == [2 * number for number in range(30)]
    assert serving.stop().ok == 30
    assert serving.source.acknowledged == [30]


@pytest.mark.parametrize("parallel", [1, 2])
def test_what_was_sent_is_acknowledged_before_each_suspect_is_run(
    file: PagesFile, define: Any, serve: Any, eventually: Any, commit_interval: Any, parallel: int
) -> None:
    commit_interval(3600.0)
    file.publish(Board(0, [(("test", "memory", "0"), [Entry(9, 11)])]))
    source = fed(*range(9))
    acknowledged: list[tuple[int, int]] = []

    @pipelines.batched
    def watch(batch: Batch) -> Batch:
        if (first := int(batch["x"][0])) >= 9:
            acknowledged.append((first, source.acknowledged[0]))
        return batch.with_columns({"y": batch.column("x")})

    serving = serve(define(watch, limits={"parallel": parallel}), {"memory": source})
    eventually(lambda: len(serving.results()) == 9)
    assert source.acknowledged == [0]
    serving.feed(9, 10, 11, 12)
    eventually(lambda: len(serving.results()) == 13)
    assert [at for at in acknowledged if at[0] < 12] == [(9, 9), (10, 10), (11, 11)]


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_convicted_record_becomes_a_dead_letter_without_being_run(
    file: PagesFile, define: Any, serve: Any, eventually: Any, parallel: int
) -> None:
    reason = "signal 11 while this record was run alone"
    file.publish(Board(0, [(("test", "memory", "0"), [Entry(4, 4, reason)])]))
    seen = Seen(file)
    serving = serve(define(seen.step, limits={"parallel": parallel}), {"memory": fed(*range(8))})
    eventually(lambda: len(serving.results()) == 7 and serving.buried() == [4])
    assert all(4 not in numbers for numbers in seen.calls)
    headers = dict(serving.dead.messages[0].headers)
    assert headers["streamer-step"] == b"process"
    assert headers["streamer-text"].decode() == reason
    serving.stop()
    assert serving.source.acknowledged == [8]


def test_records_of_a_session_are_known_by_their_content(
    file: PagesFile, define: Any, serve: Any, eventually: Any
) -> None:
    session = MemorySession()
    session.feed([Message(Data({"x": number}).to_bytes()) for number in range(6)])
    notes: list[Any] = []

    @pipelines.batched
    def watch(batch: Batch) -> Batch:
        notes.extend(span for note in file.notes(0) for span in note.spans)
        return batch.with_columns({"y": batch.column("x")})

    serving = serve(define(watch), {"memory": MemorySessionSource(session)})
    eventually(lambda: len(serving.results()) == 6)
    assert len({span.first for span in notes}) == 6
    assert all(span.digest and span.first == span.last for span in notes)
    # The same payload later, at another position.
    file.publish(
        Board(0, [(("test", "memory", notes[3].partition), [Entry(notes[3].first, notes[3].first, "no", True)])])
    )
    session.feed([Message(Data({"x": number}).to_bytes()) for number in (7, 3, 8)])
    eventually(lambda: serving.buried() == [3] and len(serving.results()) == 8)


def test_a_digest_tells_topics_and_payloads_apart() -> None:
    def name(topic: str, payload: bytes) -> int:
        return digest(records_of([Message(payload)], topic), 0)

    assert name("a", b"1") == name("a", b"1")
    assert len({name("a", b"1"), name("a", b"2"), name("b", b"1")}) == 3
