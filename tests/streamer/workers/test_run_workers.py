"""`streamer run --workers` with real processes, on files: a single worker may read them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import until

from streamer.workers.launch import marked

pytestmark = pytest.mark.slow

STEPS = """\
import ctypes, time
from pathlib import Path

def deadly(data):
    if data["x"] == 1:
        ctypes.string_at(0)
    return data

def slow(data):
    Path("reached").touch()
    time.sleep(600)

def brief(data):
    Path("reached").touch()
    time.sleep(0.5)
    return data

def wrong(data):
    raise ValueError("nothing is right")
"""


def service(folder: Path, step: str, more: str = "") -> Path:
    """A service from in.jsonl, with three records, to out.jsonl."""
    (folder / "mine.py").write_text(STEPS)
    (folder / "in.jsonl").write_text("".join(f'{{"x": {number}}}\n' for number in range(3)))
    file = folder / "digits.yaml"
    file.write_text(
        "source: {type: file, path: in.jsonl, format: jsonl, checkpoint: done}\n"
        f"pipeline: [{{'@type': FUNCTION, function: 'mine:{step}'}}]\n"
        f"sink: {{type: file, path: out.jsonl, format: jsonl}}\n{more}"
    )
    return file


def results(folder: Path) -> list[int]:
    file = folder / "out.jsonl"
    return [json.loads(line)["x"] for line in file.read_text().splitlines()] if file.exists() else []


def reached(folder: Path, process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The parent's processes, its workers and the guard, when a worker has begun to run records."""
    until(lambda: (folder / "reached").exists() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    return psutil.Process(process.pid).children(recursive=True)


def test_a_record_that_kills_its_process_becomes_a_dead_letter_and_the_others_have_results(
    start: Any, tmp_path: Path
) -> None:
    letters = "dead_letter: {type: file, path: dead.jsonl, format: jsonl}\n"
    process = start("run", service(tmp_path, "deadly", letters), "--workers", "1", "--json", "--log-json")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert sorted(set(results(tmp_path))) == [0, 2]
    (letter,) = (tmp_path / "dead.jsonl").read_text().splitlines()
    assert "signal 11 while this record was run alone" in letter
    summary = json.loads(out)
    assert (summary["worker"], summary["service"], summary["reason"]) == (0, "digits", "ended")
    events = [json.loads(line) for line in err.splitlines()]
    assert [event["reason"] for event in events if event["event"].startswith("a worker died")] == ["signal 11"] * 2
    assert {event.get("worker") for event in events if event["event"] == "running"} == {0}


def test_the_first_signal_drains_the_workers_and_ends_with_0(start: Any, tmp_path: Path) -> None:
    process = start("run", service(tmp_path, "brief"), "--workers", "1", "--no-log-json")
    reached(tmp_path, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert results(tmp_path)[:1] == [0]
    lines = err.splitlines()
    assert lines[0] == "digits: 1 worker"
    assert lines[1].startswith("worker 0: digits: running, file ")
    assert any(line.startswith("worker 0: digits: stopped after") for line in lines)


def test_a_second_signal_ends_all_processes_at_once_with_130(start: Any, tmp_path: Path) -> None:
    process = start("run", service(tmp_path, "slow"), "--workers", "1", "--no-log-json")
    others = reached(tmp_path, process)
    process.send_signal(signal.SIGTERM)
    until(lambda: "stopping" in process.stderr.readline())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert psutil.wait_procs(others, 60)[1] == []


def test_workers_end_when_their_parent_is_killed_and_leave_no_file(start: Any, tmp_path: Path) -> None:
    # On files, as the guard keeps pipes open until it has ended the workers.
    with (tmp_path / "err").open("w") as err:
        file = service(tmp_path, "slow", "limits: {drain: 100ms}\n")
        process = start("run", file, "--workers", "1", stdout=err, stderr=err)
        others = reached(tmp_path, process)
        (guard,) = (other for other in others if "guard.py" in " ".join(other.cmdline()))
        folder = Path(guard.cmdline()[-1])
        assert (folder / "pages").exists()
        process.kill()
        process.wait()
        assert psutil.wait_procs(others, 60)[1] == []
    assert not folder.exists()


def test_a_worker_that_ends_by_itself_decided_so_and_is_not_started_again(start: Any, tmp_path: Path) -> None:
    process = start("run", service(tmp_path, "wrong"), "--workers", "1", "--no-log-json")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.count("worker 0: digits: running") == 1
    assert "worker 0: error: " in err


def test_a_service_that_workers_cannot_divide_is_wrong_use(start: Any, tmp_path: Path) -> None:
    process = start("run", service(tmp_path, "brief"), "--workers", "2", "--no-log-json")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"error: {tmp_path}/digits.yaml:1: service digits: ")
    assert not (tmp_path / "reached").exists()


def test_options_that_several_processes_cannot_have_are_wrong_use(cli: Any, tmp_path: Path) -> None:
    file = service(tmp_path, "brief")
    faust = cli("run", file, "--workers", "1", "--engine", "faust")
    profile = cli("run", file, "--workers", "2", "--profile", "p.json")
    assert (faust.code, profile.code, cli("run", file, "--workers", "0").code) == (2, 2, 2)
    assert "start several processes instead" in faust.err
    assert "profile-${STREAMER_WORKER}.json" in profile.err


def test_the_parent_is_small_and_loads_no_client_library(start: Any, tmp_path: Path) -> None:
    control = "control: {listen: '127.0.0.1:0'}\n"
    process = start("run", service(tmp_path, "brief", control), "--workers", "1", "--no-log-json")
    reached(tmp_path, process)
    assert psutil.Process(process.pid).memory_info().rss <= 40 << 20
    assert process.communicate(timeout=120)[1].startswith("digits: 1 worker, metrics on http://127.0.0.1:")
    imported = "import sys, streamer.workers.parent.running; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", imported], capture_output=True, text=True, check=True)
    heavy = {"numpy", "onnxruntime", "confluent_kafka", "prometheus_client", "structlog", "yaml"}
    assert heavy & set(done.stdout.split()) == set()


def test_a_control_port_that_is_taken_is_told_before_any_worker_starts(start: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        control = f"control: {{listen: '127.0.0.1:{taken.getsockname()[1]}'}}\n"
        process = start("run", service(tmp_path, "slow", control), "--workers", "1", "--no-log-json")
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "choose another address or port" in err
    assert not (tmp_path / "reached").exists()


def test_lines_of_workers_have_their_number() -> None:
    assert marked(b'{"event": "running"}\n', 3, in_json=True) == b'{"worker": 3, "event": "running"}\n'
    assert marked(b"from a C library\n", 3, in_json=True) == b"from a C library\n"
    assert marked(b"a: running\n", 3, in_json=False) == b"worker 3: a: running\n"


def test_a_worker_without_memory_for_its_source_is_started_again(start: Any, tmp_path: Path) -> None:
    file = service(tmp_path, "same")
    (tmp_path / "mine.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "from connectors.file.source import FileSource\n\n"
        "def same(data):\n"
        "    return data\n\n"
        "def poll(*arguments):\n"
        "    raise MemoryError\n\n"
        "if 'STREAMER_PAGES' in os.environ and not Path('short').exists():\n"
        "    Path('short').touch()\n"
        "    FileSource.poll = poll\n"
    )
    process = start("run", file, "--workers", "1", "--log-json")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert results(tmp_path) == [0, 1, 2]
    events = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert [event["reason"] for event in events if event["event"].startswith("a worker died")] == ["signal 6"]
    assert list(tmp_path.glob("core*")) == []
