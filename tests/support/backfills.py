"""Backfills in this process: services over files, and what they have written."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import streamer
from streamer.backfill.driver import backfill
from streamer.backfill.engines.engine import Engine, Job
from streamer.backfill.pieces import Outcome, Piece
from streamer.backfill.summary import BackfillSummary


class InThisProcess:
    """An engine whose worker is this process. `stop_after`: it is stopped after so many pieces."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.ran: list[str] = []
        self._stop_after = stop_after

    def outcomes(
        self, job: Job, pieces: Iterable[Piece], stop: threading.Event
    ) -> Generator[Outcome | None, None, None]:
        worker = job.open()
        try:
            for piece in pieces:
                if stop.is_set():
                    return
                self.ran.append(piece.output)
                yield worker.run(piece, stop.is_set)
                if len(self.ran) == self._stop_after:
                    stop.set()
        finally:
            worker.close()


class Silent:
    """Nobody looks at the progress."""

    def planning(self, files: int, what: str) -> None:
        return

    def begun(self, pieces: Sequence[Piece], before: int) -> None:
        return

    def progressed(self, summary: BackfillSummary) -> None:
        return


def service_of(folder: Path, pipeline: list[dict[str, Any]], **fields: Any) -> streamer.Service:
    """A service with this pipeline, loaded from a file in the folder."""
    path = folder / "service.yaml"
    document = {
        "source": {"type": "file", "path": "in.jsonl", "format": "jsonl"},
        "pipeline": pipeline,
        "sink": {"type": "file", "path": "out.jsonl", "format": "jsonl"},
        **fields,
    }
    path.write_text(json.dumps(document))
    return streamer.load(path)


def run(
    service: streamer.Service, inputs: str | list[str], output: Path, *, engine: Engine | None = None, **named: Any
) -> BackfillSummary:
    """A backfill of these inputs."""
    listed = [inputs] if isinstance(inputs, str) else inputs
    return backfill(
        service,
        listed,
        str(output),
        engine or InThisProcess(),
        watcher=Silent(),
        stop=threading.Event(),
        **named,
    )


def tree(folder: Path) -> dict[str, Any]:
    """The rows of all files of outputs, by relative path; not those of the manifest."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "_manifest" not in path.parts]
    return {path.relative_to(folder).as_posix(): rows(path) for path in files}


def rows(path: Path) -> Any:
    """The rows of a Parquet or Arrow file, or the documents of lines."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".arrow":
        return pa.ipc.open_file(path.read_bytes()).read_all().to_pylist()
    return pq.read_table(path, partitioning=None).to_pylist()
