"""Pieces in actors of Ray, on a real cluster of two CPUs: each once, whatever processes die, and none after a stop."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import faust
import pyarrow as pa
import pytest
import raykit
from backfills import InThisProcess, run, service_of, tree
from piecejobs import NotingJob, piece
from variedrecords import COUNT, KEEP, PIPELINE, payloads
from waiting import until

import streamer
import streamer.faust
from connectors.codecs.registry import codec_of
from pipelines import Batch
from pipelines.errors import StreamerError
from streamer.backfill.engines.engine import Engine
from streamer.backfill.engines.local import LocalEngine
from streamer.backfill.engines.ray import RayEngine
from streamer.backfill.engines.rayworker import RayWorker
from streamer.backfill.job import ServiceJob
from streamer.backfill.pieces import Outcome, Piece
from streamer.shipped import ShippedService
from streamer.spark.mapping import ServiceMap
from streamer.testing import DeadLetter

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")]


@pytest.fixture
def job(tmp_path: Path) -> NotingJob:
    return NotingJob(tmp_path)


def outcomes_of(job: NotingJob, *names: str, workers: int | None = None) -> dict[str, Outcome]:
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
    outcomes = outcomes_of(job, *names)
    assert outcomes == {name: Outcome(piece(name), 3, 3, output=f"{name}.jsonl") for name in names}
    notes = job.notes()
    assert len(notes) == 2
    assert all((words[0], words[-1]) == ("open", "close") for words in notes.values())
    assert Counter(word for words in notes.values() for word in words[1:-1]) == Counter(names)
    assert str(os.getpid()) not in notes


def test_a_piece_whose_process_dies_is_run_again_and_is_a_failure_when_it_dies_twice(ray: Any, job: NotingJob) -> None:
    outcomes = outcomes_of(job, "a", "deadly", "b", "dies-once", "unreadable", "c")
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
    outcomes.close()
    until(lambda: ended(job))


def test_a_service_that_workers_cannot_open_is_an_error_with_the_reason(ray: Any, job: NotingJob) -> None:
    with pytest.raises(StreamerError, match=r"^model\.onnx: there is no such file"):
        outcomes_of(replace(job, fails=True), "a", workers=1)


def test_workers_that_die_before_they_have_opened_the_service_end_the_run(ray: Any, job: NotingJob) -> None:
    with pytest.raises(StreamerError, match="Ray's workers die before they have opened the service"):
        outcomes_of(replace(job, dies=True), "a", workers=1)


def test_a_worker_with_another_streamer_says_both_versions(job: NotingJob) -> None:
    assert "and the driver 9.9.9; install the same version" in str(RayWorker("9.9.9", b"of another version").open())


def test_an_address_where_no_cluster_answers_is_an_error(
    monkeypatch: pytest.MonkeyPatch, ray: Any, job: NotingJob
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(StreamerError, match=f"RAY_ADDRESS is {address}, and no cluster of Ray answers there: "):
            outcomes_of(job, "a")


DOUBLE = [{"@type": "MAP", "ensure": ["x <> 7"], "select": {"y": "x * 2"}, "keep": []}]


def test_a_backfill_writes_what_it_writes_in_this_process(ray: Any, tmp_path: Path) -> None:
    service = service_of(tmp_path, DOUBLE, keep=["id"])
    for number in range(5):
        lines = [json.dumps({"id": row, "x": row % 10}) for row in range(100 * number, 100 * number + 100)]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
    (tmp_path / "5.parquet").write_bytes(b"no Parquet")
    outputs = [tmp_path / "here", tmp_path / "ray"]
    engines: list[Engine] = [InThisProcess(), RayEngine()]
    for output, engine in zip(outputs, engines, strict=True):
        summary = run(service, [f"{tmp_path}/?.jsonl", f"{tmp_path}/5.parquet"], output, engine=engine)
        assert (summary.rows, summary.results, summary.errors) == (500, 450, 50)
        assert [Path(piece).name for piece, _ in summary.failed] == ["5.parquet"]
    here, by_ray = ({name: (output / name).read_bytes() for name in tree(output)} for output in outputs)
    assert by_ray == here
    assert len(here) == 10
    summary = run(service, f"{tmp_path}/?.jsonl", outputs[1], engine=RayEngine())
    assert (summary.before, summary.pieces) == (5, 0)


def test_agent_faust_spark_and_backfills_give_the_same_bit_for_bit(ray: Any, tmp_path: Path) -> None:
    given = payloads()
    (tmp_path / "in.jsonl").write_bytes(b"".join(payload + b"\n" for payload in given))
    service = service_of(tmp_path, PIPELINE, keep=KEEP, dead_letter={"type": "file", "path": "dead", "format": "jsonl"})

    service.run()
    results = (tmp_path / "out.jsonl").read_bytes()
    assert 700 < results.count(b"\n") < 800
    lost = sorted(set(range(COUNT)) - numbers(results))
    assert {50, 150, 995} < set(lost)

    for engine in (LocalEngine(1), RayEngine(1)):
        output = tmp_path / type(engine).__name__
        summary = run(service, str(tmp_path / "in.jsonl"), output, engine=engine, format="jsonl")
        assert (output / "in.jsonl").read_bytes() == results
        assert summary.errors == len(lost)

    (tmp_path / "kafka").mkdir()
    topic = {"type": "kafka", "topic": "out", "codec": "json"}
    source = {"type": "kafka", "topics": ["in"], "codec": "json"}
    on_kafka = service_of(
        tmp_path / "kafka", PIPELINE, keep=KEEP, source=source, sink=topic, dead_letter={**topic, "topic": "dead"}
    )
    assert in_faust(on_kafka, given) == ([json.loads(line) for line in results.splitlines()], lost)
    assert in_spark(on_kafka, given) == (results, lost)


def numbers(lines: bytes) -> set[int]:
    return {int(json.loads(line)["id"]) for line in lines.splitlines()}


def in_faust(service: streamer.Service, given: list[bytes]) -> tuple[list[Any], list[int]]:
    """The results, and the numbers of the records that failed. Where nothing is sent, agents of Faust give objects."""

    async def run() -> list[Any]:
        app = faust.App("test", broker="kafka://127.0.0.1:1", store="memory://")
        async with streamer.faust.attach(app, service).test_context() as tested:
            for payload in given:
                await tested.put(payload)
            return list(tested.results.values())

    made = asyncio.run(run())
    good = [result for result in made if not isinstance(result, DeadLetter)]
    lost = [number for number, result in enumerate(made) if isinstance(result, DeadLetter)]
    return [json.loads(value or b"") for value in codec_of("json").encode(Batch.of(good)).values], lost


def in_spark(service: streamer.Service, given: list[bytes]) -> tuple[bytes, list[int]]:
    """The lines of results of the function that Spark calls in its workers, and the numbers of what failed."""
    records = {
        "key": pa.nulls(len(given), pa.binary()),
        "value": pa.array(given, pa.binary()),
        "topic": ["in"] * len(given),
        "partition": pa.array([0] * len(given), pa.int32()),
        "offset": range(len(given)),
        "timestamp": pa.array([0] * len(given), pa.timestamp("us", "UTC")),
    }
    function = ServiceMap("query", ShippedService.of(service, None), ("0:MAP",))
    made = [row for batch in function([pa.record_batch(records)]) for row in batch.to_pylist() if row["topic"]]
    lost = [given.index(row["value"]) for row in made if row["topic"] == "dead"]
    return b"".join(row["value"] + b"\n" for row in made if row["topic"] == "out"), sorted(lost)


def test_a_cluster_is_started_where_there_is_none_and_ends_with_the_command(
    ray_environment: dict[str, str], tmp_path: Path
) -> None:
    service_of(tmp_path, DOUBLE, keep=["id"])
    (tmp_path / "in.jsonl").write_text('{"id": 1, "x": 2}\n{"id": 2, "x": 7}\n')
    words = ["backfill", "service.yaml", "--input", "in.jsonl", "--output", "out", "--format", "jsonl", "--json"]
    with raykit.surroundings(ray_environment) as surroundings:
        done = subprocess.run(
            [sys.executable, "-m", "streamer", *words, "--engine", "ray", "--workers", "1"],
            cwd=tmp_path,
            env={**os.environ, **surroundings, "RAY_ADDRESS": "local"},
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["results"] == 1
        assert (tmp_path / "out/in.jsonl").read_text() == '{"y":4.0,"id":1}\n'
        until(lambda: not raykit.processes(surroundings["RAY_TMPDIR"]))


def test_a_machine_without_the_folder_of_outputs_says_so(tmp_path: Path) -> None:
    shipped = ShippedService.of(service_of(tmp_path, DOUBLE), tmp_path / "service.yaml")
    job = ServiceJob(shipped, tmp_path, {}, str(tmp_path / "out"), "jsonl", None)
    with pytest.raises(StreamerError, match=r"/out is not there on .*: inputs and outputs have to be where"):
        job.open()


def test_files_of_a_pipeline_are_looked_for_in_the_working_directory_where_its_folder_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("driver", "worker", "out/_manifest"):
        (tmp_path / name).mkdir(parents=True)
    table = '"id": 1, "kind": "pump"'
    lookup = {"@type": "LOOKUP", "by": "id", "path": "kinds.jsonl", "take": ["kind"]}
    (tmp_path / "driver/kinds.jsonl").write_text(f"{{{table}}}\n")
    service = service_of(tmp_path / "driver", [lookup])
    shipped = ShippedService.of(service, tmp_path / "driver/service.yaml")
    job = ServiceJob(shipped, tmp_path / "driver", {}, str(tmp_path / "out"), "jsonl", None)
    job.open().close()
    monkeypatch.chdir(tmp_path / "worker")
    (tmp_path / "driver").rename(tmp_path / "gone")
    with pytest.raises(StreamerError, match=r"kinds\.jsonl.*looked for in .*/worker: .*ray job submit --working-dir"):
        job.open()
    (tmp_path / "gone/kinds.jsonl").rename(tmp_path / "worker/kinds.jsonl")
    job.open().close()


def test_no_pieces_are_no_outcomes(ray: Any, job: NotingJob) -> None:
    assert outcomes_of(job, workers=1) == {}
