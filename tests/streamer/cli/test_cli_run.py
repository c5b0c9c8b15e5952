"""`streamer run`: ends, signals, failures, several services; each run in a process of its own, on files."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from streamer.cli.process import COLLECT_AFTER

pytestmark = pytest.mark.slow

STEPS = """\
import gc
import time
from pathlib import Path

def collected(data):
    data["x"] = gc.get_threshold()[0]
    return data

def slow(data):
    Path("reached").touch()
    time.sleep(600)

def as_it_is(data):
    return data

def repeating(data):
    raise ValueError(data["x"])

def wrong(data):
    raise ValueError("nothing is right")
"""


def service(folder: Path, name: str, *, step: str = "", follow: bool = False, more: str = "") -> Path:
    """A service from NAME.in.jsonl to NAME.out.jsonl; `step` is a function in `mine.py`."""
    (folder / "mine.py").write_text(STEPS)
    (folder / f"{name}.in.jsonl").write_text("".join(f'{{"x": {number}}}\n' for number in range(3)))
    steps = f"[{{'@type': FUNCTION, function: 'mine:{step}'}}]" if step else "[]"
    file = folder / f"{name}.yaml"
    file.write_text(
        f"source: {{type: file, path: {name}.in.jsonl, format: jsonl, follow: {str(follow).lower()}}}\n"
        f"pipeline: {steps}\n"
        f"sink: {{type: file, path: {name}.out.jsonl, format: jsonl}}\n{more}"
    )
    return file


def results(folder: Path, name: str) -> list[int]:
    file = folder / f"{name}.out.jsonl"
    return [json.loads(line)["x"] for line in file.read_text().splitlines()] if file.exists() else []


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_service_runs_to_the_end_of_its_source(start: Any, tmp_path: Path) -> None:
    process = start("run", service(tmp_path, "a"), "--json", "--no-log-json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert results(tmp_path, "a") == [0, 1, 2]
    summary = json.loads(out)
    assert (summary["service"], summary["ok"], summary["dead"], summary["reason"]) == ("a", 3, 0, "ended")
    first, last = err.splitlines()
    assert first.startswith("a: running")
    assert last.startswith("a: ended")
    assert "3 ok" in last


def test_half_a_record_that_is_left_to_the_next_run_is_named_at_the_end_of_this_one(start: Any, tmp_path: Path) -> None:
    file = service(tmp_path, "a")
    with (tmp_path / "a.in.jsonl").open("a") as records:
        records.write('{"x": 3')
    process = start("run", file, "--json", "--no-log-json")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, results(tmp_path, "a")) == (0, [0, 1, 2])
    told = "a.in.jsonl: its last 7 bytes, from byte 27 on, are a record without its end"
    assert told in json.loads(out)["waits"]
    assert err.splitlines()[-1].endswith(told)
    assert "if it lacks nothing but its line feed, write unfinished: read" in err


def test_the_process_of_a_service_looks_for_reference_cycles_less_often(start: Any, tmp_path: Path) -> None:
    process = start("run", service(tmp_path, "a", step="collected"))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert results(tmp_path, "a") == [COLLECT_AFTER] * 3


def test_functions_are_found_beside_the_service_file_wherever_it_is_run_from(start: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    file = service(tmp_path / "mine", "a", step="as_it_is")
    process = start("run", file)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert results(tmp_path / "mine", "a") == [0, 1, 2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_first_signal_drains_and_ends_with_0(start: Any, tmp_path: Path, number: signal.Signals) -> None:
    process = start("run", service(tmp_path, "a", follow=True))
    wait_for(lambda: results(tmp_path, "a") == [0, 1, 2], process)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    ended = json.loads(err.splitlines()[-1])
    assert (ended["event"], ended["reason"], ended["ok"]) == ("ended", "stopped", 3)


def test_a_terminal_that_is_closed_drains_the_service(tmp_path: Path) -> None:
    file = service(tmp_path, "a", follow=True)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "streamer", "run", str(file)])
    deadline = time.monotonic() + 120
    while results(tmp_path, "a") != [0, 1, 2]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.slow
def test_a_branch_that_hangs_and_was_given_up_holds_up_no_end(start: Any, tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(
        "import time\n\ndef hang(data):\n    time.sleep(1000)\n\ndef quick(data):\n    return data\n"
    )
    (tmp_path / "graph.yaml").write_text(
        """
outputStep: first
steps:
  hang: {"@type": FUNCTION, "@input": input, function: "hangs:hang"}
  quick: {"@type": FUNCTION, "@input": input, function: "hangs:quick"}
  first: {"@type": COMBINE, "@input": [hang, quick], combineFn: {"@type": FIRST, timeoutMs: 50}}
"""
    )
    (tmp_path / "in.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "s.yaml").write_text(
        "source: {type: file, path: in.jsonl, format: jsonl, follow: true}\n"
        "pipeline: graph.yaml\nsink: {type: file, path: out.jsonl, format: jsonl}\nlimits: {threads: 2}\n"
    )
    process = start("run", tmp_path / "s.yaml")
    out = tmp_path / "out.jsonl"
    wait_for(lambda: out.exists() and out.read_text() == '{"a":1}\n', process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "given up" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("imported", ["typer", "pydantic", "streamer.agent.agent"])
@pytest.mark.parametrize("entry", [["-m", "streamer"], ["-c", "from streamer.cli import main; main()"]])
def test_a_signal_while_it_still_imports_ends_a_service_with_0(
    tmp_path: Path, entry: list[str], imported: str, number: signal.Signals
) -> None:
    with _imports(imported, [*entry, "run", str(service(tmp_path, "a", follow=True))]) as process:
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "Traceback" not in err


def test_a_signal_while_it_still_imports_kills_a_command_that_runs_no_service() -> None:
    with _imports("typer", ["-m", "streamer", "schema"]) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == -signal.SIGTERM


def test_a_second_signal_ends_at_once_with_130(start: Any, tmp_path: Path) -> None:
    process = start("run", service(tmp_path, "a", step="slow"), "--no-log-json")
    wait_for((tmp_path / "reached").exists, process)
    process.send_signal(signal.SIGTERM)
    assert "once more" in _line(process, "stopping")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130


def test_when_one_service_fails_the_others_are_drained_and_the_code_is_1(start: Any, tmp_path: Path) -> None:
    good, bad = service(tmp_path, "good", follow=True), service(tmp_path, "bad", step="wrong")
    process = start("run", good, bad, "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    summaries = {one["service"]: one for one in map(json.loads, out.splitlines())}
    assert summaries["bad"]["reason"] == "failed"
    assert "nothing is right" in summaries["bad"]["error"]
    assert summaries["good"]["reason"] == "stopped"
    assert results(tmp_path, "good") in ([], [0, 1, 2])
    assert "error: " in err
    assert "nothing is right" in err
    assert "Traceback" not in err


def test_when_one_service_fails_the_others_keep_going_if_they_are_told_to(start: Any, tmp_path: Path) -> None:
    failing = service(tmp_path, "a", step="wrong")
    unopened = service(tmp_path, "b", step="as_it_is")
    unopened.write_text(unopened.read_text().replace("as_it_is", "is_not_there"))
    running = service(tmp_path, "c", follow=True)
    process = start("run", unopened, failing, running, "--keep-going", "--json", "--log-json")
    assert process.stderr is not None
    failed: set[str] = set()
    while failed != {"a", "b"}:
        event = json.loads(process.stderr.readline())
        failed |= {event["service"]} if event["event"] == "the service failed" else set()
    with (tmp_path / "c.in.jsonl").open("a") as records:
        records.write('{"x": 7}\n')
    wait_for(lambda: results(tmp_path, "c") == [0, 1, 2, 7], process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    reasons = {summary["service"]: summary["reason"] for summary in map(json.loads, out.splitlines())}
    assert reasons == {"a": "failed", "b": "failed", "c": "stopped"}


def test_a_file_may_hold_several_services(start: Any, tmp_path: Path) -> None:
    first, second = service(tmp_path, "one"), service(tmp_path, "two")
    both = tmp_path / "both.yaml"
    both.write_text(f"name: one\n{first.read_text()}---\nname: two\n{second.read_text()}")
    process = start("run", both)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert results(tmp_path, "one") == results(tmp_path, "two") == [0, 1, 2]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{'@type': ONNX, modelUri: no.onnx}", "no.onnx"),
        ("{'@type': REGRESSION_OUTPUT}", 'REGRESSION_OUTPUT needs "names"'),
        ("{'@type': FUNCTION, function: 'json:nothing'}", 'json has no "nothing"'),
    ],
)
def test_steps_that_cannot_be_opened_are_a_wrong_file_to_run_and_check_told_in_a_line_or_two(
    start: Any, cli: Any, tmp_path: Path, step: str, said: str
) -> None:
    file = service(tmp_path, "a")
    file.write_text(file.read_text().replace("pipeline: []", f"pipeline: [{step}]"))
    assert cli("check", file).code == 2
    process = start("run", file)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said in err
    assert "Traceback" not in err
    assert sum(line.startswith("error: ") for line in err.splitlines()) == 1


def test_where_stderr_is_no_terminal_the_log_is_json_and_says_what_a_terminal_is_told(
    start: Any, tmp_path: Path
) -> None:
    process = start("run", service(tmp_path, "a"))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    events = [json.loads(line) for line in err.splitlines()]
    assert {one["service"] for one in events} == {"a"}
    assert [one["event"] for one in events if one["event"] != "hot path"] == ["running", "ended"]
    assert (events[-1]["ok"], events[-1]["reason"]) == (3, "ended")


def test_a_failure_is_in_the_json_log_once_and_nothing_stands_beside_it(start: Any, tmp_path: Path) -> None:
    process = start("run", service(tmp_path, "a", step="wrong"))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    events = [json.loads(line) for line in err.splitlines()]
    assert [one["event"] for one in events if one["level"] == "error"] == ["the service failed"]
    assert "nothing is right" in events[-1]["error"]


def test_on_a_terminal_the_log_is_text(start: Any, tmp_path: Path) -> None:
    assert "running" in _on_a_terminal(start, "run", service(tmp_path, "a"), "--log-level", "info")


def test_on_a_terminal_json_has_to_be_asked_for(start: Any, tmp_path: Path) -> None:
    lines = _on_a_terminal(start, "run", service(tmp_path, "a"), "--log-json").splitlines()
    assert [event for line in lines if (event := json.loads(line)["event"]) != "hot path"] == ["running", "ended"]


@pytest.mark.parametrize("evil", ["\x1b]0;owned\x07", "a\n2026-01-01 [error] all is lost \u202e", "\x9b31m"])
def test_control_characters_of_a_record_are_escaped_in_the_log_on_a_terminal(
    start: Any, tmp_path: Path, evil: str
) -> None:
    dead = "dead_letter: {type: file, path: dead.txt, format: lines, codec: raw}\n"
    file = service(tmp_path, "a", step="repeating", more=dead)
    (tmp_path / "a.in.jsonl").write_text(json.dumps({"x": evil}) + "\n", encoding="utf-8")
    text = _on_a_terminal(start, "run", file)
    assert "dead letter" in text
    # The log writes a text with blanks once more as Python would.
    assert repr(evil)[1:-1] in text.replace("\\\\", "\\")
    assert evil not in text


def test_a_wrong_file_is_told_in_json_where_nothing_else_may_stand_on_stderr(cli: Any, tmp_path: Path) -> None:
    file = service(tmp_path, "a", more="nmae: b\n")
    assert cli("run", file).err.startswith(f"error: {file}:4: nmae: no such field")
    (line,) = cli("run", file, "--log-json").err.splitlines()
    assert json.loads(line)["error"].startswith(f"{file}:4: nmae: no such field")
    assert "Traceback" in json.loads(cli("--debug", "run", file, "--log-json").err)["exception"]
    assert cli("check", file).err.startswith("error: ")


def test_with_log_json_stderr_holds_json_lines_only(start: Any, tmp_path: Path) -> None:
    process = start("run", service(tmp_path, "a"), "--log-json")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert next(event for event in events if event != "hot path") == "running"
    assert events[-1] == "ended"


def test_the_environment_chooses_the_log_unless_an_option_does(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMER_LOG", "info,text")
    file = service(tmp_path, "a")
    assert "[info" in start("run", file).communicate(timeout=120)[1]
    assert start("run", file, "--log-json", "--log-level", "error").communicate(timeout=120)[1] == ""


def test_a_word_that_says_nothing_of_the_log_is_wrong_use(cli: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("STREAMER_LOG", "infos")
    ended = cli("run", service(tmp_path, "a"))
    assert ended.code == 2
    assert 'STREAMER_LOG: "infos" is neither a level nor a form; known are debug, info' in ended.err
    assert not results(tmp_path, "a")


def test_two_services_of_one_name_in_two_files_are_wrong_use(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ended = cli("run", service(tmp_path, "a"), service(tmp_path / "other", "a"))
    assert ended.code == 2
    assert 'has a service "a" too' in ended.err
    assert not results(tmp_path, "a")


def test_a_source_that_cannot_be_put_back_is_wrong_use(cli: Any, tmp_path: Path) -> None:
    ended = cli("run", service(tmp_path, "a"), "--from", "earliest")
    assert ended.code == 2
    assert "earliest" in ended.err
    assert not results(tmp_path, "a")


def _on_a_terminal(start: Any, *arguments: Any) -> str:
    """What a command writes to stderr that is a terminal; it has to end with 0."""
    ours, theirs = pty.openpty()
    # So that lines are not folded.
    termios.tcsetwinsize(theirs, (50, 1000))
    process = start(*arguments, stderr=theirs)
    os.close(theirs)
    found = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal, suppress(OSError):
        while block := terminal.read(65536):
            found += block
    assert process.wait(120) == 0, found
    return found.decode().replace("\r\n", "\n")


def _line(process: subprocess.Popen[str], beginning: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(beginning):
            return line
    raise AssertionError(f"no line begins with {beginning}")


@contextmanager
def _imports(module: str, arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that has just imported `module`, and has others to import."""
    command = [sys.executable, "-X", "importtime", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert any(line.rpartition("|")[2].strip() == module for line in process.stderr)
            yield process
        finally:
            process.kill()
