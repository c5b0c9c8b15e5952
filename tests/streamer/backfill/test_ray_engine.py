"""Pieces in actors of Ray, on a real cluster of two CPUs: each once, whatever processes die, and none after a stop."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from piecejobs import NotingJob, piece
from waiting import until

from pipelines.errors import StreamerError
from streamer.backfill.engines.ray import RayEngine
from streamer.backfill.engines.rayworker import RayWorker
from streamer.backfill.pieces import Outcome, Piece

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")]


@pytest.fixture
def job(tmp_path: Path) -> NotingJob:
    return NotingJob(tmp_path)


def run(job: NotingJob, *names: str, workers: int | None = None) -> dict[str, Outcome]:
    given = RayEngine(workers).outcomes(job, map(piece, names), threading.Event())
    outcomes = [outcome for outcome in given if outcome is not None]
    assert len({outcome.piece for outcome in outcomes}) == len(outcomes), "each piece has one outcome"
    return {outcome.piece.output: outcome for outcome in outcomes}


def ended(job: NotingJob) -> bool:
    """Whether all processes of the job are gone."""
    return not any(Path("/proc", name).exists() for name in job.notes())


def test_each_piece_runs_once_in_one_process_for_each_cpu_which_opens_the_service_once(
    ray: Any, job: NotingJob
) -> None:
    names = ["meets-another", *(f"p{number}" for number in range(20))]
    outcomes = run(job, *names)
    assert outcomes == {name: Outcome(piece(name), 3, 3, output=f"{name}.jsonl") for name in names}
    notes = job.notes()
    assert len(notes) == RayEngine().workers == 2
    assert all((words[0], words[-1]) == ("open", "close") for words in notes.values())
    assert Counter(word for words in notes.values() for word in words[1:-1]) == Counter(names)
    assert str(os.getpid()) not in notes


def test_a_piece_whose_process_dies_is_run_again_and_is_a_failure_when_it_dies_twice(ray: Any, job: NotingJob) -> None:
    outcomes = run(job, "a", "deadly", "b", "dies-once", "unreadable", "c")
    assert {name for name, outcome in outcomes.items() if outcome.failure is None} == {"a", "b", "c", "dies-once"}
    assert outcomes["unreadable"].failure == "no Parquet file"
    assert "the process that ran it has died twice" in str(outcomes["deadly"].failure)
    runs = Counter(word for words in job.notes().values() for word in words)
    assert (runs["deadly"], runs["dies-once"], runs["a"], runs["b"], runs["c"]) == (2, 2, 1, 1, 1)


def test_a_stop_breaks_off_what_runs_and_begins_nothing_more(ray: Any, job: NotingJob) -> None:
    stop = threading.Event()
    asked = []

    def pieces() -> Iterator[Piece]:
        for number in range(100):
            asked.append(number)
            yield piece("endless")

    for outcome in RayEngine(2).outcomes(job, pieces(), stop):
        assert outcome is None
        # It says so while nothing happens.
        if sum("endless" in words for words in job.notes().values()) == 2:
            stop.set()
    assert len(asked) == 2
    assert all(words == ["open", "endless", "broken-off", "close"] for words in job.notes().values())


def test_leaving_in_the_middle_ends_the_processes(ray: Any, job: NotingJob) -> None:
    outcomes = RayEngine(2).outcomes(job, map(piece, ["a", "endless", "endless"]), threading.Event())
    assert next(outcome for outcome in outcomes if outcome is not None).piece == piece("a")
    outcomes.close()  # type: ignore[attr-defined]
    until(lambda: ended(job))


def test_a_service_that_workers_cannot_open_is_an_error_with_the_reason(ray: Any, job: NotingJob) -> None:
    with pytest.raises(StreamerError, match=r"cannot open the service: model\.onnx: there is no such file"):
        run(replace(job, fails=True), "a", workers=1)


def test_a_worker_with_another_streamer_says_both_versions(job: NotingJob) -> None:
    assert "and the driver 9.9.9; install the same version" in str(RayWorker("9.9.9", b"of another version").open())


def test_an_address_where_no_cluster_answers_is_an_error(monkeypatch: pytest.MonkeyPatch, ray: Any) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(StreamerError, match=f"RAY_ADDRESS is {address}, and no cluster of Ray answers there: "):
            RayEngine()


def test_no_pieces_are_no_outcomes(ray: Any, job: NotingJob) -> None:
    assert run(job, workers=1) == {}
