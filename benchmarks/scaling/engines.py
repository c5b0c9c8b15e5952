"""The same work in each of the ways to run a service: rows of JSON with 32 floats through a small model.

Everything from the start of the command to its end is counted, all processes of it, so that what an engine itself needs
is in the figures. What a start takes is told apart by the first results.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import yaml

from benchmarks.environments import ROOT
from benchmarks.messages import Messages
from benchmarks.models import write_model
from benchmarks.process import ProgramFailed
from benchmarks.programs.job import Job
from benchmarks.programs.ours import service_file
from benchmarks.rows import Content
from benchmarks.topics import Topics

ROWS: Final = 400_000
BATCH: Final = 512
STREAMS: Final[Mapping[str, Sequence[str]]] = {
    "one process": [],
    "`--workers 2`": ["--workers", "2"],
    "`--engine faust`": ["--engine", "faust"],
    "`--engine spark`, two cores": ["--engine", "spark", "--checkpoint", "{folder}/checkpoint"],
}
FILES: Final[Mapping[str, Sequence[str]]] = {
    "`backfill`, one worker": ["--workers", "1"],
    "`backfill`, two workers": ["--workers", "2"],
    "`backfill --engine ray`, two workers": ["--engine", "ray", "--workers", "2"],
}
SHARES: Final = {"`--engine faust`": 0.05}
"""How much of the rows the slower ways get."""
_NEEDS: Final = {"`--engine faust`": "faust", "`--engine spark`, two cores": "pyspark"} | {list(FILES)[2]: "ray"}
_CONTENT: Final = Content(json=True)
_LOOK: Final = 0.05
_PATIENCE: Final = 300.0


class Cost(NamedTuple):
    """What a way of running took for the rows."""

    way: str
    start: float
    """Seconds until the first results."""
    rate: float
    """Rows a second from then on."""
    microseconds: float
    """CPU microseconds a row from then on, of all its processes."""


def missing(way: str) -> str | None:
    """The package without which this way does not run, if it is not installed."""
    package = _NEEDS.get(way)
    return package if package is not None and find_spec(package) is None else None


def streamed(bootstrap: str, folder: Path, way: str, rows: int = ROWS) -> Cost:
    """The rows from topic to topic. Raises `ProgramFailed`."""
    count = max(1000, int(rows * SHARES.get(way, 1.0)))
    topics, name = Topics(bootstrap), f"bench-engines-{os.getpid()}-{list(STREAMS).index(way)}"
    source, sink, dead = (f"{name}-{end}" for end in ("in", "out", "dead"))
    with topics.created([source, sink, dead]):
        topics.fill(source, Messages(_CONTENT), count)
        file = _service(bootstrap, folder, name, source, sink, dead)
        options = [word.format(folder=folder / name) for word in STREAMS[way]]
        with _command(["run", str(file), *options], folder / f"{name}.log") as running:
            first = running.until(lambda: topics.ends([sink])[sink])
            last = running.until(lambda: topics.ends([sink])[sink] == count)
            if (letters := topics.ends([dead])[dead]) != 0:
                raise ProgramFailed(f"{way}: {letters} dead letters\n{running.log()}")
    return _cost(way, first, last, count)


def of_files(folder: Path, way: str, rows: int = ROWS) -> Cost:
    """The rows from Parquet to Parquet, eight files. Raises `ProgramFailed`."""
    name = f"bench-engines-files-{list(FILES).index(way)}"
    file = _service("127.0.0.1:9", folder, name, "in", "out", "dead")
    tables = folder / "rows"
    if not tables.exists():
        _write_tables(tables, rows)
    output = folder / f"{name}-out"
    words = ["backfill", str(file), "--input", f"{tables}/*.parquet", "--output", str(output), *FILES[way]]
    with _command(words, folder / f"{name}.log") as running:
        first = running.until(lambda: _rows_of(output))
        last = running.until(lambda: _rows_of(output) == rows)
    return _cost(way, first, last, rows)


def _service(bootstrap: str, folder: Path, name: str, source: str, sink: str, dead: str) -> Path:
    model = write_model(folder, _CONTENT.floats, scores=True)
    job = Job(
        bootstrap=bootstrap,
        source=source,
        sink=sink,
        dead=dead,
        group=name,
        model=str(model),
        floats=_CONTENT.floats,
        batch=BATCH,
        max_wait=0.05,
        linger=0.005,
        keep=True,
        headers=False,
        folder=str(folder),
        json=True,
    )
    file = folder / f"{name}.yaml"
    service = service_file(job) | {"name": name}
    # What not all engines have.
    del service["control"]
    for sink in (service["sink"], service["dead_letter"]):
        del sink["compression"], sink["linger"]
    file.write_text(yaml.safe_dump(service), encoding="utf-8")
    return file


def _write_tables(folder: Path, rows: int, files: int = 8) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    messages, each = Messages(_CONTENT), rows // files
    types = pa.schema([("device_id", pa.string()), ("ts", pa.int64()), ("x", pa.list_(pa.float32(), _CONTENT.floats))])
    for number in range(files):
        records = [json.loads(messages.message(number * each + at).value) for at in range(each)]
        pq.write_table(pa.Table.from_pylist(records, types), folder / f"{number}.parquet")


def _rows_of(output: Path) -> int:
    """The results in the files that are there."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in output.glob("*.parquet"))


class _Point(NamedTuple):
    seconds: float
    """Since the start of the command."""
    cpu: float
    """CPU seconds of all its processes until then."""
    done: int


class _Running:
    """A command, and the CPU time of all processes that it has started."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._began = time.monotonic()
        self._process, self._log_file = process, log
        self._root = psutil.Process(process.pid)
        self._used: dict[tuple[int, float], float] = {}
        """CPU seconds of each process, also of those that have ended."""
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look, daemon=True)
        self._watch.start()

    def until(self, done: Callable[[], int]) -> _Point:
        """When `done()` is not 0 any more. Raises `ProgramFailed` if that does not come."""
        deadline = time.monotonic() + _PATIENCE
        while not (count := done()):
            if time.monotonic() > deadline or self._process.poll() not in (None, 0):
                raise ProgramFailed(self.log())
            time.sleep(_LOOK)
        return _Point(time.monotonic() - self._began, sum(self._used.copy().values()), count)

    def log(self) -> str:
        """The end of what it has said."""
        return self._log_file.read_text(encoding="utf-8", errors="replace")[-3000:]

    def end(self) -> None:
        """By SIGTERM, if it has not ended."""
        self._over.set()
        self._watch.join()
        self._process.terminate()
        try:
            self._process.wait(30.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _look(self) -> None:
        while not self._over.wait(_LOOK):
            with contextlib.suppress(psutil.Error):
                for process in [self._root, *self._root.children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        times = process.cpu_times()
                        self._used[process.pid, process.create_time()] = times.user + times.system


@contextlib.contextmanager
def _command(words: Sequence[str], log: Path) -> Iterator[_Running]:
    with log.open("wb") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamer", *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            env={"PYSPARK_PYTHON": sys.executable, **os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        )
    running = _Running(process, log)
    try:
        yield running
    finally:
        running.end()


def _cost(way: str, first: _Point, last: _Point, count: int) -> Cost:
    rows = count - first.done
    if rows <= 0:
        raise ProgramFailed(f"{way}: all results were there at the first look; take more rows")
    return Cost(way, first.seconds, rows / (last.seconds - first.seconds), (last.cpu - first.cpu) / rows * 1e6)
