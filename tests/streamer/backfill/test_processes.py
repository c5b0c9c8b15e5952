"""`streamer backfill` as a process with workers: kills, signals, exit codes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backfills import service_of, tree
from backfillsteps import DeadlyJob

from pipelines.errors import StreamerError
from streamer.backfill.engines.local import LocalEngine
from streamer.backfill.localfiles import LocalFiles
from streamer.backfill.pieces import Piece
from streamer.backfill.places import StoredFile

pytestmark = pytest.mark.timeout(400)
SUPPORT = Path(__file__).parents[2] / "support"
FILES, ROWS = 12, 400


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a service and files of rows, of which some fail."""
    service_of(tmp_path, [{"@type": "FUNCTION", "function": "backfillsteps:doubled"}], keep=["id"])
    shutil.copy(SUPPORT / "backfillsteps.py", tmp_path)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        values = [100 if row % 50 == 3 else row % 50 for row in ids]
        pq.write_table(pa.table({"id": ids, "x": values}), tmp_path / f"in/{number:02}.parquet")
    return tmp_path


def started(work: Path, *more: str, workers: int = 2) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "streamer", "backfill", "service.yaml", "--input", "in/*.parquet"]
    return subprocess.Popen(
        [*command, "--output", "out", "--workers", str(workers), "--json", *more],
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, json.loads(out) if out else {}, err


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def manifest(work: Path) -> list[dict[str, Any]]:
    """The entries, in the order in which they were written."""
    parts = sorted((work / "out/_manifest").glob("*.jsonl"))
    return [entry for part in parts for entry in map(json.loads, part.read_text().splitlines()) if "files" in entry]


def results(work: Path) -> list[Path]:
    return list((work / "out").glob("*.parquet"))


def expected(tree: dict[str, Any]) -> bool:
    ids = [row["id"] for name, part in sorted(tree.items()) if not name.startswith("_") for row in part]
    lost = [row["id"] for name, part in sorted(tree.items()) if name.startswith("_errors") for row in part]
    return ids == [row for row in range(FILES * ROWS) if row % 50 != 3] and lost == [
        row for row in range(FILES * ROWS) if row % 50 == 3
    ]


def processes(group: int) -> list[int]:
    """The processes of a session."""
    there = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == group and "\nState:\tZ" not in (entry / "status").read_text():
                    there.append(int(entry.name))
            except OSError:
                continue
    return there


def killed(work: Path, after: int) -> None:
    """Start a backfill, and kill it when there are so many results."""
    process = started(work, workers=1)
    until(lambda: len(results(work)) >= after or process.poll() is not None)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until(lambda: not processes(process.pid))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_driver_that_is_killed_goes_on_where_it_was(work: Path) -> None:
    for more in range(1, 4):
        killed(work, len(results(work)) + more)
    before = len(manifest(work))
    code, summary, _ = ended(started(work))
    assert (code, summary["before"], summary["pieces"]) == (0, before, FILES - before)
    assert set(Counter(entry["output"] for entry in manifest(work)).values()) == {1}
    assert expected(tree(work / "out"))
    # Nothing of those that were killed is left.
    assert len(list((work / "out").rglob("*.backfill-part"))) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_that_is_killed_takes_nothing_with_it(work: Path) -> None:
    process = started(work)
    until(lambda: len(results(work)) > 1)
    workers = [pid for pid in processes(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(workers[0], signal.SIGKILL)
    code, summary, err = ended(process)
    assert (code, summary["pieces"], summary["failed"]) == (0, FILES, [])
    assert f"records that failed are in out/_errors, such as: {summary['error']}" in err
    assert expected(tree(work / "out"))


def test_a_piece_that_kills_its_process_is_given_up_and_the_rest_is_done(work: Path) -> None:
    pq.write_table(pa.table({"id": [0], "x": [-1]}), work / "in/05a.parquet")
    code, summary, err = ended(started(work))
    assert code == 1
    assert [Path(failed["piece"]).name for failed in summary["failed"]] == ["05a.parquet"]
    assert "its process has died twice" in summary["failed"][0]["reason"]
    assert "05a.parquet: its process has died twice" in err
    assert summary["pieces"] == FILES
    assert expected(tree(work / "out"))


def test_a_signal_leaves_the_rest_to_the_next_run(work: Path) -> None:
    process = started(work)
    until(lambda: len(results(work)) > 2)
    os.killpg(process.pid, signal.SIGINT)
    code, first, err = ended(process)
    assert code == 0
    assert "stopping: what is half done is left to the next run" in err
    assert "Traceback" not in err
    assert first["stopped"]
    assert 0 < first["pieces"] < FILES
    assert first["left"] == FILES - first["pieces"]
    assert len(list((work / "out").rglob("*.backfill-part"))) == 0
    assert len(manifest(work)) == len(results(work)) == first["pieces"]
    code, second, _ = ended(started(work))
    assert (code, second["before"], second["pieces"]) == (0, first["pieces"], first["left"])
    assert expected(tree(work / "out"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_pass_over_the_signals_of_a_terminal_from_their_beginning(work: Path) -> None:
    process = started(work)
    signalled: set[int] = set()
    while process.poll() is None:
        for worker in set(processes(process.pid)) - signalled:
            with suppress(OSError):
                if b"spawn_main" in Path(f"/proc/{worker}/cmdline").read_bytes():
                    os.kill(worker, signal.SIGINT)
                    signalled.add(worker)
        time.sleep(0.01)
    code, summary, err = ended(process)
    assert len(signalled) == 2
    assert (code, summary["pieces"]) == (0, FILES)
    assert "Traceback" not in err


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_second_signal_ends_at_once(work: Path) -> None:
    service_of(work, [{"@type": "FUNCTION", "function": "backfillsteps:unending"}])
    # Lines need no columns, for which rows would be run before the workers begin.
    process = started(work, "--format", "jsonl")
    until((work / "begun").exists)
    os.kill(process.pid, signal.SIGTERM)
    time.sleep(0.3)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGTERM)
    code, _, _ = ended(process)
    assert code == 130
    until(lambda: not processes(process.pid))
    assert list((work / "out").glob("*.jsonl")) == []


def test_two_drivers_do_not_write_to_the_same_folder(work: Path) -> None:
    with LocalFiles().lock(f"{work}/out/_manifest"):
        code, _, err = ended(started(work))
    assert code == 1
    assert "another backfill is writing there" in err


@pytest.mark.parametrize(
    ("more", "said"),
    [(["--input", "none/*.parquet"], "no file matches"), (["--service", "other"], 'there is no service "other"')],
)
def test_wrong_use_is_exit_code_2(more: list[str], said: str, work: Path) -> None:
    code, _, err = ended(started(work, *more))
    assert code == 2
    assert said in err


def test_workers_that_cannot_begin_are_not_begun_for_ever() -> None:
    pieces = (Piece("parquet", (StoredFile(f"{number}", f"{number}", 0, ""),), f"{number}") for number in range(99))
    engine = LocalEngine(1)
    with pytest.raises(StreamerError, match="worker processes die before they have opened the service"):
        list(engine.outcomes(DeadlyJob(), pieces, threading.Event()))
